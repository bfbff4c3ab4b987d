"""Lasting entries outlive the process and the lease of their home; passing ones end with both."""

from __future__ import annotations

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.lasting import LASTING_S, is_away
from ringmq.peer.engines.partitioned.messages import (
    Append,
    Begun,
    Entry,
    EntryFlag,
    Hold,
    Holders,
    Present,
    Presented,
    Registered,
    Registry,
    Renew,
    RouteChange,
    Routes,
    Row,
)
from ringmq.peer.engines.partitioned.names import partition_of_filter
from ringmq.peer.replication.record import RecordKind
from ringmq.peer.replication.space import PARTITIONS
from tests.peer.engines.partitioned.fake_homes import FILTER, PARTITION, Coordinating, peer_near

HOME, PUBLISHER = peer_near(9, 0, boot=5), peer_near(19, 0, boot=6)
RESTARTED = Peer(HOME.id, HOME.host, HOME.port, HOME.boot + 1)
OTHER = "$share/g/a"
"""Another filter of the same partition."""
assert partition_of_filter(OTHER) == PARTITION


def coordinating() -> Coordinating:
    """A coordinator with one shadow, of which PUBLISHER holds all partitions."""
    world = Coordinating(0, 16, shadows=1)
    world.begin()
    world.confirm(Append, *world.others)
    world.confirm(Holders, *world.others)
    world.coordinator.hold(PUBLISHER, Hold((), True))
    world.coordinator.flush()
    world.confirm(Holders, *world.others)
    settle(world)
    world.streams.sent.clear()
    return world


def settle(world: Coordinating) -> None:
    world.coordinator.flush()
    world.confirm(Append, *world.others)
    world.confirm(Routes, PUBLISHER)


def live(world: Coordinating) -> dict[str, int]:
    """The filters of live entries with the boots that gave them."""
    records = world.coordinator.store.records(PARTITION).values()
    return {record.name: record.number[0] for record in records if not record.gone}


def away(world: Coordinating) -> list[str]:
    return [record.name for record in world.coordinator.store.records(PARTITION).values() if is_away(record)]


def on_disk(world: Coordinating) -> dict[str, bool]:
    """The filters on the disk, each with whether its home is away."""
    return {record.name: record.gone for record in world.disk.entries.values()}


def rows_sent(world: Coordinating) -> list[Row]:
    return [row for _, item, _ in world.streams.take(Append) if isinstance(item, Append) for row in item.rows]


def changes_sent(world: Coordinating) -> list[int]:
    return [change for _, item, _ in world.streams.take(Routes) if isinstance(item, Routes) for change in item.changes]


def ended(world: Coordinating) -> list[tuple[int, int]]:
    answers = [item for _, item, _ in world.streams.take(Registered) if isinstance(item, Registered)]
    return [number for answer in answers for number in answer.ended]


def test_lasting_entries_are_on_the_disk_and_passing_ones_are_not() -> None:
    world = coordinating()
    world.register(HOME, 1, lasting=True)
    world.register(HOME, 2, topic_filter=OTHER)
    assert on_disk(world) == {FILTER: False}
    assert [row.flags for row in rows_sent(world)] == [EntryFlag.LASTING, 0]
    world.register(HOME, 3)
    assert on_disk(world) == {}, "it is passing from now on"
    world.register(HOME, 4, lasting=True)
    world.register(HOME, 5, gone=True)
    assert on_disk(world) == {}


def test_restart_of_a_home_ends_its_passing_entries_alone() -> None:
    world = coordinating()
    world.register(HOME, 1, lasting=True)
    world.register(HOME, 2, topic_filter=OTHER)
    settle(world)
    world.streams.sent.clear()
    world.coordinator.present(RESTARTED, Present((), 0, 0))
    world.coordinator.flush()
    assert live(world) == {FILTER: HOME.boot}
    assert changes_sent(world) == [RouteChange.GONE | RouteChange.EXPIRED]
    settle(world)
    world.register(RESTARTED, 1, lasting=True)
    assert live(world) == {FILTER: RESTARTED.boot}
    assert changes_sent(world) == [0]


def test_home_that_is_silent_is_away_and_nobody_waits_for_it() -> None:
    world = coordinating()
    world.register(HOME, 1, lasting=True)
    world.register(HOME, 2, topic_filter=OTHER)
    settle(world)
    world.streams.sent.clear()
    for _ in range(int(world.state.config.entry_s) + 1):
        world.coordinator.renew(PUBLISHER, Renew(world.clock.now))
        world.later(1.0)
    assert (live(world), away(world)) == ({}, [FILTER])
    assert on_disk(world) == {FILTER: True}
    assert changes_sent(world) == [RouteChange.GONE | RouteChange.EXPIRED] * 2
    world.later(world.state.config.tomb_s + 1.0)
    assert [record.name for record in world.coordinator.store.records(PARTITION).values()] == [FILTER]
    assert world.state.counters.expired == 2


def test_home_that_is_back_registers_again_what_it_wants() -> None:
    world = coordinating()
    world.register(HOME, 1, lasting=True)
    world.register(HOME, 2, topic_filter=OTHER, lasting=True)
    settle(world)
    world.later(world.state.config.entry_s + 0.1)
    settle(world)
    world.streams.sent.clear()
    # With the digest of nothing, as if it had no filter there: it is not the same as filters of a home that is away.
    world.coordinator.present(HOME, Present(((PARTITION, PARTITION),), 0, 0))
    ((_, presented, _),) = world.streams.take(Presented)
    assert isinstance(presented, Presented)
    assert (presented.same, presented.digests) == (False, ((PARTITION, 2, 0),))
    world.coordinator.registry(HOME, Registry(PARTITION, (5, 3), (Entry(FILTER, (5, 1), False, EntryFlag.LASTING),)))
    settle(world)
    assert ended(world) == [(5, 1)], "the home must give it a higher number"
    assert away(world) == [FILTER], "the other filter has ended"
    world.register(HOME, 4, lasting=True)
    assert (live(world), away(world)) == ({FILTER: HOME.boot}, [])
    assert on_disk(world) == {FILTER: False}
    world.later(world.state.config.entry_s + 0.1)
    assert away(world) == [FILTER], "its lease began again"


def test_entries_of_a_home_that_never_returns_are_forgotten() -> None:
    world = coordinating()
    world.register(HOME, 1, lasting=True)
    settle(world)
    world.later(world.state.config.entry_s + 0.1)
    world.clock.now += LASTING_S - PARTITIONS
    for _ in range(PARTITIONS):
        world.coordinator.tick()
    assert away(world) == [FILTER]
    world.clock.now += PARTITIONS
    for _ in range(PARTITIONS):
        world.coordinator.tick()
    assert away(world) == []
    assert on_disk(world) == {}
    assert world.state.counters.forgotten_away == 1


def test_shadow_keeps_what_its_coordinator_says_of_a_home() -> None:
    world = Coordinating(4, 0, 16)
    actor = world.others[0]
    row = Row(PARTITION, RecordKind.ENTRY, FILTER, 0, (5, 1), False, flags=EntryFlag.LASTING)
    world.coordinator.copying.append(actor, Append((Begun(PARTITION, PARTITION, 7),), (HOME,), (row,)))
    assert on_disk(world) == {FILTER: False}
    flags = EntryFlag.LASTING | EntryFlag.LAPSED
    lapsed = Row(PARTITION, RecordKind.ENTRY, FILTER, 0, (5, 1), True, flags=flags, body=bytes(8))
    world.coordinator.copying.append(actor, Append((), (HOME,), (lapsed,)))
    assert on_disk(world) == {FILTER: True}
    world.coordinator.store.forget_gone(world.clock.now + 1.0)
    assert away(world) == [FILTER]
