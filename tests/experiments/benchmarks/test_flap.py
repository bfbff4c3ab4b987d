"""A small load on a small ring, and reports of the memory and files that it leaves behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ringmq.experiments.benchmarks import flap
from ringmq.experiments.benchmarks.flap import FlapMethod, Footprint, check
from ringmq.experiments.processes.peers import Ring

METHOD = FlapMethod(filters=3, retained=250, flaps_hz=50.0, flap_s=0.5, quiet_s=0.0, ratio=1000.0, seed=1)


def test_flap_measures_all_peers_without_faults(ring: Ring) -> None:
    reports: list[str] = []
    figures = asyncio.run(check(ring, METHOD, reports.append))
    assert not figures.faults, figures.faults.examples
    assert len(figures.subacks_s) == figures.flaps >= 20
    assert len(figures.footprints) == 4
    for footprint in figures.footprints:
        assert 0 < footprint.before_bytes <= footprint.peak_bytes
        assert footprint.files_peak >= footprint.files_before
        assert footprint.after_bytes
        assert footprint.used_before_bytes > 10_000_000
        assert footprint.used_after_bytes > 10_000_000
    assert reports[-2:] == ["clearing", "quiet"]


def test_kept_memory_is_a_fault(ring: Ring) -> None:
    figures = asyncio.run(check(ring, replace(METHOD, ratio=0.01, flap_s=0.1), lambda text: None))
    assert figures.faults.counts == {"missed": 0, "unanswered": 0, "kept": 4}


def test_kept_files_are_a_fault(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flap, "SPARE_FILES", -1000)
    figures = asyncio.run(check(ring, replace(METHOD, flap_s=0.1), lambda text: None))
    assert figures.faults.counts["kept"] == 4


def test_line_of_a_footprint() -> None:
    footprint = Footprint("peer 1", 40_000_000, 10, 80_000_000, 44_000_000, 30, 11, 200_000, 210_000)
    assert footprint.line().split() == ["peer", "1", "40.0", "80.0", "44.0", "1.10", "10", "30", "11", "1.05"]
