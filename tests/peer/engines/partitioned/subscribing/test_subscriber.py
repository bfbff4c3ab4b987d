"""The filters of this peer's clients: registered, in force, renewed, given back; and their coordinators agree."""

from __future__ import annotations

import sys
import tracemalloc

import pytest

from ringmq.overlay.core.ids import Id
from ringmq.peer.engines.partitioned.messages import (
    Elsewhere,
    Entry,
    Here,
    Present,
    Register,
    Registered,
    Registry,
)
from ringmq.peer.engines.partitioned.names import partition_of_filter
from ringmq.peer.engines.partitioned.subscribing.filter_stage import FilterStage
from ringmq.peer.engines.partitioned.subscribing.refused_filters import RETRY_S
from ringmq.peer.engines.partitioned.subscribing.registrations import MOST_UNANSWERED
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.replication.space import ALL
from tests.peer.engines.partitioned.homes import Home, peer_at


def test_filters_of_one_iteration_go_to_each_coordinator_in_one_item() -> None:
    home = Home(3)
    filters = [f"t/{number}" for number in range(100)]
    done = home.subscribe(*filters)
    home.subscriber.flush()
    registers = home.items(Register)
    assert len(registers) == 3
    assert sorted(entry.filter for _, item in registers for entry in item.entries) == sorted(filters)
    for peer, item in registers:
        assert {home.actor(partition_of_filter(entry.filter)) for entry in item.entries} == {peer}
    home.work()
    home.hear()
    assert done == []
    home.grant()
    home.hear()
    assert sorted(done) == sorted(filters)
    assert all(home.subscriber.in_force(name) for name in filters)
    assert len(home.state.samples) == 3, "one measurement for each question"


def test_one_item_has_at_most_256_entries() -> None:
    home = Home(1)
    done = home.subscribe(*[f"t/{number}" for number in range(600)])
    home.subscriber.flush()
    assert [len(item.entries) for _, item in home.items(Register)] == [256, 256, 88]
    home.settle()
    assert len(done) == 600
    home.subscribe(*[f"{number:03}" + "x" * 60_000 for number in range(3)])
    home.subscriber.flush()
    assert [len(item.entries) for _, item in home.items(Register)[3:]] == [1, 1, 1]


def test_nothing_is_registered_twice_while_the_coordinator_is_the_same() -> None:
    home = Home(3)
    done = home.subscribe("a")
    home.run(20.0, work=False)
    assert len(home.items(Register)) == 1
    home.settle()
    assert done == ["a"]
    assert home.subscribe("a") == ["a"], "it is in force here already"


def test_every_done_is_called_once() -> None:
    home = Home(3)
    first = home.subscribe("a", "a")
    home.subscriber.remove("a")
    assert first == ["a", "a"], "each SUBSCRIBE gets its SUBACK, even if its filter is removed before"
    again = home.subscribe("a")
    home.settle()
    assert (first, again) == (["a", "a"], ["a"])
    home.subscriber.remove("a")
    home.subscriber.remove("never")
    home.run(1.0)
    assert len(home.subscriber) == 0
    assert home.live() == {}


def test_an_answer_for_an_earlier_number_grants_nothing() -> None:
    home = Home(3)
    home.subscribe("a")
    home.subscriber.flush()
    home.work()
    home.grant()
    home.subscriber.remove("a")
    done = home.subscribe("a")
    home.hear()
    assert done == []
    assert not home.subscriber.in_force("a")
    home.settle()
    assert done == ["a"]


def test_answers_for_an_earlier_boot_change_nothing() -> None:
    home = Home(3)
    done = home.subscribe("a")
    home.subscriber.flush()
    boot, count = home.own("a").number
    home.subscriber.registered(home.me, Registered(((boot - 1, count),), ((boot - 1, count),), ((boot - 1, count),)))
    assert home.own("a").number == (boot, count)
    assert done == []
    home.settle()
    assert done == ["a"]


def test_a_coordinator_that_is_not_in_charge_is_forgotten_by_the_directory() -> None:
    home = Home(2)
    home.view.doubted = lambda key: True
    where = partition_of_filter("a")
    wrong = next(peer for peer in home.ring if peer != home.actor(where))
    home.directory.here(wrong, Here(ALL))
    done = home.subscribe("a")
    home.subscriber.flush()
    home.work()
    home.hear()
    assert home.directory.coordinator(where) is None
    home.run(0.5)
    assert done == ["a"]


def test_the_end_reaches_the_next_coordinator_if_the_stream_breaks() -> None:
    home = Home(3)
    home.subscribe("a", "b")
    home.settle()
    home.subscriber.remove("a")
    home.subscriber.flush()
    home.lose(home.actor(partition_of_filter("a")))
    assert "a" in home.live()
    home.run(1.0)
    assert set(home.live()) == {"b"}
    assert len(home.subscriber) == 1


def test_an_end_that_is_confirmed_before_the_coordinator_says_elsewhere_is_repeated() -> None:
    home = Home(3)
    home.subscribe("a")
    home.settle()
    where = partition_of_filter("a")
    old = home.actor(where)
    home.subscriber.remove("a")
    home.run(0.1, work=False)
    _, done = home.sent[old].pop()
    assert done is not None
    done()
    home.view.active = False
    home.subscriber.elsewhere(old, Elsewhere(((where, where),)))
    home.run(1.0, work=False)
    home.view.active = True
    home.run(2.0)
    assert home.live() == {}
    assert len(home.subscriber) == 0


def test_a_new_coordinator_gets_unanswered_filters_and_a_presentation() -> None:
    home = Home(1)
    home.subscribe(*[f"t/{number}" for number in range(50)])
    home.settle()
    waiting = home.subscribe(*[f"u/{number}" for number in range(50)])
    home.subscriber.flush()
    home.log.clear()
    newcomer = peer_at(8)
    home.ring.append(newcomer)
    home.view.peers.append(newcomer)
    for _ in range(3):
        home.subscriber.coordinators_changed()
    home.subscriber.flush()
    theirs = {entry.filter for peer, item in home.items(Register) for entry in item.entries if peer == newcomer}
    assert theirs == {f"u/{n}" for n in range(50) if home.actor(partition_of_filter(f"u/{n}")) == newcomer}
    assert [peer for peer, _ in home.items(Present)] == [newcomer]
    home.settle()
    assert len(waiting) == 50
    assert home.items(Registry) == [], "the successor had everything"


def test_a_coordinator_that_is_not_in_charge_is_asked_again_with_growing_waits() -> None:
    home = Home(3)
    done = home.subscribe("a")
    where = partition_of_filter("a")
    coordinator = home.actor(where)
    for _ in range(300):
        home.run(0.05, work=False)
        for item, _ in list(home.sent.get(coordinator, ())):
            if isinstance(item, Register):
                home.sent[coordinator].clear()
                home.subscriber.elsewhere(coordinator, Elsewhere(((where, where),)))
                break
    assert 6 < len(home.items(Register)) < 16
    home.run(3.0)
    assert done == ["a"]


def test_new_filters_wait_too_after_a_coordinator_said_elsewhere() -> None:
    home = Home(1)
    home.subscribe("a")
    home.subscriber.flush()
    where = partition_of_filter("a")
    home.subscriber.elsewhere(home.me, Elsewhere(((where, where),)))
    done = home.subscribe("$share/g/a")
    home.subscriber.flush()
    assert len(home.items(Register)) == 1
    home.run(1.0)
    assert done == ["$share/g/a"]


def test_a_renewal_finds_out_that_partitions_are_coordinated_elsewhere() -> None:
    home = Home(2)
    home.view.doubted = lambda key: True
    home.subscribe(*[f"t/{number}" for number in range(50)])
    home.run(1.0)
    home.ring.append(peer_at(4))
    home.run(6.0)
    assert all(own.partition.coordinator == home.actor(own.partition.index) for own in home.subscriber)
    assert {own.partition.coordinator for own in home.subscriber} == set(home.ring)


def test_a_peer_without_a_ring_registers_as_soon_as_it_knows_its_coordinators() -> None:
    home = Home(3)
    home.view.active = False
    done = home.subscribe("a", "b/#")
    home.run(1.0)
    assert done == ["a", "b/#"], "questions for the coordinators are routed and answered"
    assert home.subscriber.in_force("b/#")


def test_leases_are_renewed_by_one_item_for_each_coordinator() -> None:
    home = Home(3)
    home.subscribe(*[f"t/{number}" for number in range(1000)])
    home.settle()
    home.log.clear()
    home.run(15.0)
    assert len(home.items(Present)) == 15
    assert home.items(Register) == home.items(Registry) == []


def test_filters_of_the_same_iteration_are_sent_before_the_renewal() -> None:
    home = Home(3)
    home.subscribe("a")
    home.settle()
    home.subscribe(*[f"t/{number}" for number in range(100)])
    home.subscriber.renew()
    home.settle()
    assert len(home.items(Present)) == 3
    assert home.items(Registry) == []


def test_a_crowd_is_registered_in_turns_and_no_faster_than_it_is_answered() -> None:
    home = Home(3)
    names = [f"t/{number}" for number in range(3 * MOST_UNANSWERED)]
    done = home.subscribe(*names)
    sent = 0
    while len(done) < len(names):
        before = sent
        home.run(0.01, work=False)
        sent = sum(len(item.entries) for _, item in home.items(Register) if isinstance(item, Register))
        assert sent - len(done) <= MOST_UNANSWERED
        assert sent > before or sent > len(done), "it goes on"
        home.settle()
    assert sum(len(item.entries) for _, item in home.items(Register) if isinstance(item, Register)) == len(names)


def test_a_renewal_waits_for_the_registrations_of_a_crowd() -> None:
    home = Home(3)
    home.subscribe(*[f"t/{number}" for number in range(2 * MOST_UNANSWERED)])
    home.subscriber.renew()
    home.subscriber.flush()
    assert home.items(Present) == []
    for _ in range(20):
        home.settle()
        home.run(0.1)
    assert len(home.items(Present)) == 3
    assert home.items(Registry) == []


def test_the_successor_of_a_doubted_coordinator_is_asked_for_at_once() -> None:
    home = Home(2)
    home.view.doubted = lambda key: True
    home.subscribe("a")
    home.run(1.0)
    coordinator = home.actor(partition_of_filter("a"))
    home.ring.remove(coordinator)
    home.view.suspects.add(coordinator)
    home.subscriber.coordinators_changed()
    home.settle()
    assert home.own("a").partition.coordinator == home.ring[0]


def test_a_lapsed_filter_gets_a_higher_number() -> None:
    home = Home(3)
    home.subscribe("a", "b")
    home.settle()
    number = home.own("a").number
    home.lapse("a", said=True)
    home.hear()
    assert not home.subscriber.in_force("a")
    home.settle()
    assert home.subscriber.in_force("a")
    assert home.own("a").number > number
    assert home.state.counters.leases_lost == 1


def test_digests_find_an_entry_that_the_coordinator_has_dropped() -> None:
    home = Home(3)
    filters = [f"t/{number}" for number in range(300)]
    home.subscribe(*filters)
    home.settle()
    home.lapse("t/7", said=False)
    partition = partition_of_filter("t/8")
    del home.entries[partition]["t/8"]
    home.run(4.0)
    assert {item.partition for _, item in home.items(Registry)} == {partition_of_filter("t/7"), partition}
    assert set(home.live()) == set(filters)
    assert all(home.subscriber.in_force(name) for name in filters)


def test_digests_end_an_entry_that_only_the_coordinator_has() -> None:
    home = Home(1)
    home.subscribe("a", "$share/g/a")
    home.settle()
    assert partition_of_filter("a") == partition_of_filter("$share/g/a")
    home.subscriber.remove("a")
    home.subscriber.flush()
    home.sent.clear()
    home.subscriber._partitions[partition_of_filter("a")].queued.clear()
    assert "a" in home.live()
    home.run(4.0)
    assert set(home.live()) == {"$share/g/a"}


def test_numbers_exceed_those_of_an_earlier_boot_with_a_faster_clock() -> None:
    home = Home(1)
    partition = partition_of_filter("a")
    home.entries[partition] = {"a": Entry("a", (99, 1000), False), "b": Entry("b", (5, 1), False)}
    done = home.subscribe("a")
    home.run(1.0)
    assert done == ["a"]
    assert home.live()["a"] > (99, 1000)


def test_a_refused_filter_is_removed_without_a_word_to_its_coordinator() -> None:
    home = Home(3)
    home.full.add(partition_of_filter("a"))
    done = home.subscribe("a", "b")
    home.settle()
    assert (done, home.refused) == (["b"], ["a"])
    sent = len(home.log)
    home.run(1.0)
    assert len(home.log) == sent
    assert not home.subscriber.has("a")
    assert not home.subscriber.wants("a")
    assert home.state.counters.refused_filters == 1
    home.full.clear()
    done = home.subscribe("a")
    home.settle()
    assert done == ["a"]
    assert home.subscriber.in_force("a")


def test_a_refused_filter_that_a_session_keeps_is_tried_again_now_and_then() -> None:
    home = Home(3)
    home.keeps_refused = True
    home.full.add(partition_of_filter("a"))
    home.subscribe("a")
    home.settle()
    assert home.subscriber.is_refused("a")
    home.run(2 * RETRY_S + 1.0)
    assert home.state.counters.refused_filters == 3
    presents = [item for _, item in home.items(Present) if isinstance(item, Present)]
    assert sum(present.count for present in presents) <= 2, "digests have it while it is asked for, at most"
    home.full.clear()
    home.run(RETRY_S)
    assert home.subscriber.in_force("a")
    assert not home.subscriber.is_refused("a")


def test_a_refused_filter_is_registered_at_once_for_a_client_and_with_a_new_coordinator() -> None:
    home = Home(3)
    home.keeps_refused = True
    partition = partition_of_filter("a")
    home.full.add(partition)
    home.subscribe("a")
    home.settle()
    home.full.clear()
    done = home.subscribe("a")
    home.settle()
    assert done == ["a"]
    home.full.add(partition)
    home.lapse("a", said=True)
    home.settle()
    assert home.subscriber.is_refused("a"), "a filter that was in force may find no room again"
    home.full.clear()
    home.lose(home.actor(partition))
    home.run(1.0)
    assert home.subscriber.in_force("a")


def test_late_answers_about_a_refused_filter_change_nothing() -> None:
    home = Home(3)
    home.keeps_refused = True
    home.full.add(partition_of_filter("a"))
    home.subscribe("a")
    home.settle()
    own = home.own("a")
    actor = home.actor(partition_of_filter("a"))
    for late in (
        Registered((own.number,), (), ()),
        Registered((), (own.number,), ()),
        Registered((), (), (own.number,)),
    ):
        home.subscriber.registered(actor, late)
    assert home.subscriber.is_refused("a")
    assert home.state.counters.refused_filters == 1


def test_retained_messages_of_exact_filters_come_with_the_grant() -> None:
    home = Home(3)
    home.retain("a", b"kept")
    home.retain("b", b"other")
    done = home.subscribe("a")
    home.settle()
    assert done == home.soon == ["a"]
    assert home.kept == {"a": b"kept"}
    home.subscriber.remove("a")
    assert home.kept == {"a": b""}


def test_confirmed_messages_are_not_fetched_if_a_filter_in_force_gets_them_live() -> None:
    home = Home(1)
    home.subscribe("#")
    home.settle()
    home.retain("a", b"live", confirmed=True)
    home.retain("b", b"late")
    home.subscribe("a", "b", "+")
    home.settle()
    assert home.kept == {"b": b"late"}


def test_answers_to_repeated_questions_are_no_measurement() -> None:
    home = Home(3)
    home.subscribe("a")
    home.subscriber.flush()
    home.lose(home.actor(partition_of_filter("a")))
    home.run(1.0)
    assert home.subscriber.in_force("a")
    assert home.state.samples == []


def test_a_dead_coordinator_beyond_the_leaf_set_is_found_out() -> None:
    home = Home(4)
    where = partition_of_filter("a")
    home.view.doubted = lambda key: True
    # All peers have said by now what they coordinate.
    first = home.subscribe("a", *[f"u/{number}" for number in range(200)])
    home.run(1.0)
    assert len(first) == 201
    dead = home.actor(where)
    home.ring.remove(dead)
    done = home.subscribe(*[f"t/{number}" for number in range(200)])
    home.run(1.5)
    assert len(done) == 200, "asked while unanswered"
    dead = home.actor(where)
    home.ring.remove(dead)
    home.run(10.0)
    assert home.own("a").partition.coordinator == home.actor(where), "found by the renewal of leases"


def test_100000_filters_cost_a_bounded_time_each_and_little_memory() -> None:
    home = Home(7)
    filters = [f"site/{number % 100}/device/{number}" for number in range(20_000)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    names = sum(sys.getsizeof(name) for name in filters)
    for start in range(0, len(filters), 200):
        for name in filters[start : start + 200]:
            home.subscriber.add(name, int)
        home.view.lookups = 0
        home.subscriber.flush()
        # A look-up for each filter at most, and none for the filters of earlier iterations.
        assert home.view.lookups <= 200
        home.work()
        home.log.clear()
        home.grant()
        home.hear()
    home.answers.clear()
    home.entries.clear()
    home.granted.clear()
    used = tracemalloc.get_traced_memory()[0] - before + names
    tracemalloc.stop()
    assert all(own.stage is FilterStage.IN_FORCE for own in home.subscriber)
    assert used / len(filters) <= 600


def test_filter_in_force_that_becomes_lasting_waits_for_its_entry_alone() -> None:
    home = Home(3)
    home.retain("a/b", b"x")
    home.subscribe("a/+")
    home.settle()
    home.log.clear()
    done: list[str] = []
    home.subscriber.add("a/+", lambda _: done.append("kept"), lasting=True)
    home.subscriber.flush()
    assert home.subscriber.in_force("a/+"), "its clients get messages meanwhile"
    assert done == []
    home.settle()
    assert done == ["kept"]
    assert home.lasting() == {"a/+"}
    assert [type(item) for _, item in home.log] == [Register], "its retained messages are here"
    home.subscriber.add("a/+", lambda _: done.append("passing"))
    home.run(1.0)
    assert done == ["kept", "passing"]
    assert home.lasting() == set()


def test_filter_that_becomes_lasting_before_it_is_sent_is_registered_once() -> None:
    home = Home(3)
    done = home.subscribe("a")
    home.subscriber.add("a", lambda _: done.append("kept"), lasting=True)
    home.settle()
    assert done == ["a", "kept"]
    assert [len(item.entries) for _, item in home.items(Register)] == [1]
    assert home.lasting() == {"a"}


@pytest.mark.parametrize("lapses", [False, True])
def test_live_copy_of_a_fetched_message_is_a_repetition_for_new_subscribers_alone(lapses: bool) -> None:
    home = Home(3)
    if lapses:
        home.subscribe("a")
        home.settle()
    home.retain("a", b"x", number=(5, 7))
    if lapses:
        home.lapse("a", said=True)
    else:
        home.subscribe("a")
    home.settle()
    assert home.kept["a"] == b"x"
    live = Publication(1, 1, 1, "a", b"x", True, 5)
    assert home.cache.repeats(Id(7), live) is not lapses
    home.retain("a", b"y", number=(6, 7))
    home.subscriber.remove("a")
    home.subscribe("a")
    home.settle()
    assert home.cache.repeats(Id(7), Publication(1, 2, 1, "a", b"y", True, 6))
