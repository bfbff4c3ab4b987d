"""Joins at once and in storms end in one ring, and cores that fail are found."""

import pytest

from ringmq.experiments.scenarios.join import join_at_once, join_storm
from ringmq.experiments.simulator.world import InvariantBrokenError
from ringmq.overlay.core.liveness.failure_detector import FailureDetector
from ringmq.overlay.core.membership import Membership
from ringmq.overlay.core.messages import Grant, Peer


@pytest.mark.parametrize("nodes", [2, 3, 100])
def test_peers_that_join_at_once_become_one_ring(nodes: int) -> None:
    reported: list[float] = []
    figures = join_at_once(nodes, 1, progress=reported.append)
    assert figures.one_ring_after_s is not None
    assert figures.one_ring_after_s < 10.0
    assert figures.faults == 0
    assert reported[-1] == 1.0
    assert sum(figures.messages.values()) == pytest.approx(figures.messages_per_join * (nodes - 1), abs=nodes)
    assert figures.messages["Grant"] >= figures.messages["Joined"] == nodes - 1


@pytest.mark.parametrize("seed", range(1, 9))
def test_storms_end_in_one_ring(seed: int) -> None:
    figures = join_storm(seed, joins=30)
    assert figures.one_ring
    assert figures.faults == 0
    assert figures.joins == 30
    assert figures.crashes >= 2
    assert figures.events > 1000


def test_the_same_seed_gives_the_same_storm() -> None:
    assert join_storm(3, joins=10) == join_storm(3, joins=10)
    assert join_storm(3, joins=10).digest != join_storm(4, joins=10).digest


def test_storms_have_crashes_restarts_and_pauses() -> None:
    storms = [join_storm(seed, joins=5) for seed in range(20, 32)]
    assert all(sum(getattr(storm, name) for storm in storms) for name in ("crashes", "restarts", "pauses"))


def test_core_that_is_active_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: Membership, granter: Peer, grant: Grant) -> None:
        self._state.leaves.fill((granter, *grant.leaves))
        self._changed(None, None)
        self._activate()

    monkeypatch.setattr(Membership, "on_grant", at_once)
    with pytest.raises(InvariantBrokenError) as caught:
        join_storm(1, joins=30)
    assert caught.value.__notes__[0].startswith("seed 1, at ")
    with pytest.raises(InvariantBrokenError):
        join_at_once(30, 1)


def test_core_that_detects_no_deaths_ends_without_one_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailureDetector, "_declare_dead", lambda self, suspicion: None)
    figures = join_storm(2, joins=5)
    assert not figures.one_ring
    assert figures.faults > 0


def test_core_that_ignores_grants_ends_without_one_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "on_grant", lambda self, granter, grant: None)
    figures = join_at_once(5, 1)
    assert figures.one_ring_after_s is None
    assert figures.faults == 4 + 5, "four are not active, and no leaf set is right"
