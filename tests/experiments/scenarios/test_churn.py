"""Peers come and go: sessions have their distribution, and all invariants hold."""

from statistics import median

import pytest

from ringmq.experiments.scenarios.churn import Churn, churn
from ringmq.experiments.simulator.world import InvariantBrokenError
from ringmq.overlay.core.forwarding import Forwarding

MINUTES = 1 / 60


def test_churn_without_loss_has_no_lost_or_wrong_lookups() -> None:
    reported: list[float] = []
    figures = churn(60, 1, "lan", 4 * MINUTES, 0.0, 120.0, reported.append)
    assert figures.breaks == {}
    assert figures.crashes > 20
    assert figures.joins > 10
    assert 20 < figures.mean_live < 60
    lookups = figures.lookups
    assert lookups.issued > 50
    assert lookups.lost == lookups.wrong == lookups.pending == 0
    assert lookups.delivered + lookups.orphaned == lookups.issued
    assert figures.detection.deaths > 0.8 * figures.crashes
    assert figures.control_per_s == pytest.approx(sum(figures.control_by_kind.values()), abs=0.01)
    assert figures.control_by_kind["Heartbeat"] == pytest.approx(2.0, rel=0.05), "twice a second"
    assert not {"Lookup", "Receipt"} & set(figures.control_by_kind)
    assert reported == sorted(reported)


def test_churn_with_loss_counts_breaks_and_loses_no_lookups() -> None:
    figures = churn(40, 1, "lan", 3 * MINUTES, 0.05, 120.0)
    assert figures.burst_loss == 0.05
    assert figures.crashes > 0
    assert figures.lookups.lost == 0


def test_the_same_seed_gives_the_same_run() -> None:
    first, again, other_seed = (churn(20, seed, "lan", MINUTES, 0.0, 60.0) for seed in (1, 1, 2))
    assert (first.digest, first.events, first.lookups) == (again.digest, again.events, again.lookups)
    assert first.digest != other_seed.digest


def test_sessions_have_the_given_median_and_a_heavy_tail() -> None:
    scene = Churn(500, 1, "lan", 0.0, 100.0)
    sessions = sorted(moment for moment, _, _ in scene._due)
    assert median(sessions) == pytest.approx(100.0, rel=0.25)
    assert sum(sessions) / len(sessions) > 2.5 * median(sessions), "exponential ones would have 1.44"


def test_half_of_the_crashed_peers_come_back() -> None:
    scene = Churn(60, 1, "lan", 0.0, 60.0)
    before = set(scene.world.nodes)
    scene.run(180.0, lambda done: None)
    new = len(set(scene.world.nodes) - before)
    assert 0.3 < new / scene.joins < 0.7
    again = [node for node in scene.world.nodes.values() if node.peer.boot]
    assert again


def test_broken_core_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_advance", lambda self, route, avoided=(): self._arrive(route))
    with pytest.raises(InvariantBrokenError, match="wrong delivery"):
        churn(30, 1, "lan", MINUTES, 0.0, 60.0)
