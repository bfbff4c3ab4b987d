"""The halves of a split ring become rings, and one ring after the healing."""

import pytest

from ringmq.experiments.scenarios.split import LOOKUPS, split_and_heal
from ringmq.experiments.simulator.network import Network
from ringmq.overlay.core.liveness.failure_detector import FailureDetector
from ringmq.overlay.core.timing import LAN


@pytest.mark.parametrize(("nodes", "apart_s"), [(40, 30.0), (150, 20.0)])
def test_halves_become_rings_and_one_ring_after_the_healing(nodes: int, apart_s: float) -> None:
    reported: list[float] = []
    figures = split_and_heal(nodes, 1, "lan", apart_s, reported.append)
    assert figures.halves_after_s is not None
    assert LAN.fastest_verdict_s < figures.halves_after_s < apart_s
    assert figures.one_ring_after_s is not None
    assert figures.exact_after_s is not None
    assert 0.0 < figures.one_ring_after_s <= figures.exact_after_s < 60.0
    lookups = figures.lookups_after
    assert (lookups.issued, lookups.delivered) == (LOOKUPS, LOOKUPS)
    assert lookups.lost == lookups.wrong == lookups.twice == 0
    assert reported == sorted(reported)


def test_core_that_never_contacts_dead_peers_does_not_merge_the_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The halves merge since each peer contacts the peers again that it believes dead."""
    monkeypatch.setattr("ringmq.experiments.scenarios.split.PATIENCE_S", 15.0)
    monkeypatch.setattr(FailureDetector, "_retry_dead_peer", lambda self, now, _: None)
    monkeypatch.setattr("ringmq.overlay.core.membership.Membership._ask_for_a_row", lambda self, now, _: None)
    figures = split_and_heal(20, 1, "lan", 20.0)
    assert figures.halves_after_s is not None
    assert figures.one_ring_after_s is None
    assert figures.exact_after_s is None


def test_split_without_effect_has_no_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Network, "split", lambda self, sides: None)
    figures = split_and_heal(20, 1, "lan", 10.0)
    assert figures.halves_after_s is None
    assert figures.one_ring_after_s == 0.0
