"""The sweep `nodes`: its levels, and what the thesis says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.experiments.studies.harness.outcome import Outcome
from ringmq.experiments.studies.sweeps import nodes
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL
from tests.experiments.studies.making import request

SWEEP = nodes.SWEEP


def test_levels() -> None:
    """The clients stay where they are."""
    assert [(one.name, one.size.peers) for one in SWEEP.full] == [("20", 20), ("30", 30), ("40", 40), ("50", 50)]
    clients = {(one.size.publishers, one.size.subscribers, one.size.homes) for one in SWEEP.full}
    assert clients == {(FULL.publishers, 20, 20)}
    assert [one.size.peers for one in SWEEP.quick] == [8, 16]
    assert {(one.size.publishers, one.size.subscribers) for one in SWEEP.quick} == {(SMALL.publishers, 8)}


def test_what_the_thesis_says() -> None:
    assert [(one.approach.label, one.measure, one.of, one.percent) for one in SWEEP.claims] == [
        ("Direct", "latency", "maximum", 17),
        ("Direct", "latency", "deviation", 16),
        ("Direct", "bandwidth", "maximum", 44),
        ("Direct", "bandwidth", "deviation", 28),
    ]
    assert {one.source for one in SWEEP.claims} == {"§4.2.4"}


def test_it_is_conducted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = request(tmp_path)
    outcome = Outcome()
    monkeypatch.setattr(
        nodes, "conduct", lambda sweep, request: outcome if (sweep, request) == (SWEEP, asked) else None
    )
    assert nodes.run(asked) is outcome
