"""Rings to begin with are what they are said to be, or it is told."""

import pytest

from ringmq.experiments.scenarios.building import CONTACTS, join_somewhere, joined_ring, settled_ring, silent
from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.simulator.world import InvariantBrokenError, World
from ringmq.overlay.core.membership import Membership
from ringmq.overlay.core.timing import LAN


@pytest.mark.parametrize("nodes", [1, 2, 3, 50])
def test_a_ring_grown_by_joins_is_one(nodes: int) -> None:
    told: list[float] = []
    world = World(1, LAN)
    joined_ring(world, nodes, told.append)
    assert len(world.live()) == world.checks.active == nodes
    assert world.checks.whole()
    assert told == sorted(told)
    assert told[-1:] == ([] if nodes == 1 else [1.0])
    world.run(world.now + 6 * LAN.stabilise_s)
    assert world.checks.faults(world.half) == []


def test_a_grown_ring_may_grow_on() -> None:
    world = World(1, LAN)
    joined_ring(world, 5)
    joined_ring(world, 9)
    assert world.checks.active == 9


def test_a_ring_that_does_not_become_one_is_told_with_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "on_grant", lambda self, granter, grant: None)
    with pytest.raises(AssertionError, match="2 peers did not become one ring\nseed 4, at 60"):
        joined_ring(World(4, LAN), 5)


@pytest.mark.parametrize("nodes", [1, 2, 5, 33, 34, 120])
def test_a_settled_ring_is_exact_and_stays_so(nodes: int) -> None:
    told: list[float] = []
    world = World(1, LAN)
    settled_ring(world, nodes, told.append)
    assert told[0] == 0.0
    assert list(world.nodes) == FilledRing(nodes, 1).points
    assert world.checks.whole()
    assert world.checks.faults(world.half) == []
    versions = [node.ring.version for node in world.live()]
    world.run(2 * LAN.stabilise_s)
    assert [node.ring.version for node in world.live()] == versions, "nobody had anything to learn"
    assert world.sent["Join"] == world.sent["Dead"] == 0


def test_a_settled_ring_that_is_not_whole_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FilledRing, "leaves", lambda self, place: [])
    with pytest.raises(AssertionError, match="not whole"):
        settled_ring(World(1, LAN), 10)


def test_the_checks_look_again_once_it_is_settled() -> None:
    world = World(1, LAN)
    settled_ring(world, 10)
    with pytest.raises(InvariantBrokenError):
        world.checks.delivered(world.live()[0].ring, world.live()[5].peer.id)


def test_joining_somewhere_is_joining_through_active_peers() -> None:
    world = World(1, LAN)
    settled_ring(world, 30)
    node = world.add()
    join_somewhere(world, node)
    assert 1 <= len(node.ring._membership._contacts) <= CONTACTS
    assert all(world.nodes[point].ring.active for point in node.ring._membership._contacts)
    assert world.run(10.0, world.checks.whole, 0.1)
    silent(0.5)
