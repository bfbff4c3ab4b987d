"""The sweep `subscribers`: its levels and claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.experiments.studies.harness.outcome import Outcome
from ringmq.experiments.studies.sweeps import subscribers
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL
from tests.experiments.studies.making import request

SWEEP = subscribers.SWEEP


def test_levels_add_subscribers() -> None:
    assert [(level.name, level.size.subscribers) for level in SWEEP.full] == [
        ("25 %", 12),
        ("50 %", 25),
        ("75 %", 38),
        ("100 %", 50),
    ]
    assert SWEEP.full[-1].size == FULL
    assert [(level.name, level.size.subscribers) for level in SWEEP.quick] == [("50 %", 6), ("100 %", 12)]
    assert SWEEP.quick[-1].size == SMALL


def test_claims_are_those_of_the_thesis() -> None:
    assert [(claim.approach.label, claim.measure, claim.statistic, claim.percent) for claim in SWEEP.claims] == [
        ("Direct", "latency", "maximum", 14),
        ("Direct", "latency", "deviation", 11),
        ("Guided F=5", "bandwidth", "maximum", 40),
        ("Guided F=5", "bandwidth", "deviation", 31),
    ]
    assert {claim.source for claim in SWEEP.claims} == {"§4.2.1"}


def test_run_conducts_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = request(tmp_path)
    outcome = Outcome()
    monkeypatch.setattr(
        subscribers, "conduct", lambda sweep, request: outcome if (sweep, request) == (SWEEP, asked) else None
    )
    assert subscribers.run(asked) is outcome
