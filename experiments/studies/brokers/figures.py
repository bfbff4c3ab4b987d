"""Measurements of each side in each pattern: as rows, and beside the figures of the paper.

Each broker of the paper had a machine; here all servers of a side share one core. So the measurements cannot show the
gain from more brokers, only the cost of joining them: throughput means the work of one core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from statistics import median
from typing import Final

from ringmq.experiments.benchmarks.comparison import Result
from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.studies.harness.outcome import Quantity, Row

PAPER: Final = "Banno, Sun, Takeuchi, Shudo 2019, §"
RING: Final = "ringmq"
ALONE: Final = "mosquitto"
BRIDGED: Final = ("bridged", "nodelay")
SHARED_CORE: Final = "their brokers had a machine each, ours share one core"

Found = Mapping[str, Mapping[str, Result]]
"""Results by pattern and side, in the order of the measurements."""


def rows(found: Found) -> list[Row]:
    """A row for each side of each pattern."""
    return [_row(pattern, side, result) for pattern, sides in found.items() for side, result in sides.items()]


def _row(pattern: str, side: str, result: Result) -> Row:
    limits, at_half = result.limits, result.at_half
    egress = [figures.egress_hz for figures in limits]
    return {
        "pattern": pattern,
        "side": side,
        "ingress_per_s": _median(limits, "ingress_hz"),
        "egress_per_s": result.limit_hz() if limits else None,
        "egress_lowest_per_s": min(egress, default=None),
        "egress_highest_per_s": max(egress, default=None),
        "limit_is_higher": result.lower_bound,
        "loss_percent": _median(limits, "loss", 100),
        "half_load_ingress_per_s": _median(at_half, "ingress_hz"),
        "half_load_loss_percent": _median(at_half, "loss", 100),
        **{f"latency_p{percent}_ms": latency_ms(result, percent) for percent in (50, 99)},
        "cpu_s_per_million": cpu_s_per_million(result),
        "server_core_percent": _median(limits, "server_cpu", 100),
        "generator_core_percent": _median(limits, "generator_cpu", 100),
        "disturbed_percent": _median(limits, "waited", 100),
    }


def _median(repetitions: Sequence[Figures], name: str, scale: float = 1) -> float | None:
    """The median of one figure over all repetitions; None without repetitions."""
    return scale * median(getattr(figures, name) for figures in repetitions) if repetitions else None


def latency_ms(result: Result, percent: float) -> float | None:
    """A percentile of the latency at half of the limit of the reference side; None if it was not measured."""
    seconds = result.percentile_s(percent)
    return None if isnan(seconds) else 1e3 * seconds


def cpu_s_per_million(result: Result) -> float | None:
    """Processor time of all servers of a side, for a million deliveries at the limit."""
    return _median(result.limits, "cpu_s_per_million")


def disturbed(results: Mapping[str, Result]) -> float:
    """The share of the time in which other processes had one of the cores, at the limits."""
    return median([figures.waited for result in results.values() for figures in result.limits] or [0.0])


def quantities(found: Found) -> list[Quantity]:
    """The figures of the paper, then the ring against bridged Mosquittos, which the paper did not measure."""
    listed = []
    for pattern in found:
        ours = _share(found, (pattern, RING), (pattern, ALONE))
        theirs = 90.0 if pattern == "A" else 200.0
        listed.append(
            Quantity(
                f"pattern {pattern}: deliveries/s at the limit, of one Mosquitto's",
                f"{PAPER}{'6.4' if pattern == 'A' else '8'}",
                theirs,
                ours,
                "%",
                note=_note(ours, "" if pattern == "A" else SHARED_CORE),
            )
        )
    if "A" in found:
        latency = latency_ms(found["A"][RING], 50) if RING in found["A"] else None
        note = _note(latency, "theirs is a mean, ours a median")
        listed.append(Quantity("pattern A: latency", f"{PAPER}6.4", 10.0, latency, "ms", at_least=False, note=note))
    for low in ("B", "D"):
        if {low, "C"} <= set(found):
            ours = _share(found, ("C", RING), (low, RING))
            what = f"pattern C: deliveries/s at the limit, of pattern {low}'s"
            listed.append(Quantity(what, f"{PAPER}6.4", 100.0, ours, "%", note=_note(ours)))
    return listed + _against_bridges(found)


def _against_bridges(found: Found) -> list[Quantity]:
    listed = []
    for pattern, sides in found.items():
        for bridged in [side for side in BRIDGED if side in sides]:
            name = f"pattern {pattern}: ring against {bridged} Mosquittos"
            egress = _share(found, (pattern, RING), (pattern, bridged))
            listed.append(Quantity(f"{name}, deliveries/s at the limit", "", None, egress, "%", note=_note(egress)))
            both = [latency_ms(sides[side], 99) if side in sides else None for side in (RING, bridged)]
            latency = _percent(*both)
            listed.append(Quantity(f"{name}, p99 latency", "", None, latency, "%", at_least=False, note=_note(latency)))
    return listed


def _share(found: Found, numerator: tuple[str, str], denominator: tuple[str, str]) -> float | None:
    """Deliveries at the limit of one pattern and side, as a percentage of another's."""
    results = [found.get(pattern, {}).get(side) for pattern, side in (numerator, denominator)]
    return _percent(*[result.limit_hz() if result is not None else None for result in results])


def _percent(value: float | None, whole: float | None) -> float | None:
    return None if value is None or not whole else 100 * value / whole


def _note(ours: float | None, otherwise: str = "") -> str:
    return "one of the two was not measured or never kept up" if ours is None else otherwise
