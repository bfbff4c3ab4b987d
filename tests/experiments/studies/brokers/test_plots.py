"""The plot has all sides and patterns, and labelled axes."""

from __future__ import annotations

import itertools
from pathlib import Path

from ringmq.experiments.benchmarks.comparison import Result
from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.studies.brokers.plots import NAMES, draw, write


def result(egress_hz: float, *, late: bool = True, lower_bound: bool = False) -> Result:
    figures = Figures(1.0, 1.0, egress_hz, 10, 0.0, (0.001, 0.002, 0.009), 0.5, 0.4, 0.0, 0.0, 0.0)
    return Result([figures], lower_bound, [figures] if late else [])


FOUND = {
    "A": {"ringmq": result(900e3, lower_bound=True), "mosquitto": result(400e3)},
    "B": {"ringmq": result(300e3), "bridged": result(100e3, late=False), "mosquitto": Result()},
}


def test_each_panel_is_labelled() -> None:
    figure = draw(FOUND)
    panels = figure.get_axes()
    assert len(panels) == 3
    for panel in panels:
        assert panel.get_title()
        assert panel.get_xlabel() == "pattern"
        assert [text.get_text() for text in panel.get_xticklabels()] == ["A", "B"]
    assert [panel.get_ylabel() for panel in panels] == ["deliveries/s", "latency, ms", "CPU s per million deliveries"]
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [NAMES[side] for side in ("ringmq", "bridged", "mosquitto")]


def test_bars_of_a_pattern_stand_side_by_side() -> None:
    limits = draw(FOUND).get_axes()[0]
    bars = sorted((bar.get_x(), bar.get_width(), bar.get_height()) for bar in limits.patches)  # type: ignore[attr-defined]
    assert len(bars) == 5
    assert [height for _, _, height in bars if height == height] == [900e3, 400e3, 300e3, 100e3]
    for (x, width, _), (after, _, _) in itertools.pairwise(bars):
        assert x + width <= after + 1e-9


def test_plot_is_written_as_png(tmp_path: Path) -> None:
    assert write(FOUND, tmp_path).read_bytes().startswith(b"\x89PNG")
