"""A small load on a small ring, and what is told of what it leaves behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ringmq.experiments.benchmarks import flap
from ringmq.experiments.benchmarks.flap import Keep, Method, check
from ringmq.experiments.processes.peers import Ring

METHOD = Method(filters=3, retained=250, flaps_hz=50.0, flap_s=0.5, quiet_s=0.0, ratio=1000.0, seed=1)


def test_clients_come_and_go(ring: Ring) -> None:
    said: list[str] = []
    figures = asyncio.run(check(ring, METHOD, said.append))
    assert not figures.faults, figures.faults.examples
    assert len(figures.subacks_s) == figures.flaps >= 20
    assert len(figures.keeps) == 4
    for keep in figures.keeps:
        assert 0 < keep.before_bytes <= keep.peak_bytes
        assert keep.files_peak >= keep.files_before
        assert keep.after_bytes
        assert keep.used_before_bytes > 10_000_000
        assert keep.used_after_bytes > 10_000_000
    assert said[-2:] == ["clearing", "quiet"]


def test_what_is_kept_is_told(ring: Ring) -> None:
    figures = asyncio.run(check(ring, replace(METHOD, ratio=0.01, flap_s=0.1), lambda text: None))
    assert figures.faults.counts == {"missed": 0, "unanswered": 0, "kept": 4}


def test_files_that_are_kept_are_told(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flap, "SPARE_FILES", -1000)
    figures = asyncio.run(check(ring, replace(METHOD, flap_s=0.1), lambda text: None))
    assert figures.faults.counts["kept"] == 4


def test_a_line_of_figures() -> None:
    keep = Keep("peer 1", 40_000_000, 10, 80_000_000, 44_000_000, 30, 11, 200_000, 210_000)
    assert keep.line().split() == ["peer", "1", "40.0", "80.0", "44.0", "1.10", "10", "30", "11", "1.05"]
