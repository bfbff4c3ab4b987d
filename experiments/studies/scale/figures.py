"""Work of a node for each message that is published anywhere, for each size of ring, simulated and real."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Final

from ringmq.experiments.studies.harness.approaches import SCRIBE, WITHOUT_BOUND, Approach
from ringmq.experiments.studies.harness.outcome import Quantity, Row
from ringmq.experiments.studies.scale.multicast import NodeTally

SIMULATED: Final = "simulated"
REAL: Final = "real peers"
CORES: Final = "whole cores"
MEASURES: Final = ("messages", "bytes", "latency_ms")
"""Messages and bytes are sent and received by a node over its links, for each published message."""
STATISTICS: Final = ("mean", "maximum", "deviation")
AGREED_PERCENT: Final = 15.0
AGREEING: Final = tuple((measure, statistic) for measure in ("messages", "bytes") for statistic in ("mean", "maximum"))
"""Figures for which the goal AGREED_PERCENT applies."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics over the nodes of a ring, each with one value."""

    mean: float
    maximum: float
    deviation: float
    """Standard deviation of the population, which the thesis calls load distribution."""


def summary(values: Sequence[float]) -> Summary:
    """Summarise the values, of which there must be at least one."""
    mean = fsum(values) / len(values)
    return Summary(mean, max(values), sqrt(fsum((value - mean) ** 2 for value in values) / len(values)))


@dataclass(frozen=True, slots=True)
class RingFigures:
    """Figures of one approach in one ring."""

    nodes: int
    approach: Approach
    source: str
    measures: Mapping[str, Summary]
    """Statistics by the names of MEASURES."""


def of_tally(nodes: int, approach: Approach, source: str, tally: NodeTally, published: int) -> RingFigures:
    """Figures from the counts of all nodes over `published` messages."""
    return of_nodes(
        nodes,
        approach,
        source,
        [copies / published for copies in tally.copies],
        [size_bytes / published for size_bytes in tally.bytes],
        [1e3 * latency / given for latency, given in zip(tally.latency_s, tally.given, strict=True) if given],
    )


def of_nodes(
    nodes: int,
    approach: Approach,
    source: str,
    messages: Sequence[float],
    sizes_bytes: Sequence[float],
    latencies_ms: Sequence[float],
) -> RingFigures:
    """Figures from a value for each node. Nodes without deliveries have no latency."""
    values = zip(MEASURES, (messages, sizes_bytes, latencies_ms), strict=True)
    return RingFigures(nodes, approach, source, {measure: summary(per_node) for measure, per_node in values})


def rows(rings: Iterable[RingFigures]) -> list[Row]:
    """The rows of the table `scale`."""
    return [
        {
            "nodes": ring.nodes,
            "approach": ring.approach.label,
            "source": ring.source,
            **{
                f"{measure}_{statistic}": getattr(ring.measures[measure], statistic)
                for measure in MEASURES
                for statistic in STATISTICS
            },
        }
        for ring in rings
    ]


def differences(rings: Sequence[RingFigures]) -> list[Row]:
    """Each ring of real peers or whole cores beside the simulated ring of the same size and approach."""
    simulated_rings = {(ring.nodes, ring.approach.key): ring for ring in rings if ring.source == SIMULATED}
    compared: list[Row] = []
    for ring in rings:
        simulated_ring = simulated_rings.get((ring.nodes, ring.approach.key))
        if simulated_ring is None or ring.source == SIMULATED:
            continue
        for measure in MEASURES:
            for statistic in STATISTICS:
                simulated, other = (getattr(each.measures[measure], statistic) for each in (simulated_ring, ring))
                compared.append(
                    {
                        "nodes": ring.nodes,
                        "approach": ring.approach.label,
                        "against": ring.source,
                        "measure": measure,
                        "statistic": statistic,
                        "simulated": simulated,
                        "other": other,
                        "difference_percent": _difference_percent(simulated, other),
                    }
                )
    return compared


def _difference_percent(simulated: float, other: float) -> float | None:
    return 100 * (simulated - other) / other if other else 0.0 if simulated == other else None


def quantities(compared: Sequence[Row]) -> list[Quantity]:
    """The largest differences, each with its ring and measure."""
    agreeing = "messages and bytes per node, mean and maximum"
    listed = [_largest(agreeing, source, compared, AGREEING, AGREED_PERCENT) for source in (REAL, CORES)]
    others = [*((measure, "deviation") for measure in MEASURES), ("latency_ms", "mean"), ("latency_ms", "maximum")]
    listed += [_largest(" ".join(figure), REAL, compared, (figure,), None) for figure in others]
    return listed


def below_scribe(rings: Sequence[RingFigures]) -> list[Quantity]:
    """The busiest node and the slowest node of the largest simulated ring, compared with Scribe."""
    simulated = [ring for ring in rings if ring.source == SIMULATED]
    nodes = max((ring.nodes for ring in simulated), default=0)
    largest = {ring.approach: ring for ring in simulated if ring.nodes == nodes}
    scribe = largest.pop(SCRIBE, None)
    largest.pop(WITHOUT_BOUND, None)
    listed: list[Quantity] = []
    if scribe is None:
        return listed
    for approach, ring in largest.items():
        for measure, what, unit in (("bytes", "bytes", "B"), ("latency_ms", "average latency", "ms")):
            ours, theirs = ring.measures[measure].maximum, scribe.measures[measure].maximum
            name = f"{nodes:,} simulated nodes: highest {what} of a node, {approach.label} below Scribe"
            note = f"{_short(ours)} against {_short(theirs)} {unit}"
            listed.append(Quantity(name, "", None, 100 * (1 - ours / theirs), "%", note=note))
    return listed


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
        return Quantity(name, source, goal, None, "%", at_least=False, note="there was no ring to compare with")
    percent, row = max(known, key=lambda candidate: candidate[0])
    note = f"{row['approach']}, {row['nodes']} nodes, {row['measure']} {row['statistic']}"
    return Quantity(name, source, goal, percent, "%", at_least=False, note=note)
