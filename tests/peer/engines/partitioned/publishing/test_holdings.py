"""Held partitions: asked for where they are coordinated, trusted no longer than allowed, and given back."""

from __future__ import annotations

import random

import pytest

from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Begun, Deposed, Elsewhere, Hold, Release, Renew, Renewed
from ringmq.peer.engines.partitioned.names import partition_of, prefixes_of
from ringmq.peer.engines.partitioned.publishing.holdings import ALL_FROM, FEW_COORDINATORS
from ringmq.peer.messaging.config import LAN
from ringmq.peer.replication.record import Epoch
from ringmq.peer.replication.space import PARTITIONS, partitions_in
from tests.peer.engines.partitioned.fake_coordinators import FakeCoordinator, Publishing
from tests.peer.engines.partitioned.routes_of import CAME, GONE, peer_of, routes_of

A, B, C = peer_of(2), peer_of(3), peer_of(4)
MANY = FEW_COORDINATORS + 4


def needed(topic: str) -> set[int]:
    return {partition_of(prefix) for prefix in prefixes_of(topic)}


def held(world: Publishing) -> set[int]:
    return {partition for source in world.publisher.holdings for partition in source.begun}


def asked_for(world: Publishing, kind: type) -> list[object]:
    return [item for coordinator in world.coordinators.values() for item in coordinator.seen if isinstance(item, kind)]


def reset(world: Publishing) -> None:
    for coordinator in world.coordinators.values():
        coordinator.seen.clear()


def test_in_a_large_ring_single_partitions_are_held() -> None:
    world = Publishing(MANY)
    world.subscribe(("a/b", A, CAME), ("a/#", B, CAME))
    assert world.receivers("a/b") == [A, B]
    assert held(world) == needed("a/b")
    reset(world)
    assert world.receivers("a/b") == [A, B]
    assert world.receivers("a") == [B]
    assert asked_for(world, Hold) == []


def test_all_partitions_of_a_coordinator_are_held_when_several_are_in_use() -> None:
    world = Publishing(MANY)
    number = 0
    while not any(coordinator.knows_all for coordinator in world.coordinators.values()):
        world.receivers(f"t/{number}")
        number += 1
    whole = next(coordinator for coordinator in world.coordinators.values() if coordinator.knows_all)
    assert whole.holds == whole.acting
    singles = [item for item in whole.seen if isinstance(item, Hold) and not item.all]
    assert sum(len(list(partitions_in(item.runs))) for item in singles) == ALL_FROM - 1
    reset(world)
    before = len(world.links.sent)
    for name in (f"t/{number}" for number in range(4000)):
        if world.of(name) is whole:
            world.receivers(name)
    assert asked_for(world, Hold) == []
    assert len(world.links.sent) == before


def test_partitions_without_use_are_released_and_asked_for_again() -> None:
    world = Publishing(MANY)
    world.subscribe(("a", A, CAME), ("b/c", B, CAME))
    world.receivers("a")
    world.receivers("b/c")
    for _ in range(8):
        world.run(10.0)
        world.receivers("b/c")
    assert held(world) == needed("b/c")
    assert {partition for coordinator in world.coordinators.values() for partition in coordinator.holds} == held(world)
    assert world.receivers("a") == [A]


def test_nothing_is_held_when_nothing_is_published() -> None:
    for count in (3, MANY):
        world = Publishing(count)
        world.receivers("a")
        assert held(world)
        world.run(LAN.idle_s + 25)
        assert held(world) == set()
        assert not any(coordinator.holds for coordinator in world.coordinators.values())
        reset(world)
        world.run(60.0)
        assert asked_for(world, Renew) == []
        world.subscribe(("a", A, CAME))
        assert world.receivers("a") == [A]


def test_nothing_is_released_while_a_message_is_unacknowledged() -> None:
    world = Publishing(MANY)
    world.subscribe(("$share/g/a", A, CAME), ("$share/g/a", B, CAME))
    world.publish("a", qos=1)
    world.run(LAN.give_up_s - 1)
    assert held(world) == needed("a")


def test_few_partitions_of_a_coordinator_in_use_end_the_whole() -> None:
    world = Publishing(MANY)
    names = [f"t/{number}" for number in range(600)]
    for name in names:
        world.receivers(name)
    assert all(coordinator.knows_all for coordinator in world.coordinators.values())
    busy = world.of("t/0")
    few = [name for name in names if world.of(name) is busy][:2]
    for _ in range(9):
        world.run(10.0)
        for name in few:
            world.receivers(name)
    assert not any(coordinator.knows_all for coordinator in world.coordinators.values())
    assert held(world) == set().union(*map(needed, few))


def test_a_partition_that_begins_before_a_release_is_processed_is_not_trusted() -> None:
    world = Publishing(MANY)
    world.receivers("a")
    coordinator = world.of("a")
    # The release is on its way, and so is a partition that the coordinator has just taken over.
    coordinator.silent = True
    world.publisher.holdings.release(anything=False)
    assert any(isinstance(item, Release) for _, item in world.streams.items)
    other = next(partition for partition in coordinator.acting if partition not in needed("a"))
    world.publisher.routes(coordinator.peer, routes_of([], [Begun(other, other, 1)]))
    assert other not in held(world)
    coordinator.silent = False
    world.answer()
    world.publisher.routes(coordinator.peer, routes_of([], [Begun(other, other, 1)]))
    assert other in held(world)


def test_a_lower_epoch_is_refused_until_its_homes_would_have_registered_again() -> None:
    world = Publishing(3)
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    partition = partition_of("a")
    world.publisher.routes(world.of("a").peer, routes_of([("a", A, CAME)], [Begun(partition, partition, 5)]))
    stranger = peer_of(50)
    lower = routes_of([("a", B, CAME)], [Begun(partition, partition, 4)])
    world.streams.items.clear()
    world.publisher.routes(stranger, lower)
    told = [item for peer, item in world.streams.items if peer == stranger and isinstance(item, Deposed)]
    known = Epoch(5, world.of("a").peer.id)
    assert told == [Deposed(((partition, partition, known),))], "it must begin above the higher epoch"
    assert world.receivers("a") == [A]
    # Changes of a partition that comes from elsewhere are of no interest either.
    world.publisher.routes(stranger, routes_of([("a", C, CAME)]))
    assert world.receivers("a") == [A]
    world.pause(LAN.lease_s + LAN.entry_s)
    world.publisher.routes(stranger, lower)
    world.publisher.routes(stranger, routes_of([("a", C, CAME)]))
    world.publisher.renewed(stranger, Renewed(world.now, True, 0))
    assert world.receivers("a") == [B, C]


def test_known_routes_stay_beside_those_of_a_coordinator_that_met_no_copy() -> None:
    world = Publishing(3)
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    partition = partition_of("a")
    world.publisher.routes(world.of("a").peer, routes_of([("a", A, CAME)], [Begun(partition, partition, 5)]))
    stranger = peer_of(50)
    world.publisher.routes(stranger, routes_of([("a", B, CAME)], [Begun(partition, partition, 6, complete=False)]))
    world.publisher.renewed(stranger, Renewed(world.now, True, 0))
    assert world.receivers("a") == [A, B]
    world.publisher.routes(stranger, routes_of([("a", B, CAME)], [Begun(partition, partition, 6)]))
    assert world.receivers("a") == [B]


def test_nothing_is_trusted_of_a_coordinator_that_met_no_copy_when_the_lease_before_is_over() -> None:
    world = Publishing(3)
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    partition = partition_of("a")
    world.publisher.routes(world.of("a").peer, routes_of([("a", A, CAME)], [Begun(partition, partition, 5)]))
    stranger = peer_of(50)
    incomplete = routes_of([("a", B, CAME)], [Begun(partition, partition, 1, complete=False)])
    world.publisher.routes(stranger, incomplete)
    assert world.receivers("a") == [A], "the lease of the predecessor counts"
    world.pause(LAN.lease_s)
    world.publisher.routes(stranger, incomplete)
    world.publisher.renewed(stranger, Renewed(world.now, True, 0))
    assert world.receivers("a") == [], "the homes are being asked"
    world.publisher.routes(stranger, routes_of([("a", B, CAME)], [Begun(partition, partition, 1)]))
    assert B in world.receivers("a")


def test_a_successor_keeps_the_trust_of_its_predecessor_and_no_more_of_it() -> None:
    world = Publishing(3)
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    old = world.of("a")
    successor = FakeCoordinator(peer_of(70), silent=True)
    world.run(1.0)
    lease = world.publisher.trust.lease_of(partition_of("a"))
    assert lease is not None
    until = lease.until
    world.move({partition_of("a")}, successor)
    assert world.receivers("a") == [A]
    world.subscribe(("a", B, CAME))
    assert world.receivers("a") == [A, B]
    # The old coordinator goes on renewing its other partitions.
    world.run(until - world.now + 0.1)
    assert until < world.now < until + LAN.lease_s
    assert world.receivers("a") == []
    assert old.known
    successor.silent = False
    world.answer()
    assert [peer for peer, _ in world.links.sent[-2:]] == [A, B]


def test_a_coordinator_that_was_silent_for_a_lease_is_trusted_by_its_own_word_alone() -> None:
    """It may have been behind a cut, and its routes come late: another has granted filters since then."""
    world = Publishing(3)
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    partition = partition_of("a")
    other = next(each for each in world.coordinators.values() if needed("a").isdisjoint(each.acting))
    other.silent = True
    world.run(LAN.lease_s + 1.0)
    assert world.receivers("a") == [A]
    world.publisher.routes(other.peer, routes_of([("a", B, CAME)], [Begun(partition, partition, 5)]))
    assert world.receivers("a") == []
    world.publisher.renewed(other.peer, Renewed(world.now, True, 0))
    assert B in world.receivers("a")


def test_a_successor_without_a_copy_of_the_holders_is_asked() -> None:
    for count in (3, MANY):
        world = Publishing(count)
        world.subscribe(("a", A, CAME))
        world.receivers("a")
        old = world.of("a")
        old.silent = True
        successor = FakeCoordinator(peer_of(70))
        world.move(old.acting, successor, begins=False)
        world.answer()
        assert partition_of("a") in successor.holds
        world.subscribe(("a", B, CAME))
        assert world.receivers("a") == [A, B]
        world.run(3 * LAN.lease_s)
        assert world.receivers("a") == [A, B]


def test_ended_partitions_are_trusted_until_their_lease_is_over_and_asked_for() -> None:
    world = Publishing(3)
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    partition = partition_of("a")
    old, successor = world.of("a"), FakeCoordinator(peer_of(70), silent=True)
    world.move({partition}, successor, begins=False)
    world.publisher.routes(old.peer, routes_of([], ended=[(partition, partition)]))
    assert world.receivers("a") == [A]
    world.run(LAN.lease_s + 0.1)
    assert world.receivers("a") == []
    successor.silent = False
    world.answer()
    assert world.links.sent[-1][0] == A


def test_after_a_lost_stream_changes_are_still_applied_as_they_are_confirmed() -> None:
    """Requests are lost, not routes. If routes were, the answer to the next renewal says so."""
    world = Publishing(3)
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    coordinator = world.of("a")
    world.publisher.stream_lost(coordinator.peer)
    world.publisher.routes(coordinator.peer, routes_of([("a", B, CAME)]))
    assert world.receivers("a") == [A, B]
    coordinator.known, coordinator.term = False, coordinator.term + 1
    coordinator.holds.clear()
    world.filters[partition_of("a")]["a", B.id] = B
    world.run(LAN.lease_s / 3)
    assert world.receivers("a") == [A, B]
    assert coordinator.holds


def test_a_coordinator_that_does_not_know_this_holder_is_asked_again_for_everything() -> None:
    world = Publishing(MANY)
    world.subscribe(("a", A, CAME), ("b", A, CAME))
    world.receivers("a")
    coordinator = world.of("a")
    coordinator.known, coordinator.term = False, coordinator.term + 1
    coordinator.holds.clear()
    world.filters[partition_of("a")]["a", B.id] = B
    world.run(LAN.lease_s / 3)
    assert world.receivers("a") == [A, B]
    assert partition_of("a") in coordinator.holds


@pytest.mark.parametrize("forgotten_after_s", [0.0, LAN.lease_s + 0.5])
def test_a_coordinator_that_forgot_this_holder_and_gets_a_request_renews_nothing_old(forgotten_after_s: float) -> None:
    """It takes the sender of the request for a new holder, and knows it from then on."""
    world = Publishing(MANY)
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    coordinator = world.of("a")
    world.pause(forgotten_after_s)
    coordinator.known, coordinator.term = False, coordinator.term + 1
    coordinator.holds.clear()
    world.filters[partition_of("a")]["a", B.id] = B
    number = next(number for number in range(99_999) if world.of(f"n{number}") is coordinator)
    world.receivers(f"n{number}")
    world.answer()
    assert world.receivers("a") == [A, B]


def test_a_peer_that_is_no_coordinator_is_asked_again_after_a_while() -> None:
    world = Publishing(MANY)
    coordinator = world.of("a")
    coordinator.acting.discard(partition_of("a"))
    world.publish("a")
    world.answer()
    holds = len([item for item in coordinator.seen if isinstance(item, Hold)])
    assert holds <= 2
    world.run(LAN.slow_retry_s)
    assert 2 < len([item for item in coordinator.seen if isinstance(item, Hold)]) < 10
    coordinator.acting.add(partition_of("a"))
    world.run(LAN.slow_retry_s)
    assert world.reasons


def test_an_unknown_coordinator_is_asked_when_it_is_known() -> None:
    world = Publishing(MANY)
    coordinator = world.of("a")
    world.owners.of[partition_of("a")] = None
    world.publish("a")
    world.answer()
    assert world.reasons == []
    assert partition_of("a") in world.owners.asked
    world.owners.of[partition_of("a")] = coordinator.peer
    world.publisher.coordinators_changed()
    world.answer()
    assert world.reasons


def test_a_silent_coordinator_beyond_the_leaf_set_is_verified() -> None:
    world = Publishing(MANY)
    world.receivers("a")
    world.of("a").silent = True
    world.run(LAN.lease_s)
    assert set(world.owners.verified) <= held(world)
    assert world.owners.verified


def test_a_coordinator_that_answers_late_is_asked_for_a_lease_at_once() -> None:
    world = Publishing(3)
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    for coordinator in world.coordinators.values():
        coordinator.silent = True
    world.run(2.9 * LAN.lease_s)
    queued = [peer for peer, item in world.streams.items if isinstance(item, Renew)]
    assert len(queued) <= 5 * len(set(queued)), "a silent peer is not sent one renewal after the other"
    for coordinator in world.coordinators.values():
        coordinator.silent = False
    assert world.receivers("a") == [A]


def test_answers_that_take_most_of_a_lease_keep_the_trust() -> None:
    """A lease counts from its question. If no other were on its way, the trust would begin when it is nearly over."""
    world = Publishing(1)
    world.receivers("a")
    (coordinator,) = world.coordinators.values()
    coordinator.silent = True
    under_way: list[tuple[float, float]] = []
    trusted = rounds = 0
    for _ in range(400):
        world.run(0.05)
        for _, item in world.streams.items:
            assert isinstance(item, Renew)
            under_way.append((world.now + 0.6 * LAN.lease_s, item.asked_at))
        world.streams.items.clear()
        for at, asked_at in [one for one in under_way if one[0] <= world.now]:
            under_way.remove((at, asked_at))
            world.publisher.holdings.renewed(coordinator.peer, Renewed(asked_at, True, 0))
        if world.now > 2 * LAN.lease_s:
            rounds += 1
            trusted += world.publisher.trusted_until("a") > world.now
    assert trusted == rounds


def test_a_dead_coordinator_is_not_sent_renewals_for_ever() -> None:
    world = Publishing(3)
    world.receivers("a")
    old = world.of("a")
    del world.coordinators[old.peer.id]
    successor = FakeCoordinator(peer_of(70), acting=set(old.acting), epoch=2)
    world.coordinators[successor.peer.id] = successor
    world.owners.give(old.acting, successor.peer)
    world.publisher.coordinators_changed()
    for _ in range(12):
        world.run(1.0)
        world.receivers("a")
    count = len(world.streams.items)
    for _ in range(12):
        world.run(1.0)
        world.receivers("a")
    assert len(world.streams.items) == count
    assert old.peer not in [source.peer for source in world.publisher.holdings]


def test_elsewhere_of_a_stranger_changes_nothing() -> None:
    world = Publishing(3)
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    world.publisher.elsewhere(peer_of(99), Elsewhere(((0, PARTITIONS - 1),)))
    world.publisher.renewed(peer_of(99), Renewed(5.0, True, 0))
    assert world.receivers("a") == [A]


@pytest.mark.parametrize("count", [3, MANY])
@pytest.mark.parametrize("seed", range(6))
def test_no_message_misses_a_filter_of_which_the_coordinator_has_notified_its_holders(count: int, seed: int) -> None:
    """Coordinators move, fall silent, forget their holders and lose streams; filters come and go meanwhile."""
    chance = random.Random(f"{count} {seed}")
    world = Publishing(count)
    coordinators = list(world.coordinators.values())
    peers = [peer_of(number) for number in range(2, 8)]
    topics = [f"{a}/{b}" for a in "abcd" for b in "wxyz"]
    filters = [*topics, "#", "+/x", *[f"{a}/#" for a in "abcd"], *[f"{a}/+" for a in "abcd"]]
    sent = 0
    for _ in range(250):
        world.run(chance.choice([0.0, 0.05, 0.3, 1.0]))
        action = chance.randrange(12)
        coordinator = chance.choice(coordinators)
        if action < 5:
            name, home = chance.choice(filters), chance.choice(peers)
            world.subscribe((name, home, chance.choice([CAME, CAME, GONE])))
        elif action == 5:
            coordinator.silent = True
        elif action == 6:
            for other in coordinators:
                other.silent = False
        elif action == 7:
            moved = {partition for partition in coordinator.acting if chance.random() < 0.3}
            if moved:
                others = [other for other in coordinators if other is not coordinator]
                world.move(moved, chance.choice(others), begins=chance.random() < 0.7)
        elif action == 8 and not coordinator.silent:
            coordinator.known = False
            coordinator.holds.clear()
            world.pause(1.1 * LAN.lease_s)
        elif action == 9:
            world.run(chance.choice([5.0, 40.0, 90.0]))
        topic = chance.choice(topics)
        before = len(world.links.sent)
        expected = wanting(world, topic)
        trusted = all(partition in world.at(partition).holds for partition in needed(topic))
        world.publish(topic)
        receivers = {peer.id for peer, _ in world.links.sent[before:]}
        if trusted and len(world.links.sent) > before:
            assert receivers >= {peer.id for peer in expected}
            sent += 1
    for coordinator in coordinators:
        coordinator.silent = False
    world.run(5 * LAN.lease_s)
    for topic in topics:
        assert {peer.id for peer in world.receivers(topic)} == {peer.id for peer in wanting(world, topic)}
    assert world.reasons
    assert sent > 0


def wanting(world: Publishing, topic: str) -> set[Peer]:
    """The homes with a matching filter, by the coordinators' tables."""
    return {home for entries in world.filters.values() for (name, _), home in entries.items() if matches(name, topic)}


def test_a_coordinator_that_forgot_this_holder_and_begins_further_partitions_renews_nothing_old() -> None:
    """It knows this peer again as a holder of its predecessor, without a request."""
    world = Publishing(MANY)
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    coordinator = world.of("a")
    coordinator.term += 1
    coordinator.holds.clear()
    world.filters[partition_of("a")]["a", B.id] = B
    other = next(iter(coordinator.acting - needed("a")))
    world.publisher.routes(coordinator.peer, world.beginning(coordinator, {other}))
    world.publish("a")
    world.answer()
    assert world.receivers("a") == [A, B]
