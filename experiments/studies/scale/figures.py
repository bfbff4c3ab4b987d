"""What a node has to do for each message that is published anywhere, at each size of ring, simulated and real."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Final

from ringmq.experiments.studies.harness.approaches import SCRIBE, WITHOUT_BOUND, Approach
from ringmq.experiments.studies.harness.outcome import Quantity, Row
from ringmq.experiments.studies.scale.multicast import Tally

SIMULATED: Final = "simulated"
REAL: Final = "real peers"
CORES: Final = "whole cores"
MEASURES: Final = ("messages", "bytes", "latency_ms")
"""The first two are sent and received by a node over its links, for one message published."""
STATISTICS: Final = ("mean", "maximum", "deviation")
AGREED_PERCENT: Final = 15.0
AGREEING: Final = tuple((measure, statistic) for measure in ("messages", "bytes") for statistic in ("mean", "maximum"))
"""What is to agree."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the nodes of a ring, each with one value."""

    mean: float
    maximum: float
    deviation: float
    """Of the population: what the thesis calls load distribution."""


def summary(values: Sequence[float]) -> Summary:
    """Of one value at least."""
    mean = fsum(values) / len(values)
    return Summary(mean, max(values), sqrt(fsum((one - mean) ** 2 for one in values) / len(values)))


@dataclass(frozen=True, slots=True)
class Found:
    """One approach in one ring."""

    nodes: int
    approach: Approach
    source: str
    measures: Mapping[str, Summary]
    """By the names of MEASURES."""


def of_tally(nodes: int, approach: Approach, source: str, tally: Tally, published: int) -> Found:
    return of_nodes(
        nodes,
        approach,
        source,
        [one / published for one in tally.copies],
        [one / published for one in tally.bytes],
        [1e3 * latency / given for latency, given in zip(tally.latency_s, tally.given, strict=True) if given],
    )


def of_nodes(
    nodes: int,
    approach: Approach,
    source: str,
    messages: Sequence[float],
    sizes_bytes: Sequence[float],
    latencies_ms: Sequence[float],
) -> Found:
    """A value for each node; latencies of those that were given anything."""
    values = zip(MEASURES, (messages, sizes_bytes, latencies_ms), strict=True)
    return Found(nodes, approach, source, {measure: summary(of_each) for measure, of_each in values})


def rows(found: Iterable[Found]) -> list[Row]:
    return [
        {
            "nodes": one.nodes,
            "approach": one.approach.label,
            "source": one.source,
            **{
                f"{measure}_{statistic}": getattr(one.measures[measure], statistic)
                for measure in MEASURES
                for statistic in STATISTICS
            },
        }
        for one in found
    ]


def differences(found: Sequence[Found]) -> list[Row]:
    """Each real ring, and each of whole cores, beside the simulated one of the same size and approach."""
    simulated = {(one.nodes, one.approach.key): one for one in found if one.source == SIMULATED}
    told: list[Row] = []
    for other in found:
        ours = simulated.get((other.nodes, other.approach.key))
        if ours is None or other.source == SIMULATED:
            continue
        for measure in MEASURES:
            for statistic in STATISTICS:
                one, two = (getattr(each.measures[measure], statistic) for each in (ours, other))
                told.append(
                    {
                        "nodes": other.nodes,
                        "approach": other.approach.label,
                        "against": other.source,
                        "measure": measure,
                        "statistic": statistic,
                        "simulated": one,
                        "other": two,
                        "difference_percent": _difference_percent(one, two),
                    }
                )
    return told


def _difference_percent(simulated: float, other: float) -> float | None:
    return 100 * (simulated - other) / other if other else 0.0 if simulated == other else None


def quantities(compared: Sequence[Row]) -> list[Quantity]:
    """The largest differences, each with where it is."""
    agreeing = "messages and bytes per node, mean and maximum"
    told = [_largest(agreeing, source, compared, AGREEING, AGREED_PERCENT) for source in (REAL, CORES)]
    others = [*((measure, "deviation") for measure in MEASURES), ("latency_ms", "mean"), ("latency_ms", "maximum")]
    told += [_largest(" ".join(one), REAL, compared, (one,), None) for one in others]
    return told


def below_scribe(found: Sequence[Found]) -> list[Quantity]:
    """In the largest simulated ring: how much less the busiest node has to do, and the latest has to wait."""
    simulated = [one for one in found if one.source == SIMULATED]
    nodes = max((one.nodes for one in simulated), default=0)
    largest = {one.approach: one for one in simulated if one.nodes == nodes}
    scribe = largest.pop(SCRIBE, None)
    largest.pop(WITHOUT_BOUND, None)
    told: list[Quantity] = []
    if scribe is None:
        return told
    for approach, one in largest.items():
        for measure, what, unit in (("bytes", "bytes", "B"), ("latency_ms", "average latency", "ms")):
            ours, theirs = one.measures[measure].maximum, scribe.measures[measure].maximum
            name = f"{nodes:,} simulated nodes: highest {what} of a node, {approach.label} below Scribe"
            note = f"{_short(ours)} against {_short(theirs)} {unit}"
            told.append(Quantity(name, "", None, 100 * (1 - ours / theirs), "%", note=note))
    return told


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _largest(
    what: str, against: str, compared: Sequence[Row], wanted: Sequence[tuple[str, str]], goal: float | None
) -> Quantity:
    known = [
        (abs(percent), row)
        for row in compared
        if row["against"] == against
        and (row["measure"], row["statistic"]) in wanted
        and isinstance(percent := row["difference_percent"], float)
    ]
    name = f"simulated against {against}: largest difference of {what}"
    source = "" if goal is None else "our own goal"
    if not known:
        return Quantity(name, source, goal, None, "%", at_least=False, note="there was nothing to compare with")
    percent, row = max(known, key=lambda one: one[0])
    place = f"{row['approach']}, {row['nodes']} nodes, {row['measure']} {row['statistic']}"
    return Quantity(name, source, goal, percent, "%", at_least=False, note=place)
