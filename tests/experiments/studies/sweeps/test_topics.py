"""The sweep `topics`: its levels and claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.experiments.studies.harness.outcome import Outcome
from ringmq.experiments.studies.sweeps import topics
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL
from tests.experiments.studies.making import request

SWEEP = topics.SWEEP


def test_levels_add_topics() -> None:
    assert [(level.name, level.size.topics) for level in SWEEP.full] == [("1", 1), ("3", 3), ("5", 5), ("7", 7)]
    assert SWEEP.full[-1].size == FULL
    assert [level.size.topics for level in SWEEP.quick] == [1, 2]
    assert {level.size.peers for level in SWEEP.quick} == {SMALL.peers}


def test_claims_are_those_of_the_thesis() -> None:
    assert [(claim.approach.label, claim.measure, claim.statistic, claim.percent) for claim in SWEEP.claims] == [
        ("Direct", "latency", "maximum", 7),
        ("Direct", "latency", "deviation", 26),
        ("Guided F=5", "bandwidth", "maximum", 75),
        ("Guided F=5", "bandwidth", "deviation", 89),
    ]
    assert {claim.source for claim in SWEEP.claims} == {"§4.2.3"}


def test_run_conducts_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = request(tmp_path)
    outcome = Outcome()
    monkeypatch.setattr(
        topics, "conduct", lambda sweep, request: outcome if (sweep, request) == (SWEEP, asked) else None
    )
    assert topics.run(asked) is outcome
