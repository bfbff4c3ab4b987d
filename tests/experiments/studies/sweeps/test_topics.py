"""The sweep `topics`: its levels, and what the thesis says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.experiments.studies.harness.outcome import Outcome
from ringmq.experiments.studies.sweeps import topics
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL
from tests.experiments.studies.making import request

SWEEP = topics.SWEEP


def test_levels() -> None:
    assert [(one.name, one.size.topics) for one in SWEEP.full] == [("1", 1), ("3", 3), ("5", 5), ("7", 7)]
    assert SWEEP.full[-1].size == FULL
    assert [one.size.topics for one in SWEEP.quick] == [1, 2]
    assert {one.size.peers for one in SWEEP.quick} == {SMALL.peers}


def test_what_the_thesis_says() -> None:
    assert [(one.approach.label, one.measure, one.of, one.percent) for one in SWEEP.claims] == [
        ("Direct", "latency", "maximum", 7),
        ("Direct", "latency", "deviation", 26),
        ("Guided F=5", "bandwidth", "maximum", 75),
        ("Guided F=5", "bandwidth", "deviation", 89),
    ]
    assert {one.source for one in SWEEP.claims} == {"§4.2.3"}


def test_it_is_conducted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = request(tmp_path)
    outcome = Outcome()
    monkeypatch.setattr(
        topics, "conduct", lambda sweep, request: outcome if (sweep, request) == (SWEEP, asked) else None
    )
    assert topics.run(asked) is outcome
