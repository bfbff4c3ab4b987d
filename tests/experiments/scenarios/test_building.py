"""Rings for the start of a scenario are exact, or an error is raised."""

import pytest

from ringmq.experiments.scenarios.building import CONTACTS, join_somewhere, joined_ring, settled_ring, silent
from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.simulator.world import InvariantBrokenError, World
from ringmq.overlay.core.membership import Membership
from ringmq.overlay.core.timing import LAN


@pytest.mark.parametrize("nodes", [1, 2, 3, 50])
def test_ring_grown_by_joins_becomes_exact(nodes: int) -> None:
    reported: list[float] = []
    world = World(1, LAN)
    joined_ring(world, nodes, reported.append)
    assert len(world.live()) == world.checks.active == nodes
    assert world.checks.whole()
    assert reported == sorted(reported)
    assert reported[-1:] == ([] if nodes == 1 else [1.0])
    world.run(world.now + 6 * LAN.stabilise_s)
    assert world.checks.faults(world.half) == []


def test_grown_ring_can_grow_further() -> None:
    world = World(1, LAN)
    joined_ring(world, 5)
    joined_ring(world, 9)
    assert world.checks.active == 9


def test_peers_that_do_not_become_one_ring_are_an_error_with_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "on_grant", lambda self, granter, grant: None)
    with pytest.raises(AssertionError, match="2 peers did not become one ring\nseed 4, at 60"):
        joined_ring(World(4, LAN), 5)


@pytest.mark.parametrize("nodes", [1, 2, 5, 33, 34, 120])
def test_settled_ring_is_exact_and_stays_exact(nodes: int) -> None:
    reported: list[float] = []
    world = World(1, LAN)
    settled_ring(world, nodes, reported.append)
    assert reported[0] == 0.0
    assert list(world.nodes) == FilledRing(nodes, 1).ids
    assert world.checks.whole()
    assert world.checks.faults(world.half) == []
    versions = [node.ring.version for node in world.live()]
    world.run(2 * LAN.stabilise_s)
    assert [node.ring.version for node in world.live()] == versions, "no peer had to learn anything"
    assert world.sent["Join"] == world.sent["Dead"] == 0


def test_settled_ring_that_is_not_whole_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FilledRing, "leaves", lambda self, position: [])
    with pytest.raises(AssertionError, match="not whole"):
        settled_ring(World(1, LAN), 10)


def test_checks_resume_once_the_ring_is_settled() -> None:
    world = World(1, LAN)
    settled_ring(world, 10)
    with pytest.raises(InvariantBrokenError):
        world.checks.delivered(world.live()[0].ring, world.live()[5].peer.id)


def test_join_somewhere_uses_active_contacts() -> None:
    world = World(1, LAN)
    settled_ring(world, 30)
    node = world.add()
    join_somewhere(world, node)
    assert 1 <= len(node.ring._membership._contacts) <= CONTACTS
    assert all(world.nodes[contact].ring.active for contact in node.ring._membership._contacts)
    assert world.run(10.0, world.checks.whole, 0.1)
    silent(0.5)
