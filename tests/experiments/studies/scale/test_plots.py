"""The page has a panel for each question, and names for all that is in it."""

from __future__ import annotations

from pathlib import Path

from ringmq.experiments.studies.harness.approaches import ALL
from ringmq.experiments.studies.scale.figures import MEASURES, REAL, SIMULATED, STATISTICS, of_nodes
from ringmq.experiments.studies.scale.plots import draw, write

FOUND = [
    of_nodes(nodes, approach, source, [1.0, nodes / 2], [4e3, 4e3 * nodes], [5.0, 6.0 + place])
    for place, approach in enumerate(ALL)
    for nodes, source in ((12, REAL), (12, SIMULATED), (1000, SIMULATED))
]


def test_each_panel_is_labelled_and_has_all_approaches() -> None:
    figure = draw(FOUND)
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


def test_bytes_are_drawn_in_thousands() -> None:
    panel = draw(FOUND).get_axes()[len(MEASURES) + 1]
    assert "kB" in panel.get_ylabel()
    assert list(panel.get_lines()[0].get_ydata()) == [48.0, 4000.0]


def test_without_an_approach_it_is_not_in_the_legend() -> None:
    figure = draw([one for one in FOUND if one.approach == ALL[0]])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Scribe", "simulated", "real peers"]


def test_it_is_a_png(tmp_path: Path) -> None:
    file = write(FOUND, tmp_path)
    assert file == tmp_path / "scale.png"
    assert file.read_bytes().startswith(b"\x89PNG")
