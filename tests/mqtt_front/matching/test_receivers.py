"""Overlapping subscriptions become one receiver; the members of a shared group take turns."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.matching.receivers import (
    FilterEntries,
    Receiver,
    ReceiverCache,
    Receivers,
    SharedGroup,
    merged,
)

NONE: Receivers[str] = Receivers((), ())


def test_no_subscriptions_give_no_receivers() -> None:
    assert merged([]) == ()


def test_one_filter_keeps_its_receivers() -> None:
    subscriptions = {"a": Receiver("a", 1), "b": Receiver("b", 0)}
    assert merged([subscriptions]) == (subscriptions["a"], subscriptions["b"])


def test_overlapping_subscriptions_are_one_receiver() -> None:
    """[MQTT-3.3.4-2] one copy at the highest QoS, [MQTT-3.3.4-4] all identifiers, even equal ones (5.0 §3.3.4)."""
    first = {"a": Receiver("a", 0, False, False, (7,)), "b": Receiver("b", 1)}
    second = {"c": Receiver("c", 2), "a": Receiver("a", 2, False, True, (7,))}
    third = {"a": Receiver("a", 1, False, False, (9,))}
    assert merged([first, second]) == (Receiver("a", 2, False, True, (7, 7)), first["b"], second["c"])
    assert merged([first, second, third])[0] == Receiver("a", 2, False, True, (7, 7, 9))
    assert first["a"].qos == 0, "the subscription itself has not changed"


def test_no_local_on_all_subscriptions_excludes_own_messages() -> None:
    lines = [{"a": Receiver("a", 0, True, False, (7,))}, {"a": Receiver("a", 2, True, True, (8,))}]
    assert merged(lines) == (Receiver("a", 2, True, True, (7, 8)),)


@given(st.permutations(range(4)))
def test_own_messages_use_only_subscriptions_without_no_local(order: list[int]) -> None:
    """[MQTT-3.8.3-3] with §3.3.4: QoS, identifiers and the flag of what leaves them out have no say in them."""
    lines = [
        Receiver("a", 2, True, True, (1,)),
        Receiver("a", 0, False, False, (2,)),
        Receiver("a", 1, False, False, (3,)),
        Receiver("a", 2, True, True, (4,)),
    ]
    (receiver,) = merged([{"a": lines[place]} for place in order])
    assert (receiver.qos, receiver.no_local, receiver.retain_as_published) == (2, False, True)
    assert receiver.subscription_ids == tuple(place + 1 for place in order)
    ordinary = tuple(place + 1 for place in order if place in (1, 2))
    assert receiver.own == Receiver("a", 1, False, False, ordinary)


def group_of(names: str) -> SharedGroup[str]:
    group: SharedGroup[str] = SharedGroup("g", "a/#")
    for name in names:
        group.join(Receiver(name, 1))
    return group


def turns(group: SharedGroup[str], number: int, available: str = "abcdef") -> str:
    chosen = (group.next_member(lambda session: session in available) for _ in range(number))
    return "".join(member.session if member else "-" for member in chosen)


def test_members_rotate() -> None:
    group = group_of("abc")
    assert [member.session for member in group.members] == ["a", "b", "c"]
    assert turns(group, 7) == "abcabca"


def test_unavailable_member_is_skipped() -> None:
    group = group_of("abc")
    assert turns(group, 4, available="ac") == "acac"
    assert turns(group, 2, available="b") == "bb"
    assert turns(group, 1, available="") == "-"
    assert turns(group, 3) == "cab"


def test_an_empty_group_has_no_member() -> None:
    assert turns(group_of(""), 1) == "-"


def test_leaving_member_does_not_change_the_rotation() -> None:
    group = group_of("abcd")
    assert turns(group, 2) == "ab"
    group.leave("a")
    assert turns(group, 1) == "c"
    group.leave("d")
    assert turns(group, 3) == "bcb"


def test_a_joining_member_comes_last() -> None:
    group = group_of("ab")
    assert turns(group, 2) == "ab"
    group.join(Receiver("c", 0))
    assert turns(group, 3) == "cab"


def test_new_options_keep_the_place() -> None:
    group = group_of("ab")
    group.join(Receiver("a", 2))
    assert group.members == (Receiver("a", 2), Receiver("b", 1))
    assert group.get("a") == Receiver("a", 2)
    assert group.get("c") is None
    assert len(group) == 2


@given(st.lists(st.sampled_from("abcdef.")))
def test_rotation_stays_fair(steps: list[str]) -> None:
    """Whatever came before, as many turns as there are members serve everyone once."""
    group = group_of("")
    for step in steps:
        if step == ".":
            turns(group, 1)
        elif group.get(step):
            group.leave(step)
        else:
            group.join(Receiver(step, 0))
    assert set(Counter(turns(group, 3 * len(group))).values()) <= {3}


def test_a_changed_filter_ends_the_answers_made_of_it() -> None:
    cache: ReceiverCache[str] = ReceiverCache(100, 10**6)
    one, other = sources = (FilterEntries[str, Receiver[str]](), FilterEntries[str, Receiver[str]]())
    both, alone = answers = Receivers((), (), sources), Receivers((), (), (other,))
    for topic, answer in zip(("a", "b"), answers, strict=True):
        cache.put(topic, answer)
    assert cache.find(sources, False) is both
    cache.end(one)
    assert (both.ended, alone.ended) == (True, False)
    assert cache.find(sources, False) is None
    assert cache.find((other,), False) is alone
    assert one.answers is None
    assert list(other.answers or ()) == [alone]
    cache.end(other)
    cache.drop_topics()
    assert cache.size_bytes == 0
    assert cache.evictions == 0


def test_all_topics_of_the_same_filters_share_an_answer() -> None:
    cache: ReceiverCache[str] = ReceiverCache(100, 10**6)
    shared = Receivers[str]((), (), (FilterEntries(),))
    for topic in ("a", "b"):
        cache.put(topic, shared)
    before = cache.size_bytes
    cache.drop("a")
    assert list(cache.answers) == ["b"]
    assert 0 < cache.size_bytes < before


def test_topics_with_plans_of_their_own_have_answers_of_their_own() -> None:
    cache: ReceiverCache[str] = ReceiverCache(100, 10**6)
    sources = (FilterEntries[str, Receiver[str]](),)
    cache.put("a", Receivers((), (), sources))
    assert cache.find(sources, True) is None


def test_the_number_of_answers_is_bounded() -> None:
    cache: ReceiverCache[str] = ReceiverCache(100, 10**6)
    everything = FilterEntries[str, Receiver[str]]()
    for number in range(1000):
        cache.put(str(number), Receivers((), (), (everything, FilterEntries())))
        assert len(everything.answers or ()) <= 100
        assert cache.answers[str(number)].ended is False


def test_oldest_answers_are_evicted_at_the_bound() -> None:
    cache: ReceiverCache[str] = ReceiverCache(200, 10**6)
    for number in range(1000):
        cache.put(str(number), NONE)
        assert len(cache.answers) <= 200
        assert str(number) in cache.answers
    kept = list(cache.answers)
    assert len(kept) > 100, "not all at once"
    assert kept == [str(number) for number in range(1000 - len(kept), 1000)]
    assert cache.evictions == 1000 - len(kept)


def test_long_names_and_long_lists_count() -> None:
    cache: ReceiverCache[str] = ReceiverCache(10**6, 10**6)
    everyone = tuple(Receiver(str(number), 0) for number in range(1000))
    for number in range(100):
        cache.put(f"list/{number}", Receivers(everyone, (), (FilterEntries(),)))
        cache.put("name/" * 1000 + str(number), NONE)
        assert cache.size_bytes <= 10**6 + 10**5
    assert 2 <= len(cache.answers) < 20


def test_the_newest_stays_whatever_its_size() -> None:
    cache: ReceiverCache[str] = ReceiverCache(1, 1)
    cache.put("a", NONE)
    cache.put("b", NONE)
    assert list(cache.answers) == ["b"]
    assert cache.evictions == 1


def test_cache_can_be_cleared() -> None:
    cache: ReceiverCache[str] = ReceiverCache(100, 10**6)
    answers = cache.answers
    for topic in ("a", "$SYS/b"):
        cache.put(topic, Receivers((), ()))
    cache.clear()
    assert (len(answers), cache.size_bytes, cache.evictions) == (0, 0, 0)
    cache.put("a", Receivers((), ()))
    cache.drop("a")
    assert len(answers) == 0
