"""Goals of RingMQ against other servers, and verdicts on them, mostly as ratios of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ringmq.experiments.benchmarks.comparison import Result
from ringmq.experiments.benchmarks.crowd import FilterFigures, IdleFigures

EGRESS_RATIOS: Final = {"qos0-1to10": 2.0, "qos0-1to1": 1.0, "qos1-1to1": 0.7}
"""Goals for the egress of a front at its limit, divided by Mosquitto's."""
RING_EGRESS_RATIOS: Final = {"two-1to10": 1.2, "two-1to1": 1.0}
"""Goals for the egress of two peers at their limit, divided by that of bridged Mosquittos."""
BRIDGED: Final = {"bridged": "bridged Mosquittos'", "nodelay": "bridged Mosquittos' with nodelay"}
AMQTT_RATIO: Final = 10.0
"""Goal for the egress of a front at its limit, divided by amqtt's."""
P99_RATIO: Final = 1.5
"""Goal for the latency at half of the limit of Mosquitto, or of bridged Mosquittos, divided by theirs."""
IDLE_BYTES: Final = 20_000
CONNECT_S: Final = 0.005
FILTERS_RATIO: Final = 1.2


@dataclass(frozen=True, slots=True)
class Verdict:
    """One goal."""

    what: str
    value: float
    goal: float
    at_least: bool
    unit: str = ""
    low: float | None = None
    high: float | None = None
    """Highest and lowest value of several repetitions."""
    note: str = ""

    @property
    def reached(self) -> bool:
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    def __str__(self) -> str:
        spread = "" if self.low is None else f" ({self.low:.2f}-{self.high:.2f})"
        sign = ">=" if self.at_least else "<="
        outcome = "reached" if self.reached else "MISSED"
        note = f"; {self.note}" if self.note else ""
        return f"{outcome}: {self.what} {self.value:.3g}{self.unit}{spread}, goal {sign} {self.goal:g}{self.unit}{note}"


def of_pattern(pattern: str, results: Mapping[str, Result]) -> list[Verdict]:
    """Verdicts on RingMQ against each other server that was measured. A pattern without a goal has none."""
    ours = results.get("ringmq")
    if ours is None or pattern not in EGRESS_RATIOS:
        return []
    verdicts = []
    mosquitto, amqtt = results.get("mosquitto"), results.get("amqtt")
    if mosquitto is not None and mosquitto.limits:
        verdicts.append(_egress(f"{pattern} egress / Mosquitto's", ours, mosquitto, EGRESS_RATIOS[pattern]))
    if mosquitto is not None and mosquitto.at_half:
        verdicts.append(_p99(f"{pattern} p99 latency / Mosquitto's", ours, mosquitto))
    if amqtt is not None and amqtt.limits:
        verdicts.append(_egress(f"{pattern} egress / amqtt's", ours, amqtt, AMQTT_RATIO))
    return verdicts


def of_ring(pattern: str, results: Mapping[str, Result]) -> list[Verdict]:
    """Verdicts on a ring against bridged Mosquittos. A pattern without a goal has none."""
    ours = results.get("ringmq")
    if ours is None or pattern not in RING_EGRESS_RATIOS:
        return []
    verdicts = []
    for side, whose in BRIDGED.items():
        theirs = results.get(side)
        if theirs is not None and theirs.limits:
            verdicts.append(_egress(f"{pattern} egress / {whose}", ours, theirs, RING_EGRESS_RATIOS[pattern]))
        if theirs is not None and theirs.at_half:
            verdicts.append(_p99(f"{pattern} p99 latency / {whose}", ours, theirs))
    return verdicts


def _egress(what: str, ours: Result, theirs: Result, goal: float) -> Verdict:
    ratios = [our.egress_hz / their.egress_hz for our, their in zip(ours.limits, theirs.limits, strict=False)] or [0.0]
    note = ""
    if ours.lower_bound and theirs.lower_bound:
        note = "the load generator could offer no more to either of them: the limits of both are higher"
    elif ours.lower_bound or theirs.lower_bound:
        limited = "RingMQ" if ours.lower_bound else "the other"
        note = f"the load generator could offer no more: {limited}'s limit is higher"
    value = ours.limit_hz() / theirs.limit_hz()
    return Verdict(what, value, goal, True, low=min(ratios), high=max(ratios), note=note)


def _p99(what: str, ours: Result, theirs: Result) -> Verdict:
    if not ours.at_half:
        return Verdict(what, float("inf"), P99_RATIO, False, note="RingMQ does not keep up at half of their limit")
    pairs = zip(ours.at_half, theirs.at_half, strict=False)
    ratios = [our.percentile_s(99) / their.percentile_s(99) for our, their in pairs]
    value = ours.percentile_s(99) / theirs.percentile_s(99)
    return Verdict(what, value, P99_RATIO, False, low=min(ratios), high=max(ratios))


def of_idle(figures: IdleFigures) -> list[Verdict]:
    many = f"{figures.clients} idle clients:"
    return [
        Verdict(f"{many} memory each", figures.bytes_each / 1000, IDLE_BYTES / 1000, False, " kB"),
        Verdict(f"{many} a new one connects in", figures.connect_s * 1000, CONNECT_S * 1000, False, " ms"),
    ]


def of_filters(figures: FilterFigures) -> list[Verdict]:
    many = f"{figures.filters} other filters: cost of a publication with / without,"
    return [
        Verdict(f"{many} known topics", figures.steady_ratio, FILTERS_RATIO, False),
        Verdict(f"{many} new topics", figures.fresh_ratio, FILTERS_RATIO, False),
    ]
