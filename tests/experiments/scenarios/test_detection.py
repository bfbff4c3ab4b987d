"""How long deaths stay unknown, and whom nobody waits for."""

import pytest

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.scenarios.detection import Detection, percentile
from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.world import World
from ringmq.overlay.core.failure_detector import FailureDetector
from ringmq.overlay.core.timing import LAN


@pytest.mark.parametrize(
    ("values", "share", "value"),
    [([], 0.5, 0.0), ([3.0], 0.0, 3.0), ([3.0], 1.0, 3.0), ([4.0, 1.0, 3.0, 2.0], 0.5, 3.0), ([1.0, 2.0], 0.49, 1.0)],
)
def test_percentiles(values: list[float], share: float, value: float) -> None:
    assert percentile(values, share) == value


def ring(weather: Weather | None = None, nodes: int = 60) -> World:
    world = World(1, LAN, weather)
    settled_ring(world, nodes)
    world.run(1.0)
    return world


def test_a_death_is_found_within_the_time_of_its_steps() -> None:
    world = ring()
    detection = Detection(world)
    nodes = sorted(world.live(), key=lambda node: node.peer.id)
    for place in (10, 30, 50):
        detection.crashing(nodes[place])
        world.crash(nodes[place])
    assert detection.figures().deaths == 0
    world.run(20.0)
    figures = detection.figures()
    assert figures.deaths == 3
    soonest = LAN.silence_s - LAN.heartbeat_s + LAN.fastest_verdict_s
    latest = LAN.silence_s + LAN.heartbeat_s + LAN.fastest_verdict_s + 0.1
    assert soonest < figures.first_median_s <= figures.first_worst_s < latest
    assert figures.first_worst_s <= figures.all_p99_s < latest + LAN.heartbeat_s
    assert figures.all_median_s <= figures.all_p99_s


def test_resets_tell_at_once() -> None:
    world = ring(Weather(resets=True))
    detection = Detection(world)
    node = world.live()[20]
    detection.crashing(node)
    world.crash(node)
    world.run(20.0)
    assert 0.0 < detection.figures().first_worst_s <= 0.1 + LAN.verdict_s


def test_a_death_that_nobody_finds_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailureDetector, "_declare_dead", lambda self, suspicion: None)
    world = ring()
    detection = Detection(world)
    node = world.live()[20]
    detection.crashing(node)
    world.crash(node)
    world.run(20.0)
    assert detection.figures().deaths == 0
    assert detection.figures().first_worst_s == 0.0


def test_who_dies_or_comes_back_is_not_waited_for() -> None:
    world = ring(nodes=3)
    detection = Detection(world)
    one, other, third = world.live()
    detection.crashing(one)
    assert set(detection._watching) == {other.peer.id, third.peer.id}
    world.crash(one)
    detection.crashing(other)
    assert set(detection._watching) == {third.peer.id}
    detection.returned(one.peer.id)
    assert [death.point for death in detection._watching[third.peer.id]] == [other.peer.id]
    detection.returned(other.peer.id)
    assert detection._watching == {}
    assert detection.figures().deaths == 0
