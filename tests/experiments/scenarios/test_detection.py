"""Time to detect deaths, and deaths that are no longer watched."""

import pytest

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.scenarios.detection import Detection, percentile
from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.world import World
from ringmq.overlay.core.liveness.failure_detector import FailureDetector
from ringmq.overlay.core.timing import LAN


@pytest.mark.parametrize(
    ("values", "share", "value"),
    [([], 0.5, 0.0), ([3.0], 0.0, 3.0), ([3.0], 1.0, 3.0), ([4.0, 1.0, 3.0, 2.0], 0.5, 3.0), ([1.0, 2.0], 0.49, 1.0)],
)
def test_percentile_of_values(values: list[float], share: float, value: float) -> None:
    assert percentile(values, share) == value


def ring(weather: Weather | None = None, nodes: int = 60) -> World:
    world = World(1, LAN, weather)
    settled_ring(world, nodes)
    world.run(1.0)
    return world


def test_death_is_detected_within_its_timeouts() -> None:
    world = ring()
    detection = Detection(world)
    nodes = sorted(world.live(), key=lambda node: node.peer.id)
    for victim in (nodes[10], nodes[30], nodes[50]):
        detection.crashing(victim)
        world.crash(victim)
    assert detection.figures().deaths == 0
    world.run(20.0)
    figures = detection.figures()
    assert figures.deaths == 3
    soonest = LAN.silence_s - LAN.heartbeat_s + LAN.fastest_verdict_s
    latest = LAN.silence_s + LAN.heartbeat_s + LAN.fastest_verdict_s + 0.1
    assert soonest < figures.first_median_s <= figures.first_worst_s < latest
    assert figures.first_worst_s <= figures.all_p99_s < latest + LAN.heartbeat_s
    assert figures.all_median_s <= figures.all_p99_s


def test_death_with_resets_is_detected_at_once() -> None:
    world = ring(Weather(resets=True))
    detection = Detection(world)
    node = world.live()[20]
    detection.crashing(node)
    world.crash(node)
    world.run(20.0)
    assert 0.0 < detection.figures().first_worst_s <= 0.1 + LAN.verdict_s


def test_undetected_death_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailureDetector, "_declare_dead", lambda self, suspicion: None)
    world = ring()
    detection = Detection(world)
    node = world.live()[20]
    detection.crashing(node)
    world.crash(node)
    world.run(20.0)
    assert detection.figures().deaths == 0
    assert detection.figures().first_worst_s == 0.0


def test_dead_watchers_and_returned_peers_are_not_watched() -> None:
    world = ring(nodes=3)
    detection = Detection(world)
    first, second, third = world.live()
    detection.crashing(first)
    assert set(detection._watching) == {second.peer.id, third.peer.id}
    world.crash(first)
    detection.crashing(second)
    assert set(detection._watching) == {third.peer.id}
    detection.returned(first.peer.id)
    assert [death.peer_id for death in detection._watching[third.peer.id]] == [second.peer.id]
    detection.returned(second.peer.id)
    assert detection._watching == {}
    assert detection.figures().deaths == 0
