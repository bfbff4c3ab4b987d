"""The sweep `nodes`: its levels and claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.experiments.studies.harness.outcome import Outcome
from ringmq.experiments.studies.sweeps import nodes
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL
from tests.experiments.studies.making import request

SWEEP = nodes.SWEEP


def test_levels_add_nodes_and_keep_the_clients() -> None:
    levels = [(level.name, level.size.peers) for level in SWEEP.full]
    assert levels == [("20", 20), ("30", 30), ("40", 40), ("50", 50)]
    clients = {(level.size.publishers, level.size.subscribers, level.size.homes) for level in SWEEP.full}
    assert clients == {(FULL.publishers, 20, 20)}
    assert [level.size.peers for level in SWEEP.quick] == [8, 16]
    assert {(level.size.publishers, level.size.subscribers) for level in SWEEP.quick} == {(SMALL.publishers, 8)}


def test_claims_are_those_of_the_thesis() -> None:
    assert [(claim.approach.label, claim.measure, claim.statistic, claim.percent) for claim in SWEEP.claims] == [
        ("Direct", "latency", "maximum", 17),
        ("Direct", "latency", "deviation", 16),
        ("Direct", "bandwidth", "maximum", 44),
        ("Direct", "bandwidth", "deviation", 28),
    ]
    assert {claim.source for claim in SWEEP.claims} == {"§4.2.4"}


def test_run_conducts_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = request(tmp_path)
    outcome = Outcome()
    monkeypatch.setattr(
        nodes, "conduct", lambda sweep, request: outcome if (sweep, request) == (SWEEP, asked) else None
    )
    assert nodes.run(asked) is outcome
