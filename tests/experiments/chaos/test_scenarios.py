"""The scenarios over a run without peers: each injects its faults, notes them, and lets nothing run beyond its time."""

from __future__ import annotations

import signal
import time
from random import Random
from typing import Any

import pytest

from ringmq.experiments.chaos import disks
from ringmq.experiments.chaos.history import FaultKind
from ringmq.experiments.chaos.recorder import Recorder
from ringmq.experiments.chaos.run import ChaosRun
from ringmq.experiments.chaos.scenarios import SCENARIOS, SHADOWS
from ringmq.experiments.chaos.traffic import TrafficPlan

PEERS = 7
SECONDS = 200.0


class NoPeer:
    """Runs when it is meant to, and takes signals."""

    def __init__(self, site: NoSite, number: int) -> None:
        self.number = number
        self._site = site

    @property
    def alive(self) -> bool:
        return self.number in self._site.running

    def send(self, number: signal.Signals) -> None:
        (self._site.paused.add if number is signal.SIGSTOP else self._site.paused.discard)(self.number)


class NoSite:
    """The peers that run and that stand still."""

    clock = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.running = set(range(PEERS))
        self.paused: set[int] = set()
        self.least_running = PEERS
        self.peers = [NoPeer(self, number) for number in range(PEERS)]

    def kill(self, *numbers: int) -> None:
        assert self.running >= set(numbers), "a peer that is down is not killed again"
        self.running -= set(numbers)
        self.least_running = min(self.least_running, len(self.running))

    stop = kill

    def start(self, *numbers: int) -> None:
        self.running |= set(numbers)

    async def is_whole(self) -> bool:
        return len(self.running) == PEERS and not self.paused

    async def dial(self, number: int) -> Any:
        raise OSError("there is no peer")


class NoNetwork:
    """The pairs that are cut, and all pairs that ever were."""

    def __init__(self) -> None:
        self.blocked: set[tuple[int, int]] = set()
        self.ever: list[set[tuple[int, int]]] = []
        self.weather: list[Any] = []

    def block(self, pairs: Any) -> None:
        self.blocked = set(pairs)
        self.ever.append(self.blocked)

    def change(self, weather: Any) -> None:
        self.weather.append(weather)


class Hand:
    """A clock that waits set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class DryRun(ChaosRun):
    """A run whose time passes only while a scenario waits."""

    def __init__(self, seed: int) -> None:
        self.dry_site = NoSite()
        super().__init__(self.dry_site, TrafficPlan(), SCENARIOS["steady"].terms("lan"), SECONDS, Random(seed))  # type: ignore[arg-type]
        self.clock = Hand()
        self.recorder = Recorder(self.clock)
        self.dry_network = NoNetwork()
        self.network = self.dry_network  # type: ignore[assignment]
        self._end = SECONDS

    async def wait(self, least_s: float, most_s: float | None = None) -> None:
        self.clock.now += self.chance.uniform(least_s, least_s if most_s is None else most_s)


async def played(name: str, seed: int) -> DryRun:
    run = DryRun(seed)
    await SCENARIOS[name].play(run)
    return run


ON_PEERS = {
    "kill": (FaultKind.DOWN, 1, SHADOWS),
    "kill_one_at_a_time": (FaultKind.DOWN, 1, 1),
    "stop": (FaultKind.PAUSED, 1, SHADOWS),
    "power_cut": (FaultKind.POWER, PEERS, PEERS),
    "rolling_restart": (FaultKind.DOWN, 1, 1),
    "many_retained": (FaultKind.DOWN, 1, 1),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ON_PEERS)
async def test_faults_of_peers_are_noted_and_over_at_the_end(name: str, seed: int) -> None:
    kind, least, most = ON_PEERS[name]
    run = await played(name, seed)
    faults = run.recorder.history.faults
    assert len(faults) > 5
    assert {fault.kind for fault in faults} == {kind}
    assert {least, most} <= {len(fault.peers) for fault in faults} <= set(range(least, most + 1))
    assert all(fault.end is not None for fault in faults)
    assert run.dry_site.running == set(range(PEERS))
    assert run.dry_site.paused == set()
    assert run.clock.now < SECONDS + 60
    if kind is not FaultKind.PAUSED:
        assert run.dry_site.least_running == PEERS - most


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("name", "shortest_s", "longest_s"),
    [
        ("cuts", 1.0, 6.0),
        ("flapping", 0.2, 2.0),
        ("majority", 8.0, 25.0),
        ("three_way", 8.0, 25.0),
        ("one_way", 1.0, 6.0),
        ("one_pair", 10.0, 40.0),
    ],
)
async def test_cuts_have_their_lengths_and_are_healed(
    name: str, shortest_s: float, longest_s: float, seed: int
) -> None:
    run = await played(name, seed)
    faults = run.recorder.history.faults
    assert len(faults) > 3
    for fault in faults:
        assert fault.end is not None
        assert shortest_s - 1e-6 <= fault.end - fault.start <= longest_s + 1e-6
    assert run.dry_network.blocked == set()
    assert run.dry_site.running == set(range(PEERS))
    assert run.clock.now < SECONDS + 60


def parts_of(pairs: set[tuple[int, int]]) -> set[frozenset[int]]:
    """The peers that reach each other."""
    return {frozenset(other for other in range(PEERS) if (number, other) not in pairs) for number in range(PEERS)}


async def test_cuts_separate_the_parts_that_they_name() -> None:
    cuts = [pairs for pairs in (await played("majority", 1)).dry_network.ever if pairs]
    assert {tuple(sorted(map(len, parts_of(pairs)))) for pairs in cuts} == {(3, 4)}
    cuts = [pairs for pairs in (await played("three_way", 1)).dry_network.ever if pairs]
    assert {tuple(sorted(map(len, parts_of(pairs)))) for pairs in cuts} == {(2, 2, 3)}
    cuts = [pairs for pairs in (await played("one_pair", 1)).dry_network.ever if pairs]
    assert all(len(pairs) == 2 and {pair[::-1] for pair in pairs} == pairs for pairs in cuts)
    cuts = [pairs for pairs in (await played("one_way", 1)).dry_network.ever if pairs]
    assert all(len({source for source, _ in pairs}) == 1 for pairs in cuts)


async def test_the_weather_of_loss_is_noted_and_ends() -> None:
    run = await played("loss", 1)
    assert {fault.kind for fault in run.recorder.history.faults} == {FaultKind.WEATHER}
    assert all(fault.end is not None for fault in run.recorder.history.faults)
    assert run.dry_network.weather[-1].loss < 0.05 < run.dry_network.weather[-2].loss


async def test_a_ring_that_does_not_become_whole_is_an_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    run = DryRun(1)
    run.dry_site.running.discard(3)
    monkeypatch.setattr(NoSite, "statuses", _no_statuses, raising=False)
    await run.settle(within_s=0.0)
    (incident,) = run.recorder.history.incidents
    assert incident.promise == "whole"
    assert "no status from [3]" in incident.text


async def _no_statuses(site: NoSite, numbers: Any) -> dict[int, dict[str, Any]]:
    return {number: {"id": number} if number in site.running else {} for number in numbers}


@pytest.mark.parametrize("how", disks.DAMAGES)
def test_damages_change_a_file(how: str) -> None:
    content = bytes(10_000)
    damaged = disks.DAMAGES[how](content, Random(1))
    assert damaged != content
    assert len(damaged) <= len(content)


def test_a_clock_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "CLOCK_LIBRARIES", ())
    monkeypatch.delenv(disks.CLOCK_LIBRARY, raising=False)
    assert "libfaketime is not installed" in disks.lacking_clocks()
    monkeypatch.setenv(disks.CLOCK_LIBRARY, __file__)
    assert disks.lacking_clocks() == ""


def test_terms_follow_the_timing() -> None:
    lan, wan = (SCENARIOS["kill"].terms(timing) for timing in ("lan", "wan"))
    assert (lan.waited_s, lan.puback_s) == (12.0, 20.0)
    assert (wan.waited_s, wan.puback_s) == (48.0, 80.0)
