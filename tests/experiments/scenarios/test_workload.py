"""Each lookup is counted, whatever its fate."""

from math import inf

import pytest

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.scenarios.workload import Lookups
from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.world import World
from ringmq.overlay.core.forwarding import Forwarding
from ringmq.overlay.core.timing import LAN

PATIENCE_S = LAN.receipt_s * LAN.receipt_tries


def some_lookups(world: World, count: int, rate_per_s: float = 100.0) -> Lookups:
    lookups = Lookups(world, rate_per_s)
    for _ in range(count):
        world.run(lookups.next_at)
        lookups.issue()
    lookups.next_at = inf
    return lookups


def ring(nodes: int = 40, weather: Weather | None = None) -> World:
    world = World(1, LAN, weather, strict=False)
    settled_ring(world, nodes)
    return world


def test_all_lookups_reach_their_owners_in_a_healthy_ring() -> None:
    world = ring()
    lookups = some_lookups(world, 300)
    assert world.now == pytest.approx(3.0, rel=0.2), "at the given rate"
    assert lookups.figures().pending == 300 - lookups.figures().delivered < 10
    world.run(world.now + PATIENCE_S)
    figures = lookups.figures()
    assert (figures.issued, figures.delivered) == (300, 300)
    assert figures.wrong == figures.twice == figures.orphaned == figures.lost == figures.pending == 0
    assert 0.5 < figures.mean_hops < 2.0
    assert 0.0 < figures.slowest_s < 0.1


def test_wrong_delivery_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_advance", lambda self, route, avoided=(): self._arrive(route))
    figures = some_lookups(ring(), 100).figures()
    assert figures.delivered == 100
    assert figures.wrong > 80
    assert figures.mean_hops == 0.0


def test_second_delivery_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    arrive = Forwarding._arrive

    def forgetful(self: Forwarding, route: object) -> None:
        self._seen.clear()
        arrive(self, route)  # type: ignore[arg-type]

    monkeypatch.setattr(Forwarding, "_arrive", forgetful)
    figures = some_lookups(ring(weather=Weather(duplication=1.0)), 20).figures()
    assert figures.delivered <= 20
    assert figures.twice > 0


def test_undelivered_lookup_is_pending_then_lost_or_orphaned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_advance", lambda self, route, avoided=(): None)
    world = ring()
    lookups = some_lookups(world, 50)
    assert lookups.figures().pending == 50
    world.run(world.now + PATIENCE_S)
    assert lookups.figures().lost == 50
    origins = {node.peer.id for node, _ in lookups._waiting.values()}
    first = world.nodes[min(origins)]
    own = sum(node is first for node, _ in lookups._waiting.values())
    world.pause(first)
    assert (lookups.figures().lost, lookups.figures().pending) == (50 - own, own)
    world.resume(first)
    world.crash(first)
    assert (lookups.figures().lost, lookups.figures().orphaned) == (50 - own, own)
    world.restart(first, next(node for node in world.live() if node is not first))
    assert lookups.figures().orphaned == own, "a new process does not know the lookups of the old one"


def test_no_lookups_without_a_rate_or_an_active_peer() -> None:
    assert Lookups(ring(), 0.0).next_at == inf
    lookups = Lookups(World(1, LAN), 10.0)
    lookups.issue()
    assert lookups.figures().issued == 0
    assert lookups.figures().mean_hops == 0.0
