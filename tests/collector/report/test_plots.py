"""The plots: their content and axes, also for empty tables."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from ringmq.collector.errors import CollectorError
from ringmq.collector.jobs.tables.columns import HEADS, PERCENTILES
from ringmq.collector.report.plots import MAX_SERIES, MAX_TOPICS, PLOTS, write
from ringmq.collector.report.read_tables import Row, Tables

EMPTY: Tables = {name: [] for name in HEADS}


def box(run: str, dispatching: str, measure: str = "latency", outliers: tuple[float, ...] = ()) -> Row:
    numbers = ("minimum", "low_whisker", "quartile_1", "median", "quartile_3", "high_whisker", "maximum")
    values = {name: index / 1000 for index, name in enumerate(numbers)}
    members = {"run": run, "dispatching": dispatching, "measure": measure, "mean": 0.004}
    return {**members, **values, "outliers": list(outliers)}


def latency(by: str, index: int, run: str = "r", **members: object) -> Row:
    percentiles = {name: index + number / 1000 for number, name in enumerate(PERCENTILES)}
    return {"run": run, "dispatching": "direct", "by": by, "count": index, **percentiles, **members}


FULL: Tables = {
    "boxes": [
        box("a", "direct", outliers=(0.01, 0.02)),
        box("a", "guided 3"),
        box("b", "direct"),
        box("a", "direct", "bandwidth"),
    ],
    "rates": [
        {"run": "a", "dispatching": "direct", "time": time, "width": 1.0, "delivered": 5 * time, "delivery_rate": 5.0}
        for time in range(4)
    ],
    "latencies": [
        latency("all", 1),
        *[latency("hops", 1, hops=hops) for hops in range(3)],
        *[latency("topic", index, topic=f"t{index}" if index else "") for index in range(40)],
    ],
    "stress": [
        {"run": "a", "dispatching": "direct", "node_stress_mean": 1.5, "node_stress_max": 3, "busiest_peer": 0.25},
    ],
    "per_peer": [
        {"run": "a", "row": "peer", "dispatching": "direct", "in_byte_speed": 1e6, "out_byte_speed": speed}
        for speed in (0.0, 2e6, 1e6)
    ]
    + [{"run": "a", "row": "peer", "avg_latency": 0.003}, {"run": "a", "row": "total", "in_byte_speed": 9e9}],
}


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for panel in figure.axes for text in panel.texts]


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.parametrize("tables", [EMPTY, {}], ids=["empty", "missing"])
def test_empty_tables_are_marked_as_empty(name: str, tables: Tables) -> None:
    figure = PLOTS[name](tables)
    assert [text for text in texts(figure) if text.endswith("were recorded")] == texts(figure)
    assert len(texts(figure)) == len(figure.axes)


@pytest.mark.parametrize("name", PLOTS)
def test_panels_have_titles_labels_and_legends(name: str) -> None:
    figure = PLOTS[name](FULL)
    assert figure.get_suptitle()
    assert texts(figure) == []
    for panel in figure.axes:
        assert panel.get_ylabel() or panel.get_xlabel()
        assert panel.get_legend() is not None


def test_each_run_and_dispatching_has_a_box() -> None:
    (panel,) = PLOTS["boxes_latency"](FULL).axes
    assert len(panel.patches) == 3
    assert [label.get_text() for label in panel.get_xticklabels()] == ["a", "b"]
    legend = panel.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["direct", "guided 3"]
    fliers = [line for line in panel.lines if line.get_marker() == "." and len(line.get_xdata())]  # type: ignore[arg-type]
    assert [list(line.get_ydata()) for line in fliers] == [[10, 20]]  # type: ignore[arg-type]
    assert panel.get_ylabel() == "ms"


def test_total_starts_at_zero() -> None:
    total, rate = PLOTS["rates"](FULL).axes
    assert list(total.lines[0].get_ydata()) == [0, 0, 5, 10, 15]  # type: ignore[arg-type]
    assert list(total.lines[0].get_xdata()) == [0, 1, 2, 3, 4]  # type: ignore[arg-type]
    assert list(rate.lines[0].get_ydata()) == [5] * 5  # type: ignore[arg-type]


def test_topics_with_the_most_messages_are_drawn() -> None:
    (panel,) = PLOTS["latencies_by_topic"](FULL).axes
    labels = [label.get_text() for label in panel.get_yticklabels()]
    assert labels[-1] == "t39"
    assert len(labels) == MAX_TOPICS


def test_peers_are_sorted_by_load() -> None:
    bandwidth, average = PLOTS["load"](FULL).axes
    assert list(bandwidth.lines[0].get_ydata()) == [24, 16, 8]  # type: ignore[arg-type]
    assert list(average.lines[0].get_ydata()) == [3]  # type: ignore[arg-type]


def test_omitted_series_are_counted_in_the_legend() -> None:
    many = {"latencies": [latency("all", 1, run=f"run-{number}") for number in range(MAX_SERIES + 7)]}
    panel = PLOTS["latencies"](many).axes[0]
    assert len(panel.lines) == MAX_SERIES
    legend = panel.get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == "and 7 more, not drawn"


def test_run_with_a_leading_underscore_is_in_the_legend() -> None:
    members = {"dispatching": "direct", "time": 0.0, "width": 1.0, "delivered": 5, "delivery_rate": 5.0}
    for panel in PLOTS["rates"]({"rates": [{"run": "_a", **members}, {"run": "b", **members}]}).axes:
        legend = panel.get_legend()
        assert legend is not None
        assert [text.get_text() for text in legend.get_texts()] == ["_a direct", "b direct"]


@pytest.mark.parametrize("name", ["$HOME/$x", r"a$\frac$b", "$", "_a", "主题", "\N{ROCKET}", "long " * 9])
def test_names_are_drawn_literally_and_without_warnings(tmp_path: Path, name: str) -> None:
    tables = {
        table: [
            {**row, **{member: name for member in ("run", "dispatching", "topic") if member in row}} for row in rows
        ]
        for table, rows in FULL.items()
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(write(tables, tmp_path)) == len(PLOTS)
    assert caught == []


def test_each_plot_is_a_png_file(tmp_path: Path) -> None:
    files = write(FULL, tmp_path / "a" / "b")
    assert [file.stem for file in files] == list(PLOTS)
    for file in files:
        assert file.read_bytes().startswith(b"\x89PNG")


def test_unwritable_folder_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CollectorError, match=r"--out: cannot write to .*/file: File exists"):
        write(FULL, tmp_path / "file")
