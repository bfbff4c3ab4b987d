"""After many deaths at once the peers become one ring again, and cores that fail are found."""

import pytest

from ringmq.experiments.scenarios.fail import detours, fail_at_once
from ringmq.experiments.simulator import filled
from ringmq.experiments.simulator.world import InvariantBrokenError
from ringmq.overlay.core.forwarding import Forwarding
from ringmq.overlay.core.liveness.failure_detector import FailureDetector
from ringmq.overlay.core.timing import LAN


@pytest.mark.parametrize(("nodes", "fraction"), [(60, 0.5), (200, 0.3)])
def test_remaining_peers_become_one_ring_and_lose_no_lookup(nodes: int, fraction: float) -> None:
    reported: list[float] = []
    figures = fail_at_once(nodes, 1, fraction, "lan", reported.append)
    assert figures.one_ring_after_s is not None
    assert LAN.fastest_verdict_s < figures.one_ring_after_s < 20.0
    assert figures.inexact_leaf_sets == 0
    lookups = figures.lookups
    assert lookups.issued > 5000
    assert lookups.lost == lookups.wrong == lookups.pending == 0
    assert lookups.delivered + lookups.orphaned == lookups.issued
    assert lookups.slowest_s < LAN.receipt_s * LAN.receipt_tries
    assert figures.messages_per_death > 0
    assert reported == sorted(reported)


def test_ring_without_deaths_stays_whole() -> None:
    figures = fail_at_once(20, 1, 0.0, "lan")
    assert figures.one_ring_after_s == 0.5, "it is checked every half second"
    assert figures.lookups.delivered == figures.lookups.issued
    assert figures.lookups.slowest_s < 0.1


def test_core_that_delivers_in_the_place_of_a_suspect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_hold", Forwarding._arrive)
    monkeypatch.setattr(FailureDetector, "heard", lambda self, peer: None)
    with pytest.raises(InvariantBrokenError):
        fail_at_once(60, 1, 0.3, "lan")


def test_core_that_detects_no_deaths_never_becomes_one_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.experiments.scenarios.fail.PATIENCE_S", 10.0)
    monkeypatch.setattr(FailureDetector, "_declare_dead", lambda self, suspicion: None)
    figures = fail_at_once(20, 1, 0.3, "lan")
    assert figures.one_ring_after_s is None
    assert figures.inexact_leaf_sets > 0


def test_detours_add_few_hops_and_end_at_the_owner() -> None:
    figures = detours(2000, 1, 0.1, 1500)
    assert figures.wrong == 0
    assert figures.lookups == 1500
    assert 2.0 < figures.mean_before < 3.0
    assert -0.03 < figures.growth < 0.08, "Pastry's single entries cost 8 %"
    assert figures.growth == pytest.approx(figures.mean_after / figures.mean_before - 1, abs=0.001)
    assert detours(500, 1, 0.0, 100).growth == 0.0


def test_detours_to_a_wrong_peer_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    next_hop = filled.next_hop
    monkeypatch.setattr(filled, "next_hop", lambda leaves, table, key, without: next_hop(leaves, table, key))
    assert detours(200, 1, 0.3, 200).wrong > 20
