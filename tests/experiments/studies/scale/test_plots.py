"""The page has a panel for each measure and statistic, and a legend for all lines."""

from __future__ import annotations

from pathlib import Path

from ringmq.experiments.studies.harness.approaches import ALL
from ringmq.experiments.studies.scale.figures import MEASURES, REAL, SIMULATED, STATISTICS, of_nodes
from ringmq.experiments.studies.scale.plots import draw, write

RINGS = [
    of_nodes(nodes, approach, source, [1.0, nodes / 2], [4e3, 4e3 * nodes], [5.0, 6.0 + index])
    for index, approach in enumerate(ALL)
    for nodes, source in ((12, REAL), (12, SIMULATED), (1000, SIMULATED))
]


def test_each_panel_is_labelled_and_has_all_approaches() -> None:
    figure = draw(RINGS)
    panels = figure.get_axes()
    assert len(panels) == len(MEASURES) * len(STATISTICS)
    for panel in panels:
        assert panel.get_title()
        assert panel.get_xlabel() == "nodes"
        assert panel.get_ylabel()
        assert len(panel.get_lines()) == 2 * len(ALL)
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [*(approach.label for approach in ALL), "simulated", "real peers"]


def test_bytes_are_drawn_in_kilobytes() -> None:
    panel = draw(RINGS).get_axes()[len(MEASURES) + 1]
    assert "kB" in panel.get_ylabel()
    assert list(panel.get_lines()[0].get_ydata()) == [48.0, 4000.0]


def test_legend_has_only_the_drawn_approaches() -> None:
    figure = draw([ring for ring in RINGS if ring.approach == ALL[0]])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Scribe", "simulated", "real peers"]


def test_plot_is_written_as_png(tmp_path: Path) -> None:
    file = write(RINGS, tmp_path)
    assert file == tmp_path / "scale.png"
    assert file.read_bytes().startswith(b"\x89PNG")
