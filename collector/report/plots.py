"""The plots of the tables. Rows go in, figures come out; `write` makes PNG files of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ringmq.collector.errors import CollectorError
from ringmq.collector.jobs.tables import columns
from ringmq.collector.jobs.tables.columns import PERCENTILES
from ringmq.collector.report.format import safe_text
from ringmq.collector.report.read_tables import Row, Tables

SIZE_INCHES: Final = (11.0, 5.5)
DOTS_PER_INCH: Final = 120
MAX_SERIES: Final = 20
"""The most series of one plot. More could not be distinguished; the tables have all."""
MAX_TOPICS: Final = 15
_COLOURS: Final[list[tuple[float, float, float, float]]] = [
    colormaps["tab20"](index) for index in (*range(0, 20, 2), *range(1, 20, 2))
]
"""The strong colours first, then the pale ones."""

Key = tuple[str, str]
"""A run and a dispatching."""


def write(tables: Tables, folder: Path) -> list[Path]:
    """Draw all plots into a folder, created if missing. Raises CollectorError if a file cannot be written."""
    files = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw in PLOTS.items():
            file = folder / f"{name}.png"
            with _literal_text():
                draw(tables).savefig(file, dpi=DOTS_PER_INCH)
            files.append(file)
    except OSError as error:
        raise CollectorError(f"--out: cannot write to {folder}: {error.strerror or error}") from error
    return files


@contextmanager
def _literal_text() -> Iterator[None]:
    """Texts are drawn as they are, and without warnings."""
    # A topic such as "$x" is no formula. Warnings of glyphs that the font does not have are of no use to users.
    with rc_context({"text.parse_math": False, "text.usetex": False}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _panels(title: str, *names: tuple[str, str, str]) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each element of `names`: its title and the labels of its axes."""
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    figure.suptitle(title)
    panels = list(figure.subplots(1, len(names), squeeze=False)[0])
    for panel, (name, x_label, y_label) in zip(panels, names, strict=True):
        panel.set(title=name, xlabel=x_label, ylabel=y_label)
        panel.grid(visible=True, axis="y", alpha=0.3)
    return figure, panels


def _mark_empty(panel: Axes, kind: str) -> None:
    panel.text(0.5, 0.5, f"no {kind} were recorded", ha="center", va="center", transform=panel.transAxes)
    panel.set(xticks=[], yticks=[])


def _legend(panel: Axes, omitted: int = 0) -> None:
    title = f"and {omitted} more, not drawn" if omitted > 0 else None
    # The handles are explicit: matplotlib's own choice omits labels that begin with an underscore, as runs may.
    handles = panel.lines or panel.containers
    panel.legend(handles, [str(handle.get_label()) for handle in handles], fontsize="small", title=title)


def _key(row: Row) -> Key:
    return str(row["run"]), str(row.get("dispatching") or "?")


def _name(key: Key) -> str:
    return safe_text(" ".join(key))


def _from_zero(panel: Axes) -> None:
    """Start the vertical axis at zero, or at the lowest negative value, and leave space above for the legend."""
    bottom, top = panel.get_ylim()
    panel.set_ylim(min(0.0, bottom) if panel.dataLim.y0 < 0 else 0.0, top + 0.2 * abs(top))


def _colour(index: int) -> tuple[float, float, float, float]:
    return _COLOURS[index % len(_COLOURS)]


def _by_key(rows: Sequence[Row]) -> dict[Key, list[Row]]:
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(_key(row), []).append(row)
    return groups


def _box_plot(measure: str, title: str, y_label: str, scale: float) -> Callable[[Tables], Figure]:
    """A box for each run and dispatching: the runs side by side, a colour for each dispatching."""

    def draw(tables: Tables) -> Figure:
        figure, (panel,) = _panels(title, ("", "run", y_label))
        rows = [row for row in tables.get(columns.BOXES.name, []) if row["measure"] == measure]
        if not rows:
            _mark_empty(panel, "deliveries" if measure == "latency" else "samples")
            return figure
        kinds = list(dict.fromkeys([_key(row)[1] for row in rows]))
        runs: dict[str, list[str]] = {}
        for row in rows:
            runs.setdefault(_key(row)[0], []).append(_key(row)[1])
        width = 0.6 / max(map(len, runs.values()))
        for row in rows:
            run, kind = _key(row)
            kinds_of_run = runs[run]
            # The boxes of a run are centred on its tick.
            position = [*runs].index(run) + (kinds_of_run.index(kind) - (len(kinds_of_run) - 1) / 2) * width
            colour = _colour(kinds.index(kind))
            panel.bxp(
                [_box(row, scale)],
                positions=[position],
                widths=[min(0.85 * width, 0.3)],
                patch_artist=True,
                showmeans=True,
                manage_ticks=False,
                boxprops={"facecolor": colour, "alpha": 0.6},
                medianprops={"color": "black"},
                meanprops={"marker": "^", "markerfacecolor": "white", "markeredgecolor": "black"},
                flierprops={"marker": ".", "markeredgecolor": colour},
            )
        panel.set_xticks(range(len(runs)), [safe_text(run) for run in runs], rotation=0 if len(runs) <= 6 else 45)
        panel.set_ylim(bottom=min(0.0, *[scale * float(row["minimum"]) for row in rows]))
        handles = [
            Patch(facecolor=_colour(index), alpha=0.6, label=safe_text(kind)) for index, kind in enumerate(kinds)
        ]
        panel.legend(handles=handles, title="dispatching; a triangle is the mean", fontsize="small")
        return figure

    return draw


def _box(row: Row, scale: float) -> dict[str, Any]:
    names = {
        "q1": "quartile_1",
        "med": "median",
        "q3": "quartile_3",
        "whislo": "low_whisker",
        "whishi": "high_whisker",
        "mean": "mean",
    }
    return {name: scale * float(row[column]) for name, column in names.items()} | {
        "fliers": [scale * float(value) for value in row.get("outliers", [])]
    }


def _rates(tables: Tables) -> Figure:
    figure, panels = _panels(
        "Messages delivered to clients, over time",
        ("total", "seconds since the run began", "messages"),
        ("rate", "seconds since the run began", "messages/s"),
    )
    total, rate = panels
    series = _by_key(tables.get(columns.RATES.name, []))
    for index, (key, rows) in enumerate([*series.items()][:MAX_SERIES]):
        begins = [float(row["time"]) for row in rows]
        ends = [float(row["time"]) + float(row["width"]) for row in rows]
        label, colour = _name(key), _colour(index)
        total.plot([begins[0], *ends], [0, *[row["delivered"] for row in rows]], label=label, color=colour)
        rates = [float(row.get("delivery_rate") or 0) for row in rows]
        # The last rate once more, or the last step would have no width.
        rate.step([*begins, ends[-1]], [*rates, rates[-1]], where="post", label=label, color=colour)
    for panel in panels:
        if series:
            _from_zero(panel)
            _legend(panel, len(series) - MAX_SERIES)
        else:
            _mark_empty(panel, "two samples of a peer")
    return figure


def _latencies(tables: Tables) -> Figure:
    figure, (percentiles, hops) = _panels(
        "Latencies of deliveries to clients",
        ("percentiles", "percentile", "ms"),
        ("by hops", "links that a message crossed", "ms"),
    )
    series = _by_key(tables.get(columns.LATENCIES.name, []))
    for index, (key, rows) in enumerate([*series.items()][:MAX_SERIES]):
        colour = _colour(index)
        for row in [row for row in rows if row["by"] == "all"]:
            percentiles.plot(
                list(PERCENTILES), [_ms(row, name) for name in PERCENTILES], "o-", color=colour, label=_name(key)
            )
        by_hops = sorted([row for row in rows if row["by"] == "hops"], key=lambda row: int(row["hops"]))
        numbers = [row["hops"] for row in by_hops]
        for name, style in (("p50", "o-"), ("p99", "s--")):
            label = f"{_name(key)}, {name}"
            hops.plot(numbers, [_ms(row, name) for row in by_hops], style, color=colour, label=label)
    if not series:
        _mark_empty(percentiles, "deliveries")
        _mark_empty(hops, "deliveries")
        return figure
    hops.xaxis.set_major_locator(MaxNLocator(integer=True))
    percentiles.set_xticks(range(len(PERCENTILES)), ["99.9" if name == "p999" else name[1:] for name in PERCENTILES])
    for panel in (percentiles, hops):
        _legend(panel, len(series) - MAX_SERIES)
    return figure


def _topics(tables: Tables) -> Figure:
    figure, (panel,) = _panels("Latencies of the topics with the most messages", ("", "ms", ""))
    rows = [row for row in tables.get(columns.LATENCIES.name, []) if row["by"] == "topic"]
    if not rows:
        _mark_empty(panel, "deliveries")
        return figure
    # Reversed, as horizontal bars are drawn from the bottom up.
    rows = sorted(rows, key=lambda row: -float(row["count"]))[:MAX_TOPICS][::-1]
    several = len({_key(row) for row in rows}) > 1
    names = [
        safe_text(f"{_name(_key(row))} " if several else "") + safe_text(str(row["topic"]) or "(all others)")
        for row in rows
    ]
    for shift, name in ((0.2, "p50"), (-0.2, "p99")):
        panel.barh([index + shift for index in range(len(rows))], [_ms(row, name) for row in rows], 0.4, label=name)
    panel.set_yticks(range(len(rows)), names)
    panel.grid(visible=True, axis="x", alpha=0.3)
    _legend(panel)
    return figure


def _ms(row: Row, name: str) -> float:
    value = row.get(name)
    return float("nan") if value is None else 1000 * float(value)


def _stress(tables: Tables) -> Figure:
    figure, panels = _panels(
        "Stress",
        ("node stress", "", "sends of a peer for a message"),
        ("link stress", "", "copies of a message on a link"),
        ("depth of trees", "", "links to the farthest peer"),
        ("balance and waste", "", "%"),
    )
    rows = tables.get(columns.STRESS.name, [])[:MAX_SERIES]
    bars = [[f"{measure}_mean", f"{measure}_max"] for measure in ("node_stress", "link_stress", "depth")]
    for panel, names in zip(panels, [*bars, ["busiest_peer", "busiest_link", "duplicate_share"]], strict=True):
        if not rows:
            _mark_empty(panel, "deliveries")
            continue
        width = 0.8 / len(names)
        for index, name in enumerate(names):
            shift = (index - (len(names) - 1) / 2) * width
            scale = 1 if panel is not panels[-1] else 100
            heights = [scale * float(row.get(name) or 0) for row in rows]
            label = name.rpartition("_")[2] if scale == 1 else name.replace("_", " ")
            panel.bar([position + shift for position in range(len(rows))], heights, width, label=label)
        labels = ["\n".join(map(safe_text, _key(row))) for row in rows]
        panel.set_xticks(range(len(rows)), labels, rotation=0 if len(rows) < 3 else 90)
        _from_zero(panel)
        panel.legend(fontsize="small")
    return figure


def _load(tables: Tables) -> Figure:
    """All peers of each run in descending order, which shows how evenly they share the load."""
    figure, panels = _panels(
        "The peers of a run, the greatest first",
        ("bandwidth", "peers", "Mbit/s, in and out"),
        ("average latency", "peers", "ms"),
    )
    series = _by_key([row for row in tables.get(columns.PER_PEER.name, []) if row["row"] == "peer"])
    for panel, value_of, kind in zip(panels, (_bandwidth, _latency), ("samples", "deliveries"), strict=True):
        drawn = 0
        for index, (key, rows) in enumerate([*series.items()][:MAX_SERIES]):
            values = sorted([value for row in rows if (value := value_of(row)) is not None], reverse=True)
            if values:
                colour = _colour(index)
                panel.plot(range(1, len(values) + 1), values, "o-", markersize=3, label=_name(key), color=colour)
                drawn += 1
        if drawn:
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            _from_zero(panel)
            _legend(panel, len(series) - MAX_SERIES)
        else:
            _mark_empty(panel, kind)
    return figure


def _bandwidth(row: Row) -> float | None:
    speeds = row.get("in_byte_speed"), row.get("out_byte_speed")
    return None if None in speeds else 8e-6 * sum(float(speed) for speed in speeds if speed is not None)


def _latency(row: Row) -> float | None:
    value = row.get("avg_latency")
    return None if value is None else 1000 * float(value)


PLOTS: Final[dict[str, Callable[[Tables], Figure]]] = {
    "boxes_latency": _box_plot("latency", "Average latency of each peer", "ms", 1e3),
    "boxes_bandwidth": _box_plot("bandwidth", "Bandwidth of each peer, in and out", "Mbit/s", 1e-6),
    "rates": _rates,
    "latencies": _latencies,
    "latencies_by_topic": _topics,
    "stress": _stress,
    "load": _load,
}
"""The plots by the names of their files."""
