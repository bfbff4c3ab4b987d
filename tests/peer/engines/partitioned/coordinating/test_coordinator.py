"""An entry is in force when all shadows have it and all holders know it; nothing waits for a peer that is gone."""

from __future__ import annotations

import pytest

from ringmq.peer.engines.partitioned.coordinating import holders
from ringmq.peer.engines.partitioned.coordinating.holders import LOOK_S, MOST_LATE, RouteWriter
from ringmq.peer.engines.partitioned.messages import (
    Append,
    Begun,
    Deposed,
    Elsewhere,
    EntryFlag,
    HandedOver,
    Handover,
    Hold,
    Holders,
    Registered,
    Renew,
    Renewed,
    Routes,
    Row,
    State,
    StateRequest,
)
from ringmq.peer.replication.copying import LATER_S
from ringmq.peer.replication.record import Epoch, RecordKind, SharedRecord
from tests.peer.engines.partitioned.fake_homes import FILTER, PARTITION, Coordinating, covers, peer_near

HOME, PUBLISHER = peer_near(9, 0, boot=5), peer_near(19, 0, boot=6)


def coordinating(*others: int, shadows: int = 2) -> Coordinating:
    world = Coordinating(0, *(others or (16, -16)), shadows=shadows)
    world.begin()
    world.confirm(Append, *world.others)
    world.confirm(Holders, *world.others)
    world.streams.sent.clear()
    return world


def held(world: Coordinating) -> None:
    """PUBLISHER holds all partitions."""
    world.coordinator.hold(PUBLISHER, Hold((), True))
    world.coordinator.flush()
    world.confirm(Holders, *world.others)
    world.confirm(Routes, PUBLISHER)
    world.streams.sent.clear()


def answers(world: Coordinating) -> list[Registered]:
    return [item for _, item, _ in world.streams.take(Registered) if isinstance(item, Registered)]


def test_entry_is_in_force_when_all_shadows_have_it() -> None:
    world = coordinating()
    world.register(HOME, 1)
    world.confirm(Append, world.others[0])
    assert answers(world) == []
    world.confirm(Append, world.others[1])
    assert [answer.in_force for answer in answers(world)] == [((5, 1),)]


def test_entry_waits_for_the_holders_and_its_end_does_not() -> None:
    world = coordinating()
    held(world)
    world.register(HOME, 1)
    world.confirm(Append, *world.others)
    assert answers(world) == []
    world.confirm(Routes, PUBLISHER)
    assert [answer.in_force for answer in answers(world)] == [((5, 1),)]
    world.register(HOME, 2, gone=True)
    world.later(LATER_S)
    world.confirm(Append, *world.others)
    assert [answer.ended for answer in answers(world)] == [((5, 2),)]


def test_silent_holder_delays_an_entry_until_it_can_trust_nothing() -> None:
    world = coordinating()
    held(world)
    world.register(HOME, 1)
    world.confirm(Append, *world.others)
    world.later(world.state.config.lease_s)
    assert answers(world) == []
    world.later(world.state.config.void_s)
    assert [answer.in_force for answer in answers(world)] == [((5, 1),)]
    assert world.coordinator.waiting == 0


@pytest.mark.parametrize("heard", [True, False])
def test_a_holder_that_is_only_late_need_not_be_sent_everything_again(heard: bool) -> None:
    """On a busy machine renewals come late. To send all routes to all publishers again would make it busier."""
    world = coordinating()
    held(world)
    void_s = world.state.config.void_s
    for _ in range(8):
        world.later(void_s / 4)
        if heard:
            world.streams.heard[PUBLISHER] = world.clock.now
        world.coordinator.holders.tick()
    assert world.coordinator.holders.knows(PUBLISHER) is heard
    if heard:
        # It is sent changes as before. The answer to its next renewal comes behind them.
        world.register(HOME, 1)
        assert [type(item) for peer, item, _ in world.streams.sent if peer == PUBLISHER] == [Routes]
    for _ in range(4 * MOST_LATE):
        world.later(void_s / 2)
        world.streams.heard[PUBLISHER] = world.clock.now
        world.coordinator.holders.tick()
    assert not world.coordinator.holders.knows(PUBLISHER), "it does not renew at all"


def test_a_holder_of_much_gets_it_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to its renewal comes behind all that was sent before. Behind 40,000 routes it would come too late."""
    monkeypatch.setattr(holders, "ROWS_IN_A_TURN", 0)
    world = coordinating()
    world.register(HOME, 1)
    world.confirm(Append, *world.others)
    acting = world.coordinator.store.acting
    acting[PARTITION + 1] = acting[PARTITION + 2] = 1
    own = {partition for partition in range(len(acting)) if acting[partition]}

    def begun() -> set[int]:
        items = [item for to, item, _ in world.streams.sent if to == PUBLISHER and isinstance(item, Routes)]
        return {partition for item in items for run in item.begun for partition in range(run.first, run.last + 1)}

    world.coordinator.hold(PUBLISHER, Hold((), True))
    world.coordinator.flush()
    world.confirm(Holders, *world.others)
    first = begun()
    assert PARTITION in first
    assert first < own
    world.later(1.0)
    assert begun() == first, "it has not applied these yet"
    world.confirm(Routes, PUBLISHER)
    world.later(2 * LOOK_S)
    assert begun() | first == own


def test_beginnings_are_written_once_for_all_holders_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = coordinating()
    written: list[str] = []
    add = RouteWriter.add

    def noting(self: RouteWriter, partition: int, record: SharedRecord) -> None:
        written.append(record.name)
        add(self, partition, record)

    def begin(distance: int) -> Routes:
        world.confirm(Append, *world.others)
        publisher = peer_near(distance, 0)
        world.coordinator.hold(publisher, Hold((), True))
        world.coordinator.flush()
        world.confirm(Holders, *world.others)
        (routes,) = [item for to, item, _ in world.streams.take(Routes) if to == publisher]
        assert isinstance(routes, Routes)
        return routes

    world.register(HOME, 1)
    monkeypatch.setattr(RouteWriter, "add", noting)
    first, second = begin(20), begin(21)
    assert written == [FILTER]
    assert first.fingerprints == second.fingerprints != b""
    assert first.term != second.term
    world.register(HOME, 2, topic_filter=f"$share/group/{FILTER}")
    assert written[1:] == [f"$share/group/{FILTER}"]
    third = begin(22)
    assert sorted(written[2:]) == sorted([FILTER, f"$share/group/{FILTER}"])
    assert len(third.fingerprints) == 2 * len(first.fingerprints)


def test_holder_gets_nothing_before_all_successors_know_it() -> None:
    world = coordinating()
    world.coordinator.hold(PUBLISHER, Hold((), True))
    world.coordinator.renew(PUBLISHER, Renew(1.0))
    world.coordinator.flush()
    world.confirm(Holders, world.others[0])
    assert not world.streams.take(Routes)
    world.confirm(Holders, world.others[1])
    kinds = [type(item) for peer, item, _ in world.streams.sent if peer == PUBLISHER]
    # A renewal counts for what lies before its answer.
    assert kinds == [Routes, Renewed]


def test_holder_with_a_lost_stream_has_no_lease_until_it_has_everything_again() -> None:
    world = coordinating()
    held(world)
    world.coordinator.stream_lost(PUBLISHER)
    world.coordinator.renew(PUBLISHER, Renew(1.0))
    assert [item.known for _, item, _ in world.streams.take(Renewed) if isinstance(item, Renewed)] == [False]
    world.register(HOME, 1)
    world.confirm(Append, *world.others)
    assert answers(world) == []
    # What it does not ask for now, it may still have from the lost stream.
    world.coordinator.hold(PUBLISHER, Hold((), False))
    world.coordinator.flush()
    routes = [item for _, item, _ in world.streams.sent if isinstance(item, Routes)]
    assert covers(routes[-1].begun, PARTITION)
    world.confirm(Routes, PUBLISHER)
    assert [answer.in_force for answer in answers(world)] == [((5, 1),)]


def test_shadow_with_a_lost_stream_is_waited_for_until_it_has_everything_again() -> None:
    world = coordinating()
    world.register(HOME, 1)
    world.coordinator.stream_lost(world.others[0])
    world.coordinator.flush()
    world.confirm(Append, world.others[1])
    world.streams.take(Append)
    assert answers(world) == []
    # Not at once: a peer that has started again is lost with each item until the ring knows.
    assert world.streams.sent == []
    world.later(world.state.config.retry_s)
    begun = [item for _, item, _ in world.streams.sent if isinstance(item, Append)]
    assert covers(begun[0].begun, PARTITION)
    assert [row.name for row in begun[0].rows] == [FILTER]
    world.confirm(Holders, world.others[0])
    world.confirm(Append, world.others[0])
    assert [answer.in_force for answer in answers(world)] == [((5, 1),)]


@pytest.mark.parametrize("restarts", [False, True])
def test_shadow_that_is_gone_is_not_waited_for_but_its_successor_is(restarts: bool) -> None:
    world = coordinating(16, -16, 32)
    world.confirm(Append, *world.others)
    world.register(HOME, 1)
    dead, other, third = world.others
    successor = peer_near(PARTITION, 16, boot=2) if restarts else third
    world.confirm(Append, other)
    world.leaves(other, third, *([successor] if restarts else []))
    assert answers(world) == []
    world.confirm(Holders, successor)
    world.confirm(Append, successor)
    assert [answer.in_force for answer in answers(world)] == [((5, 1),)]
    assert dead not in world.coordinator.copying.shadows


def test_confirmations_out_of_order_count_only_without_a_gap() -> None:
    world = coordinating(16)
    world.register(HOME, 1)
    world.register(HOME, 2, topic_filter=FILTER)
    first, second = [done for _, _, done in world.streams.take(Append)]
    assert first is not None
    assert second is not None
    second()
    world.coordinator.flush()
    assert answers(world) == []
    first()
    world.coordinator.flush()
    assert [answer.in_force for answer in answers(world)] == [((5, 2),)]


def test_nearer_peer_takes_over_and_requests_are_referred_to_it() -> None:
    world = coordinating(16, -16, shadows=1)
    held(world)
    world.register(HOME, 1)
    newcomer = peer_near(PARTITION, 1)
    world.coordinator.takeover.state_request(newcomer, StateRequest(3, ((PARTITION, PARTITION),), ()))
    # The newcomer is farther from the key than this peer, so nothing happens.
    state = next(item for _, item, _ in world.streams.take(State) if isinstance(item, State))
    assert state.refused == ((PARTITION, PARTITION),)
    world = Coordinating(4, 16, -16)
    world.begin()
    world.confirm(Append, *world.others)
    held(world)
    world.register(HOME, 1)
    world.coordinator.takeover.state_request(newcomer, StateRequest(3, ((PARTITION, PARTITION),), ()))
    world.coordinator.flush()
    state = next(item for _, item, _ in world.streams.take(State) if isinstance(item, State))
    assert state.epochs == ((PARTITION, PARTITION, 2),)
    assert state.holders == (PUBLISHER,)
    assert [row.name for row in state.rows] == [FILTER]
    ended = [item.ended for _, item, _ in world.streams.take(Routes) if isinstance(item, Routes)]
    assert ((PARTITION, PARTITION),) in ended
    assert [peer for peer, _, _ in world.streams.take(Elsewhere)] == [HOME]
    assert not world.coordinator.store.acting[PARTITION]
    assert world.coordinator.waiting == 0


def test_successor_counts_the_holders_that_it_knows_as_a_shadow() -> None:
    world = Coordinating(4, 0, 16, -16)
    actor = world.others[0]
    world.coordinator.holders.holders(actor, Holders((PUBLISHER,), ()))
    row = Row(PARTITION, RecordKind.ENTRY, FILTER, 0, (5, 1), False)
    begun = Append((Begun(PARTITION, PARTITION, 7),), (HOME,), (row,))
    world.coordinator.copying.append(actor, begun)
    world.streams.sent.clear()
    world.leaves(*world.others[1:])
    world.begin()
    assert world.coordinator.store.epoch(PARTITION) == Epoch(8, world.me.id)
    world.register(HOME, 2)
    world.confirm(Holders, *world.others)
    world.confirm(Append, *world.others)
    assert answers(world) == []
    world.confirm(Routes, PUBLISHER)
    assert [answer.in_force for answer in answers(world)] == [((5, 2),)]


def test_deposed_coordinator_learns_it_before_its_message_is_confirmed() -> None:
    world = Coordinating(4, 0, 16, -16)
    actor, successor = world.others[:2]
    world.coordinator.copying.append(actor, Append((Begun(PARTITION, PARTITION, 7),), (), ()))
    world.coordinator.takeover.state_request(successor, StateRequest(1, ((PARTITION, PARTITION),), ()))
    world.streams.sent.clear()
    world.coordinator.holders.holders(actor, Holders((PUBLISHER,), ()))
    ((peer, item, done),) = world.streams.take(Deposed)
    assert (peer, world.streams.held) == (actor, 1)
    assert isinstance(item, Deposed)
    assert item.epochs == ((PARTITION, PARTITION, Epoch(8, successor.id)),)
    assert done is not None
    done()
    assert world.streams.held == 0


def test_entries_of_a_silent_home_lapse_and_their_number_has_ended() -> None:
    world = coordinating(16)
    # A peer that has just started asks all homes, and sends copies again when that is over.
    world.later(world.state.config.entry_s + 0.1)
    world.confirm(Append, *world.others)
    world.register(HOME, 1)
    world.confirm(Append, *world.others)
    world.streams.sent.clear()
    world.later(world.state.config.entry_s + 0.1)
    rows = [row for _, item, _ in world.streams.take(Append) if isinstance(item, Append) for row in item.rows]
    assert [(row.gone, row.flags) for row in rows] == [(True, EntryFlag.LAPSED)]
    world.register(HOME, 1)
    assert [answer.ended for answer in answers(world)] == [((5, 1),)]


def test_registration_whose_entry_lapses_while_it_waits_is_answered() -> None:
    world = coordinating(16)
    world.register(HOME, 1)
    appended = world.streams.take(Append)
    world.later(world.state.config.entry_s + 0.1)
    for _, _, done in appended:
        assert done is not None
        done()
    world.coordinator.flush()
    assert [answer.ended for answer in answers(world)] == [((5, 1),)]


def test_hand_over_is_answered_when_its_sender_is_no_shadow() -> None:
    world = coordinating(16, -16, 32, shadows=1)
    shadow, stranger = world.others[0], world.others[2]
    row = Row(PARTITION, RecordKind.ENTRY, FILTER, 0, (5, 1), False)
    records = Handover(((PARTITION, PARTITION),), (HOME,), (row,))
    for sender in (shadow, stranger):
        world.coordinator.takeover.handover(sender, records)
        world.coordinator.flush()
    assert not world.streams.take(HandedOver)
    world.confirm(Append, *world.others)
    assert [peer for peer, _, _ in world.streams.take(HandedOver)] == [
        peer for peer in (shadow, stranger) if peer not in world.neighbourhood.shadows(PARTITION)
    ]
    assert [record.name for record in world.coordinator.store.records(PARTITION).values()] == [FILTER]


def test_first_takeover_after_a_death_waits_for_holders_that_nobody_knows() -> None:
    world = Coordinating(0, 16, -16)
    world.leaves(world.others[0])
    world.begin()
    world.confirm(Holders, *world.others)
    world.register(HOME, 1)
    world.confirm(Append, *world.others)
    assert answers(world) == []
    world.later(world.state.config.void_s)
    assert [answer.in_force for answer in answers(world)] == [((5, 1),)]
