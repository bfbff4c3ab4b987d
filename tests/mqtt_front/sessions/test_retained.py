"""Retained messages: the last of each topic, bounded, without the expired ones."""

from __future__ import annotations

from math import inf

from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.retained import MOST_AT_ONCE, MOST_STALE, Retained


def message(topic: str, payload: bytes = b"x", expires_at: float | None = None) -> Message:
    return Message(topic, payload, 0, True, expires_at=expires_at)


def topics(retained: Retained, topic_filter: str, now: float = 0.0) -> set[str]:
    return {found.topic for found in retained.matching(topic_filter, now)}


# 3.1.1 [MQTT-3.3.1-7] · 5.0 [MQTT-3.3.1-5]
def test_the_last_one_of_a_topic_is_kept() -> None:
    retained = Retained(10, 1 << 20)
    for payload in (b"1", b"2"):
        assert retained.set(message("a", payload))
    assert [found.payload for found in retained.matching("a", 0.0)] == [b"2"]
    assert len(retained) == 1
    assert [found.payload for found in retained] == [b"2"]


# 3.1.1 [MQTT-3.3.1-11] · 5.0 [MQTT-3.3.1-7]
def test_an_empty_one_takes_it_away_and_is_not_kept() -> None:
    retained = Retained(10, 1 << 20)
    retained.set(message("a"))
    assert retained.set(message("a", b""))
    assert retained.set(message("never/there", b""))
    assert len(retained) == 0


def test_those_that_a_filter_matches() -> None:
    retained = Retained(10, 1 << 20)
    for topic in ("a", "a/b", "a/b/c", "b", "$SYS/x"):
        retained.set(message(topic))
    assert topics(retained, "a/#") == {"a", "a/b", "a/b/c"}
    assert topics(retained, "+") == {"a", "b"}
    assert topics(retained, "#") == {"a", "a/b", "a/b/c", "b"}
    assert topics(retained, "$SYS/#") == {"$SYS/x"}


def test_a_further_topic_has_no_room() -> None:
    retained = Retained(2, 1 << 20)
    assert retained.set(message("a"))
    assert retained.set(message("b"))
    assert not retained.set(message("c"))
    assert retained.set(message("a", b"new"))
    assert topics(retained, "#") == {"a", "b"}
    retained.set(message("a", b""))
    assert retained.set(message("c"))


def test_those_that_a_filter_matches_step_by_step() -> None:
    retained = Retained(10, 1 << 20)
    for number in range(4):
        retained.set(message(f"a/{number}", b"%d" % number, expires_at=5.0 if number == 2 else None))
    steps = retained.walk("a/+")
    first = next(topic for topic in steps if topic is not None)
    retained.set(message("a/1", b"new"))
    retained.set(message("a/3", b""))
    rest = [retained.get(topic, 6.0) for topic in steps if topic is not None]
    assert first == "a/0"
    assert [found.payload for found in rest if found is not None] == [b"new"]


# 5.0 [MQTT-3.3.2-5]
def test_expired_ones_are_nobodys_and_then_make_room() -> None:
    retained = Retained(2, 1 << 20)
    retained.set(message("a", expires_at=5.0))
    retained.set(message("b", expires_at=9.0))
    assert topics(retained, "#", now=4.9) == {"a", "b"}
    assert topics(retained, "#", now=5.0) == {"b"}
    assert retained.deadline() == 5.0
    assert retained.expire(4.9) == []
    assert retained.expire(5.0) == ["a"]
    assert retained.deadline() == 9.0
    assert retained.set(message("c"))


def test_who_is_replaced_or_taken_away_does_not_expire() -> None:
    retained = Retained(10, 1 << 20)
    for topic, later in (("a", message("a", b"for ever")), ("b", message("b", b"")), ("c", message("c", b"new", 9.0))):
        retained.set(message(topic, expires_at=5.0))
        retained.set(later)
    assert retained.expire(5.0) == []
    assert topics(retained, "#", now=5.0) == {"a", "c"}
    assert retained.expire(9.0) == ["c"]
    assert retained.deadline() == inf


def test_many_that_expire_together_do_so_in_steps() -> None:
    retained = Retained(3 * MOST_AT_ONCE, 1 << 30)
    for number in range(2 * MOST_AT_ONCE + 1):
        retained.set(message(f"{number}", expires_at=5.0))
    gone = []
    while retained.deadline() <= 5.0:
        assert topics(retained, "#", now=5.0) == set()
        gone.append(len(retained.expire(5.0)))
    assert gone == [MOST_AT_ONCE, MOST_AT_ONCE, 1]
    assert len(retained) == 0


def test_messages_that_are_replaced_all_the_time_leave_nothing_behind() -> None:
    retained = Retained(10, 1 << 20)
    for number in range(3 * MOST_STALE):
        retained.set(message("a", expires_at=1000.0 + number))
    assert len(retained._due) <= MOST_STALE + 3
    assert retained.expire(999.0 + 3 * MOST_STALE) == ["a"]


def test_bytes_have_a_bound_too() -> None:
    retained = Retained(10, 10)
    assert retained.set(message("a", b"12345"))
    assert retained.set(message("b", b"12345"))
    assert not retained.set(message("c", b"1"))
    assert retained.set(message("a", b"1", expires_at=5.0))
    assert retained.set(message("c", b"1234"))
    assert not retained.set(message("b", b"123456"))
    assert topics(retained, "#") == {"a", "c"}, "the one of b that was is not the last one any more"
    retained.expire(5.0)
    retained.set(message("c", b""))
    assert retained.set(message("d", b"1234567890"))
