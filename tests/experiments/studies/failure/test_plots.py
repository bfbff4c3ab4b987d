"""The plot of `failure`: its panels and labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from ringmq.experiments.studies.failure import plots
from ringmq.experiments.studies.failure.plots import draw
from ringmq.experiments.studies.failure.recovery import Recovery
from ringmq.experiments.studies.harness.approaches import DIRECT, SCRIBE, WITHOUT_BOUND
from tests.experiments.studies.making import plan, steady, trial

GOOD = Recovery(
    share=0.3, lowest=0.99, lowest_before=1.0, recovered_s=0.0, lost_live=0, lost_after=0, due_live=900, delivered=1500
)


def test_plot_has_labelled_panels_and_a_legend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    save = Figure.savefig

    def remember(figure: Figure, *arguments: Any, **more: Any) -> None:
        figures.append(figure)
        save(figure, *arguments, **more)

    monkeypatch.setattr(plots.Figure, "savefig", remember)
    recoveries = {SCRIBE: replace(GOOD, recovered_s=1.5), DIRECT: GOOD, WITHOUT_BOUND: replace(GOOD, recovered_s=None)}
    played = trial(plan(measured_s=4.0), steady(80, 0.05, [0], [1, 2]), 2.0)
    draw(dict.fromkeys(recoveries, played), recoveries, tmp_path / "failure.png")
    assert (tmp_path / "failure.png").read_bytes().startswith(b"\x89PNG")
    whole, near, recovered, delivered = figures[0].axes
    assert [len(panel.lines) for panel in (whole, near)] == [4, 4]
    assert whole.get_ylim()[0] == near.get_ylim()[0] == 0
    assert near.get_xlim() == (1.0, 6.0)
    for panel in (whole, near, recovered, delivered):
        assert panel.get_xlabel()
        assert panel.get_title()
    assert [text.get_text() for text in recovered.texts] == ["1.5", "0.0", "never"]
    assert [text.get_text() for text in delivered.texts] == ["1,500"] * 3
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["Scribe", "Direct", "Guided F=∞", "killed"]
