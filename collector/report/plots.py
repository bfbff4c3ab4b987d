"""The plots: what is drawn of which table, and how. Rows go in, figures come out; `write` makes PNG files of them."""

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
from ringmq.collector.report.format import text
from ringmq.collector.report.read_tables import Row, Tables

SIZE_INCHES: Final = (11.0, 5.5)
DOTS_PER_INCH: Final = 120
MAX_SERIES: Final = 20
"""Of one plot. More cannot be told apart; the tables have all."""
MAX_TOPICS: Final = 15
_COLOURS: Final[list[tuple[float, float, float, float]]] = [
    colormaps["tab20"](place) for place in (*range(0, 20, 2), *range(1, 20, 2))
]
"""The strong ones first."""

Key = tuple[str, str]
"""A run and a dispatching."""


def write(tables: Tables, folder: Path) -> list[Path]:
    """Draw all plots into a folder, made if missing. Raises CollectorError if that cannot be."""
    files = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw in PLOTS.items():
            file = folder / f"{name}.png"
            with _as_it_is():
                draw(tables).savefig(file, dpi=DOTS_PER_INCH)
            files.append(file)
    except OSError as error:
        raise CollectorError(f"--out: cannot write to {folder}: {error.strerror or error}") from error
    return files


@contextmanager
def _as_it_is() -> Iterator[None]:
    """No text is a formula, whatever topics and runs are called; and no warning of what a font has not is for users."""
    with rc_context({"text.parse_math": False, "text.usetex": False}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _panels(title: str, *names: tuple[str, str, str]) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each name, with what its axes say."""
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    figure.suptitle(title)
    panels = list(figure.subplots(1, len(names), squeeze=False)[0])
    for panel, (name, across, up) in zip(panels, names, strict=True):
        panel.set(title=name, xlabel=across, ylabel=up)
        panel.grid(visible=True, axis="y", alpha=0.3)
    return figure, panels


def _say_empty(panel: Axes, what: str) -> None:
    panel.text(0.5, 0.5, f"no {what} were recorded", ha="center", va="center", transform=panel.transAxes)
    panel.set(xticks=[], yticks=[])


def _legend(panel: Axes, left_out: int = 0) -> None:
    title = f"and {left_out} more, not drawn" if left_out > 0 else None
    # Said by name: of itself it would leave out those that begin with an underscore.
    drawn = panel.lines or panel.containers
    panel.legend(drawn, [str(one.get_label()) for one in drawn], fontsize="small", title=title)


def _key(row: Row) -> Key:
    return str(row["run"]), str(row.get("dispatching") or "?")


def _name(key: Key) -> str:
    return text(" ".join(key))


def _from_zero(panel: Axes) -> None:
    """From zero, or from what is below it, and with room above for the legend."""
    bottom, top = panel.get_ylim()
    panel.set_ylim(min(0.0, bottom) if panel.dataLim.y0 < 0 else 0.0, top + 0.2 * abs(top))


def _colour(place: int) -> tuple[float, float, float, float]:
    return _COLOURS[place % len(_COLOURS)]


def _by_key(rows: Sequence[Row]) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = {}
    for row in rows:
        found.setdefault(_key(row), []).append(row)
    return found


def _box_plot(measure: str, title: str, up: str, scale: float) -> Callable[[Tables], Figure]:
    """A box for each run and dispatching: the runs side by side, a colour for each dispatching."""

    def draw(tables: Tables) -> Figure:
        figure, (panel,) = _panels(title, ("", "run", up))
        rows = [row for row in tables.get(columns.BOXES.name, []) if row["measure"] == measure]
        if not rows:
            _say_empty(panel, "deliveries" if measure == "latency" else "samples")
            return figure
        kinds = list(dict.fromkeys([_key(row)[1] for row in rows]))
        runs: dict[str, list[str]] = {}
        for row in rows:
            runs.setdefault(_key(row)[0], []).append(_key(row)[1])
        width = 0.6 / max(map(len, runs.values()))
        for row in rows:
            run, kind = _key(row)
            beside = runs[run]
            place = [*runs].index(run) + (beside.index(kind) - (len(beside) - 1) / 2) * width
            colour = _colour(kinds.index(kind))
            panel.bxp(
                [_box(row, scale)],
                positions=[place],
                widths=[min(0.85 * width, 0.3)],
                patch_artist=True,
                showmeans=True,
                manage_ticks=False,
                boxprops={"facecolor": colour, "alpha": 0.6},
                medianprops={"color": "black"},
                meanprops={"marker": "^", "markerfacecolor": "white", "markeredgecolor": "black"},
                flierprops={"marker": ".", "markeredgecolor": colour},
            )
        panel.set_xticks(range(len(runs)), [text(run) for run in runs], rotation=0 if len(runs) <= 6 else 45)
        panel.set_ylim(bottom=min(0.0, *[scale * float(row["minimum"]) for row in rows]))
        colours = [Patch(facecolor=_colour(place), alpha=0.6, label=text(kind)) for place, kind in enumerate(kinds)]
        panel.legend(handles=colours, title="dispatching; a triangle is the mean", fontsize="small")
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
    return {ours: scale * float(row[theirs]) for ours, theirs in names.items()} | {
        "fliers": [scale * float(value) for value in row.get("outliers", [])]
    }


def _rates(tables: Tables) -> Figure:
    figure, panels = _panels(
        "Messages that clients were given, over time",
        ("in all", "seconds since the run began", "messages"),
        ("rate", "seconds since the run began", "messages/s"),
    )
    in_all, rate = panels
    series = _by_key(tables.get(columns.RATES.name, []))
    for place, (key, rows) in enumerate([*series.items()][:MAX_SERIES]):
        begins = [float(row["time"]) for row in rows]
        ends = [float(row["time"]) + float(row["width"]) for row in rows]
        label, colour = _name(key), _colour(place)
        in_all.plot([begins[0], *ends], [0, *[row["delivered"] for row in rows]], label=label, color=colour)
        speeds = [float(row.get("delivery_rate") or 0) for row in rows]
        rate.step([*begins, ends[-1]], [*speeds, speeds[-1]], where="post", label=label, color=colour)
    for panel in panels:
        if series:
            _from_zero(panel)
            _legend(panel, len(series) - MAX_SERIES)
        else:
            _say_empty(panel, "two samples of a peer")
    return figure


def _latencies(tables: Tables) -> Figure:
    figure, (percentiles, hops) = _panels(
        "Latencies of what reached clients",
        ("percentiles", "percentile", "ms"),
        ("by hops", "links that a message crossed", "ms"),
    )
    series = _by_key(tables.get(columns.LATENCIES.name, []))
    for place, (key, rows) in enumerate([*series.items()][:MAX_SERIES]):
        colour = _colour(place)
        for row in [row for row in rows if row["by"] == "all"]:
            percentiles.plot(
                list(PERCENTILES), [_ms(row, name) for name in PERCENTILES], "o-", color=colour, label=_name(key)
            )
        far = sorted([row for row in rows if row["by"] == "hops"], key=lambda row: int(row["hops"]))
        for name, style in (("p50", "o-"), ("p99", "s--")):
            label = f"{_name(key)}, {name}"
            hops.plot([row["hops"] for row in far], [_ms(row, name) for row in far], style, color=colour, label=label)
    if not series:
        _say_empty(percentiles, "deliveries")
        _say_empty(hops, "deliveries")
        return figure
    hops.xaxis.set_major_locator(MaxNLocator(integer=True))
    percentiles.set_xticks(range(len(PERCENTILES)), ["99.9" if name == "p999" else name[1:] for name in PERCENTILES])
    for panel in (percentiles, hops):
        _legend(panel, len(series) - MAX_SERIES)
    return figure


def _topics(tables: Tables) -> Figure:
    figure, (panel,) = _panels("Latencies by topic: those with the most messages", ("", "ms", ""))
    rows = [row for row in tables.get(columns.LATENCIES.name, []) if row["by"] == "topic"]
    if not rows:
        _say_empty(panel, "deliveries")
        return figure
    rows = sorted(rows, key=lambda row: -float(row["count"]))[:MAX_TOPICS][::-1]
    several = len({_key(row) for row in rows}) > 1
    names = [
        text(f"{_name(_key(row))} " if several else "") + text(str(row["topic"]) or "(all others)") for row in rows
    ]
    for shift, name in ((0.2, "p50"), (-0.2, "p99")):
        panel.barh([place + shift for place in range(len(rows))], [_ms(row, name) for row in rows], 0.4, label=name)
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
    bars = [[f"{what}_mean", f"{what}_max"] for what in ("node_stress", "link_stress", "depth")]
    for panel, names in zip(panels, [*bars, ["busiest_peer", "busiest_link", "duplicate_share"]], strict=True):
        if not rows:
            _say_empty(panel, "deliveries")
            continue
        width = 0.8 / len(names)
        for place, name in enumerate(names):
            shift = (place - (len(names) - 1) / 2) * width
            scale = 1 if panel is not panels[-1] else 100
            heights = [scale * float(row.get(name) or 0) for row in rows]
            label = name.rpartition("_")[2] if scale == 1 else name.replace("_", " ")
            panel.bar([one + shift for one in range(len(rows))], heights, width, label=label)
        panel.set_xticks(
            range(len(rows)), ["\n".join(map(text, _key(row))) for row in rows], rotation=0 if len(rows) < 3 else 90
        )
        _from_zero(panel)
        panel.legend(fontsize="small")
    return figure


def _load(tables: Tables) -> Figure:
    """All peers of a run from the most loaded on: how the load lies on them."""
    figure, panels = _panels(
        "The peers of a run, the greatest first",
        ("bandwidth", "peers", "Mbit/s, in and out"),
        ("average latency", "peers", "ms"),
    )
    series = _by_key([row for row in tables.get(columns.PER_PEER.name, []) if row["row"] == "peer"])
    for panel, value_of, what in zip(panels, (_bandwidth, _latency), ("samples", "deliveries"), strict=True):
        drawn = 0
        for place, (key, rows) in enumerate([*series.items()][:MAX_SERIES]):
            values = sorted([value for row in rows if (value := value_of(row)) is not None], reverse=True)
            if values:
                colour = _colour(place)
                panel.plot(range(1, len(values) + 1), values, "o-", markersize=3, label=_name(key), color=colour)
                drawn += 1
        if drawn:
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            _from_zero(panel)
            _legend(panel, len(series) - MAX_SERIES)
        else:
            _say_empty(panel, what)
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
"""By the name of the file."""
