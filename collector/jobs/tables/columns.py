"""The heads of all tables: their columns with units, and the order of their rows. Knows neither Spark nor any data.

docs/collector_tables.md describes how each column is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Unit(Enum):
    """The unit of the values of a column."""

    TEXT = "text"
    PEER = "id of a peer"
    COUNT = "count"
    NUMBER = "number"
    SHARE = "share"
    SECONDS = "s"
    TIME = "s since 1970"
    BYTES = "B"
    PER_SECOND = "1/s"
    BYTES_PER_SECOND = "B/s"
    NUMBERS = "numbers"
    """A list of numbers, in the unit of the row."""
    MIXED = "unit of the row"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    unit: Unit = Unit.TEXT
    shown: bool = True
    """Whether the terminal shows it; a terminal is not wide enough for all columns."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a table: everything except its rows."""

    name: str
    title: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    """The columns by which rows are sorted."""

    @property
    def names(self) -> list[str]:
        """The names of all columns, in order."""
        return [column.name for column in self.columns]


def _columns(unit: Unit, *names: str, shown: bool = True) -> tuple[Column, ...]:
    return tuple([Column(name, unit, shown) for name in names])


RUN: Final = Column("run")
DISPATCHING: Final = Column("dispatching")

RUNS: Final = Head(
    "runs",
    "Runs: recorded and missing records",
    (
        RUN,
        *_columns(Unit.COUNT, "peers", "starts"),
        Column("began", Unit.TIME),
        Column("lasted", Unit.SECONDS),
        *_columns(Unit.COUNT, "samples", "deliveries", "latencies", "missing", "unrecorded"),
    ),
    ("began", "run"),
)
PER_PEER: Final = Head(
    "per_peer",
    "Peers",
    (
        RUN,
        Column("row"),
        Column("number", Unit.COUNT),
        Column("port"),
        Column("pid"),
        Column("ip"),
        Column("peer", Unit.PEER),
        Column("avg_latency", Unit.SECONDS),
        Column("dispatching"),
        *_columns(Unit.BYTES, "in_bytes", "out_bytes"),
        *_columns(Unit.COUNT, "tot_sub", "tot_msg", "tot_topic"),
        Column("msg_rate", Unit.PER_SECOND),
        *_columns(Unit.BYTES_PER_SECOND, "in_byte_speed", "out_byte_speed"),
        Column("run_time", Unit.SECONDS),
        Column("memory_usage", Unit.BYTES),
        Column("avg_ring_latency", Unit.SECONDS, shown=False),
        *_columns(Unit.COUNT, "measured", "negative", "published", "dropped", shown=False),
        *_columns(
            Unit.BYTES,
            "client_in_bytes",
            "client_out_bytes",
            "ring_in_bytes",
            "ring_out_bytes",
            "memory_peak",
            shown=False,
        ),
        Column("cpu_time", Unit.SECONDS, shown=False),
        Column("cpu_share", Unit.SHARE, shown=False),
        Column("starts", Unit.COUNT, shown=False),
    ),
    ("run", "row", "number"),
)
BOXES: Final = Head(
    "boxes",
    "Box plots over the peers of a run",
    (
        RUN,
        DISPATCHING,
        Column("measure"),
        Column("unit"),
        Column("peers", Unit.COUNT),
        *_columns(
            Unit.MIXED, "minimum", "low_whisker", "quartile_1", "median", "quartile_3", "high_whisker", "maximum"
        ),
        *_columns(Unit.MIXED, "mean", "deviation"),
        Column("outliers", Unit.NUMBERS),
    ),
    ("measure", "run", "dispatching"),
)
RATES: Final = Head(
    "rates",
    "Messages over time",
    (
        RUN,
        DISPATCHING,
        *_columns(Unit.SECONDS, "time", "width"),
        *_columns(Unit.COUNT, "delivered", "published"),
        *_columns(Unit.PER_SECOND, "delivery_rate", "publish_rate"),
    ),
    ("run", "dispatching", "time"),
)
STRESS: Final = Head(
    "stress",
    "Stress of peers and links",
    (
        RUN,
        DISPATCHING,
        *_columns(Unit.COUNT, "messages", "peers", "links"),
        *_columns(Unit.NUMBER, "node_stress_mean", "node_stress_max"),
        Column("busiest_peer", Unit.SHARE),
        *_columns(Unit.NUMBER, "link_stress_mean", "link_stress_max"),
        Column("busiest_link", Unit.SHARE),
        *_columns(Unit.NUMBER, "depth_mean", "depth_max"),
        Column("duplicates", Unit.COUNT),
        Column("duplicate_share", Unit.SHARE),
    ),
    ("run", "dispatching"),
)
PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
"""The columns of percentiles, and the share of all latencies that does not exceed each."""
LATENCIES: Final = Head(
    "latencies",
    "Latencies of deliveries to clients",
    (
        RUN,
        DISPATCHING,
        Column("by"),
        Column("topic"),
        Column("hops", Unit.COUNT),
        Column("count", Unit.COUNT),
        *_columns(Unit.SECONDS, "mean", "minimum", *PERCENTILES, "maximum"),
        Column("negative", Unit.COUNT),
    ),
    ("run", "dispatching", "by", "hops", "topic"),
)
DEAD: Final = Head(
    "dead",
    "Refused lines",
    (Column("by"), Column("reason"), Column("lines", Unit.COUNT)),
    ("by", "reason"),
)
HEADS: Final = {head.name: head for head in (RUNS, PER_PEER, BOXES, RATES, STRESS, LATENCIES, DEAD)}
"""All heads by name, in the order in which the tables are shown."""
