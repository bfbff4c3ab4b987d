"""Wide filters: begun for fresh topics, in force before they serve, and taken back without a gap."""

from __future__ import annotations

import pytest

from ringmq.overlay.core.ids import Id
from ringmq.peer.engines.partitioned.messages import EntryFlag, Find, Register, Registered
from ringmq.peer.engines.partitioned.names import partition_of, partition_of_filter
from ringmq.peer.engines.partitioned.subscribing.filter_stage import FilterStage
from ringmq.peer.engines.partitioned.subscribing.fresh_parents import FRESH, PAUSE_S
from ringmq.peer.engines.partitioned.subscribing.wide_filter import ALLOWANCE, MOST_NOTED, MOST_SERVED, SHARE
from ringmq.peer.engines.partitioned.subscribing.widening import MOST_WIDE, UNUSED_S
from ringmq.peer.messaging.publication import Publication
from tests.peer.engines.partitioned.homes import Home

WIDE = "p/+"


def come_and_go(home: Home, parent: str = "p", count: int = FRESH + 1) -> None:
    """Clients use fresh topics below a parent, one after the other."""
    for number in range(count):
        name = f"{parent}/old{number}"
        home.subscribe(name)
        home.settle()
        home.subscriber.remove(name)
        home.settle()


def widened(count: int = 3) -> Home:
    """A home with a wide filter in force, and nothing else."""
    home = Home(count)
    come_and_go(home)
    home.run(1.0)
    assert set(home.live()) == {WIDE}
    assert len(home.subscriber) == 0
    assert home.subscriber.wide == 1
    home.log.clear()
    return home


def bring(home: Home, topic: str, count: int = 1) -> None:
    brought = home.state.brought
    assert brought is not None
    for _ in range(count):
        brought(topic, home.subscriber.wants(topic), None, None)


def test_filters_that_come_and_go_below_one_parent_bring_a_wide_filter() -> None:
    home = Home(3)
    come_and_go(home, count=FRESH)
    assert home.subscriber.wide == 0
    assert home.state.brought is None, "nothing is measured without wide filters"
    done = home.subscribe("p/one")
    home.settle()
    assert done == ["p/one"]
    assert {"p/one", WIDE} <= set(home.live()), "the filter that was first is registered by itself"
    entries = [entry for _, item in home.items(Register) for entry in item.entries]  # type: ignore[union-attr]
    assert {entry.filter for entry in entries if entry.flags & EntryFlag.WIDE} == {WIDE}
    home.run(1.0)
    assert len(home.subscriber) == 1, "no client has the wide filter"


def test_filters_that_stay_bring_none() -> None:
    home = Home(3)
    home.subscribe(*[f"p/{number}" for number in range(200)])
    home.settle()
    assert home.subscriber.wide == 0


def test_filters_that_go_slowly_bring_none() -> None:
    home = Home(3)
    for _ in range(3):
        come_and_go(home, count=FRESH // 2)
        home.run(61.0)
    assert home.subscriber.wide == 0


@pytest.mark.parametrize("parent", ["", "$SYS", "$share/g/p", "p/+"])
def test_some_parents_never_get_one(parent: str) -> None:
    home = Home(3)
    come_and_go(home, parent)
    assert home.subscriber.wide == 0
    assert home.state.counters.widened == 0


def test_names_without_levels_never_bring_one() -> None:
    home = Home(3)
    for number in range(FRESH + 2):
        home.subscribe(f"n{number}")
        home.settle()
        home.subscriber.remove(f"n{number}")
    assert home.subscriber.wide == 0


def test_a_ring_of_one_peer_needs_none() -> None:
    home = Home(1)
    come_and_go(home)
    assert home.subscriber.wide == 0


def test_a_filter_below_costs_one_question() -> None:
    home = widened()
    home.retain("p/new", b"kept")
    done = home.subscribe("p/new")
    home.subscriber.flush()
    ((peer, question),) = home.log
    assert peer == home.actor(partition_of("p/new"))
    assert isinstance(question, Find)
    assert question.filters == ("p/new",)
    assert question.runs == ((partition_of("p/new"),) * 2,)
    assert done == [], "its retained message may be missing"
    home.settle()
    assert done == ["p/new"]
    assert home.kept["p/new"] == b"kept"
    home.subscriber.remove("p/new")
    home.run(1.0)
    assert len(home.log) == 1, "no coordinator knows it"
    assert home.kept["p/new"] == b""


def test_filters_of_one_iteration_ask_each_coordinator_for_its_own_topics() -> None:
    home = widened()
    names = [f"p/{number}" for number in range(40)]
    done = home.subscribe(*names)
    home.subscriber.flush()
    assert len(home.log) == 3
    for peer, question in home.log:
        assert isinstance(question, Find)
        assert {home.actor(partition_of(name)) for name in question.filters} == {peer}
    assert sorted(name for _, item in home.log for name in item.filters) == sorted(names)  # type: ignore[union-attr]
    home.settle()
    assert sorted(done) == sorted(names)


def test_a_wide_filter_that_is_not_granted_serves_nothing() -> None:
    home = Home(3)
    come_and_go(home, count=FRESH)
    home.subscribe("p/a")
    home.subscribe("p/b")
    home.subscriber.flush()
    home.work()
    assert {"p/a", "p/b", WIDE} <= set(home.live())


def test_nothing_further_is_served_when_the_lease_may_be_over() -> None:
    home = widened()
    # Paused, or cut off from the coordinator: the entry may have ended.
    home.state.clock.now += home.state.config.entry_s
    home.subscribe("p/late")
    home.settle()
    assert "p/late" in home.live()


def test_a_renewal_prolongs_it() -> None:
    home = widened()
    home.run(2 * home.state.config.entry_s)
    home.subscribe("p/late")
    home.settle()
    assert "p/late" not in home.live()


def test_nothing_further_is_served_until_the_next_coordinator_confirms() -> None:
    home = widened()
    coordinator = home.actor(partition_of_filter(WIDE))
    home.lose(coordinator)
    home.subscribe("p/a")
    home.settle()
    assert "p/a" in home.live()
    home.run(5.0)
    home.subscribe("p/b")
    home.settle()
    assert "p/b" not in home.live(), "the entry is the same there"


@pytest.mark.parametrize("said", [True, False])
def test_a_lapse_registers_each_filter_that_it_served(said: bool) -> None:
    home = widened()
    served = [f"p/{number}" for number in range(300)]
    home.subscribe(*served)
    home.settle()
    home.lapse(WIDE, said=said)
    home.run(4.0)
    assert set(home.live()) == set(served)
    assert home.subscriber.wide == 0
    assert home.state.counters.leases_lost == 300
    sizes = [len(item.entries) for _, item in home.items(Register)]  # type: ignore[union-attr]
    assert sum(sizes) <= 302
    assert len(sizes) <= 6, "each coordinator gets its own in one item"


def test_it_serves_a_bounded_number() -> None:
    home = widened()
    home.subscribe(*[f"p/{number}" for number in range(MOST_SERVED + 3)])
    home.settle()
    assert len(home.live()) == 1 + 3


def test_there_is_a_bounded_number_of_them() -> None:
    home = Home(3)
    for number in range(MOST_WIDE + 1):
        come_and_go(home, f"p{number}")
    assert home.subscriber.wide == MOST_WIDE


def test_a_tenth_may_be_unwanted() -> None:
    home = widened()
    home.subscribe("p/used")
    home.settle()
    bring(home, "p/used", (SHARE - 1) * 100)
    bring(home, "p/other", 100)
    home.run(1.0)
    assert home.subscriber.wide == 1
    bring(home, "p/other")
    home.run(1.0)
    assert home.subscriber.wide == 0
    assert set(home.live()) == {"p/used"}


def test_what_comes_for_other_filters_does_not_count() -> None:
    home = widened()
    home.subscribe("p/#")
    home.settle()
    bring(home, "p/x", 10_000)
    home.subscriber.remove("p/#")
    home.settle()
    bring(home, "p/x", ALLOWANCE + 1)
    home.run(1.0)
    assert home.subscriber.wide == 0


def test_it_ends_only_when_each_filter_is_granted_by_its_own_coordinator() -> None:
    home = widened()
    home.subscribe("p/a", "p/b")
    home.settle()
    bring(home, "p/other", ALLOWANCE + 1)
    home.subscriber.flush()
    home.work()
    assert set(home.live()) == {WIDE, "p/a", "p/b"}
    home.run(1.0, work=False)
    assert WIDE in home.live()
    home.run(1.0)
    assert set(home.live()) == {"p/a", "p/b"}
    assert home.state.counters.narrowed == 1


def test_a_message_that_is_fetched_while_a_filter_returns_is_no_reason_to_drop_the_live_copy() -> None:
    home = widened()
    home.subscribe("p/a")
    home.settle()
    bring(home, "p/other", ALLOWANCE + 1)
    home.retain("p/a", b"new", confirmed=True)
    home.settle()
    assert "p/a" in home.live()
    live = Publication(1, 1, 1, "p/a", b"new", True, 1)
    assert not home.cache.repeats(Id(1), live), "its clients have a subscription in force, and wait for it"


def test_a_parent_is_left_alone_after_its_wide_filter_was_taken_back_as_costly() -> None:
    home = widened()
    bring(home, "p/other", ALLOWANCE + 1)
    home.run(1.0)
    come_and_go(home)
    assert home.subscriber.wide == 0
    home.state.clock.now += PAUSE_S
    come_and_go(home)
    assert home.subscriber.wide == 1


def test_it_ends_when_nobody_subscribes_below_it() -> None:
    home = widened()
    home.subscribe("p/stays")
    home.settle()
    home.run(UNUSED_S + 10)
    assert home.subscriber.wide == 0
    assert set(home.live()) == {"p/stays"}
    come_and_go(home)
    assert home.subscriber.wide == 1, "it did no harm"


def test_without_it_if_its_partition_is_full() -> None:
    home = Home(3)
    home.full.add(partition_of_filter(WIDE))
    come_and_go(home)
    done = home.subscribe("p/a")
    home.run(1.0)
    assert done == ["p/a"]
    assert set(home.live()) == {"p/a"}
    assert home.state.counters.refused_filters == 0, "no client had it"
    come_and_go(home)
    assert home.state.counters.widened == 1, "it is not tried again at once"


def test_it_goes_on_for_a_filter_that_is_refused_when_it_returns() -> None:
    home = widened()
    done = home.subscribe("p/a", "p/b")
    home.settle()
    home.full.add(partition_of("p/a"))
    bring(home, "p/other", ALLOWANCE + 1)
    home.run(1.0)
    assert set(home.live()) == {WIDE, "p/b"}
    assert home.subscriber.in_force("p/a")
    assert home.state.counters.refused_filters == 0
    home.subscriber.remove("p/a")
    home.run(1.0)
    assert set(home.live()) == {"p/b"}
    assert sorted(done) == ["p/a", "p/b"]


def test_a_client_that_wants_the_wide_filter_gets_it() -> None:
    home = widened()
    home.subscribe("p/a")
    home.settle()
    home.retain("p/x", b"kept")
    done = home.subscribe(WIDE)
    assert home.subscriber.wide == 0
    assert WIDE in home.live(), "without a gap"
    home.settle()
    assert done == [WIDE]
    assert home.kept["p/x"] == b"kept"
    assert set(home.live()) == {"p/a", WIDE}
    assert home.entries[partition_of_filter(WIDE)][WIDE].flags == 0
    home.subscriber.remove(WIDE)
    home.run(1.0)
    assert set(home.live()) == {"p/a"}


def test_a_client_that_has_the_filter_needs_no_wide_one() -> None:
    home = Home(3)
    home.subscribe(WIDE)
    home.settle()
    come_and_go(home)
    assert home.subscriber.wide == 0


def test_a_filter_that_was_registered_and_is_served_now_is_ended_at_its_coordinator() -> None:
    home = Home(3)
    come_and_go(home)
    home.run(1.0)
    assert set(home.live()) == {WIDE}
    home.subscribe("p/old1")
    home.run(1.0)
    bring(home, "p/other", ALLOWANCE + 1)
    home.run(1.0)
    assert home.live() == {"p/old1": home.own("p/old1").number}


def test_a_retained_message_that_may_be_on_its_way_to_its_coordinator_is_not_missed() -> None:
    home = widened()
    brought = home.state.brought
    assert brought is not None
    brought("p/new", False, Id(9), Publication(1, 1, 1, "p/new", b"late", True, 7))
    done = home.subscribe("p/new")
    home.settle()
    assert done == ["p/new"]
    assert home.kept["p/new"] == b"late"


def test_a_newer_message_of_the_coordinator_counts() -> None:
    home = widened()
    brought = home.state.brought
    assert brought is not None
    brought("p/new", False, Id(9), Publication(1, 1, 1, "p/new", b"old", True, 7))
    home.retain("p/new", b"new", number=(8, 1))
    home.subscribe("p/new")
    home.settle()
    assert home.kept["p/new"] == b"new"


def test_too_many_retained_messages_end_it() -> None:
    home = widened()
    home.subscribe("p/used")
    home.settle()
    bring(home, "p/used", 10 * MOST_NOTED)
    brought = home.state.brought
    assert brought is not None
    for number in range(MOST_NOTED + 1):
        brought(f"p/{number}", True, Id(9), Publication(1, number, 1, f"p/{number}", b"x", True, 7))
    home.run(1.0)
    assert home.subscriber.wide == 0


def test_an_answer_for_an_earlier_number_of_a_filter_that_is_served_changes_nothing() -> None:
    home = widened()
    home.subscribe("p/a")
    home.settle()
    own = home.own("p/a")
    home.subscriber.registered(home.me, Registered((), ((own.boot, own.count - 1),), ((own.boot, own.count - 1),)))
    assert own.stage is FilterStage.IN_FORCE


def test_a_lasting_filter_is_never_served() -> None:
    home = widened()
    done: list[str] = []
    home.subscriber.add("p/kept", lambda: done.append("kept"), True)
    home.settle()
    assert done == ["kept"]
    assert set(home.live()) == {WIDE, "p/kept"}


def test_a_filter_that_becomes_lasting_is_registered_while_it_is_served() -> None:
    home = widened()
    home.subscribe("p/a")
    home.settle()
    done: list[str] = []
    home.subscriber.add("p/a", lambda: done.append("kept"), True)
    home.subscriber.flush()
    assert home.subscriber.in_force("p/a"), "its messages come by the wide filter"
    home.state.clock.now += 1.0
    bring(home, "p/other", ALLOWANCE + 1)
    home.subscriber.flush()
    home.work()
    assert WIDE in home.live(), "it is not granted yet"
    home.run(1.0)
    assert done == ["kept"]
    assert set(home.live()) == {"p/a"}
    assert home.lasting() == {"p/a"}
