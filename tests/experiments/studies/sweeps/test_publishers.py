"""The sweep `publishers`: its levels and claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.experiments.studies.harness.outcome import Outcome
from ringmq.experiments.studies.sweeps import publishers
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL
from tests.experiments.studies.making import request

SWEEP = publishers.SWEEP


def test_levels_add_publishers() -> None:
    assert [(level.name, level.size.publishers) for level in SWEEP.full] == [
        ("2 %", 1),
        ("10 %", 5),
        ("20 %", 10),
        ("28 %", 14),
    ]
    assert SWEEP.full[-1].size == FULL
    assert [level.size.publishers for level in SWEEP.quick] == [1, 4]
    assert SWEEP.quick[-1].size == SMALL


def test_claims_are_those_of_the_thesis() -> None:
    assert [(claim.approach.label, claim.measure, claim.statistic, claim.percent) for claim in SWEEP.claims] == [
        ("Guided F=5", "bandwidth", "maximum", 45),
        ("Guided F=5", "bandwidth", "deviation", 64),
    ]
    assert {claim.source for claim in SWEEP.claims} == {"§4.2.2"}


def test_run_conducts_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = request(tmp_path)
    outcome = Outcome()
    monkeypatch.setattr(
        publishers, "conduct", lambda sweep, request: outcome if (sweep, request) == (SWEEP, asked) else None
    )
    assert publishers.run(asked) is outcome
