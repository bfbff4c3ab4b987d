"""The box plots: positions of the boxes, axes and legend."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from ringmq.experiments.studies.harness.approaches import ALL, DIRECT, SCRIBE
from ringmq.experiments.studies.harness.figures import Measure
from ringmq.experiments.studies.sweeps import boxplots
from ringmq.experiments.studies.sweeps.boxplots import Frame, box_statistics, colours, draw
from tests.experiments.studies.making import box as row

LEVELS = ("25 %", "50 %", "100 %")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The saved figures."""
    figures: list[Figure] = []
    save = Figure.savefig

    def remember(figure: Figure, *arguments: Any, **more: Any) -> None:
        figures.append(figure)
        save(figure, *arguments, **more)

    monkeypatch.setattr(boxplots.Figure, "savefig", remember)
    return figures


def test_plot_has_a_group_for_each_level_and_a_box_for_each_approach(tmp_path: Path, drawn: list[Figure]) -> None:
    boxes = {
        (level, approach.key): {Measure.LATENCY: row("r", "latency", 0.01 * (1 + index), 0.001)}
        for level in LEVELS
        for index, approach in enumerate(ALL)
        if (level, approach) != ("25 %", DIRECT)
    }
    draw(Frame("More", "topics", LEVELS, ALL), Measure.LATENCY, boxes, tmp_path / "a.png")
    ((figure,),) = (drawn,)
    (panel,) = figure.axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("topics", "average delivery latency of a node, ms")
    assert [label.get_text() for label in panel.get_xticklabels()] == list(LEVELS)
    assert len(panel.patches) == 3 * len(ALL) - 1
    middles = sorted(patch.get_path().get_extents().x0 for patch in panel.patches)
    assert all(before < after for before, after in pairwise(middles))
    last = [patch.get_path().get_extents() for patch in panel.patches][-len(ALL) :]
    assert (last[0].x0 + last[-1].x1) / 2 == pytest.approx(2)
    assert panel.get_ylim()[0] == 0
    assert panel.get_ylim()[1] > 60
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [approach.label for approach in ALL]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_boxes_do_not_overlap(tmp_path: Path, drawn: list[Figure]) -> None:
    boxes = {
        (level, approach.key): {Measure.BANDWIDTH: row("r", "bandwidth", 1e6, 1e5)}
        for level in LEVELS
        for approach in ALL
    }
    draw(Frame("More", "topics", LEVELS, ALL), Measure.BANDWIDTH, boxes, tmp_path / "a.png")
    extents = [patch.get_path().get_extents() for patch in drawn[0].axes[0].patches]
    spans = sorted((extent.x0, extent.x1) for extent in extents)
    assert all(before[1] < after[0] for before, after in pairwise(spans))


def test_box_statistics_are_scaled_cells_of_the_row() -> None:
    found = box_statistics(row("r", "latency", 0.02, 0.001, outliers=None), 1e3)
    assert found["fliers"] == []
    assert (found["med"], found["whishi"], found["whislo"]) == (10.0, 20.0, 5.0)


def test_each_approach_has_its_own_colour() -> None:
    assert len({*colours(ALL).values()}) == len(ALL)
    assert colours(ALL)[SCRIBE] == colours((SCRIBE,))[SCRIBE]
