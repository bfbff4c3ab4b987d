"""What was measured of each side in each pattern, as rows, and beside what the paper states of its own brokers.

Their brokers had a machine each; all servers of a side here share one core. So what more brokers bring cannot be seen
here, only what it costs to join them: throughput is to be read as work done by one core.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from statistics import median
from typing import Final

from ringmq.experiments.benchmarks.comparison import Result
from ringmq.experiments.studies.harness.outcome import Quantity, Row

PAPER: Final = "Banno, Sun, Takeuchi, Shudo 2019, §"
RING: Final = "ringmq"
ALONE: Final = "mosquitto"
BRIDGED: Final = ("bridged", "nodelay")
SHARED_CORE: Final = "their brokers had a machine each, ours share one core"

Found = Mapping[str, Mapping[str, Result]]
"""By pattern and side, in the order in which they were measured."""


def rows(found: Found) -> list[Row]:
    """One for each side of each pattern."""
    return [_row(pattern, side, result) for pattern, sides in found.items() for side, result in sides.items()]


def _row(pattern: str, side: str, result: Result) -> Row:
    limits, at_half = result.limits, result.at_half
    egress = [one.egress_hz for one in limits]
    return {
        "pattern": pattern,
        "side": side,
        "ingress_per_s": median(one.ingress_hz for one in limits) if limits else None,
        "egress_per_s": result.limit_hz() if limits else None,
        "egress_lowest_per_s": min(egress, default=None),
        "egress_highest_per_s": max(egress, default=None),
        "limit_is_higher": result.lower_bound,
        "loss_percent": 100 * median(one.loss for one in limits) if limits else None,
        "half_load_ingress_per_s": median(one.ingress_hz for one in at_half) if at_half else None,
        "half_load_loss_percent": 100 * median(one.loss for one in at_half) if at_half else None,
        **{f"latency_p{percent}_ms": latency_ms(result, percent) for percent in (50, 99)},
        "cpu_s_per_million": cpu_s_per_million(result),
        "server_core_percent": 100 * median(one.server_cpu for one in limits) if limits else None,
        "generator_core_percent": 100 * median(one.generator_cpu for one in limits) if limits else None,
        "disturbed_percent": 100 * median(one.waited for one in limits) if limits else None,
    }


def latency_ms(result: Result, percent: float) -> float | None:
    """At half of the load that the side compared with can bear; None where it was not measured."""
    seconds = result.percentile_s(percent)
    return None if isnan(seconds) else 1e3 * seconds


def cpu_s_per_million(result: Result) -> float | None:
    """Of all servers of a side, for a million deliveries at the limit."""
    return median(one.cpu_s_per_million for one in result.limits) if result.limits else None


def disturbed(results: Mapping[str, Result]) -> float:
    """The share of the time in which other processes had one of the cores, at the limits."""
    return median([one.waited for result in results.values() for one in result.limits] or [0.0])


def quantities(found: Found) -> list[Quantity]:
    """First what the paper states, then the ring against bridged Mosquittos, of which it says nothing."""
    told = []
    for pattern in found:
        ours = _share(found, (pattern, RING), (pattern, ALONE))
        theirs = 90.0 if pattern == "A" else 200.0
        told.append(
            Quantity(
                f"pattern {pattern}: deliveries/s at the limit, of one Mosquitto's",
                f"{PAPER}{'6.4' if pattern == 'A' else '8'}",
                theirs,
                ours,
                "%",
                note=_why(ours, "" if pattern == "A" else SHARED_CORE),
            )
        )
    if "A" in found:
        latency = latency_ms(found["A"][RING], 50) if RING in found["A"] else None
        note = _why(latency, "theirs is a mean, ours a median")
        told.append(Quantity("pattern A: latency", f"{PAPER}6.4", 10.0, latency, "ms", at_least=False, note=note))
    for low in ("B", "D"):
        if {low, "C"} <= set(found):
            ours = _share(found, ("C", RING), (low, RING))
            what = f"pattern C: deliveries/s at the limit, of those of pattern {low}"
            told.append(Quantity(what, f"{PAPER}6.4", 100.0, ours, "%", note=_why(ours)))
    return told + _against_bridges(found)


def _against_bridges(found: Found) -> list[Quantity]:
    told = []
    for pattern, sides in found.items():
        for side in [one for one in BRIDGED if one in sides]:
            name = f"pattern {pattern}: ring against {side} Mosquittos"
            egress = _share(found, (pattern, RING), (pattern, side))
            told.append(Quantity(f"{name}, deliveries/s at the limit", "", None, egress, "%", note=_why(egress)))
            both = [latency_ms(sides[one], 99) if one in sides else None for one in (RING, side)]
            latency = _percent(*both)
            told.append(Quantity(f"{name}, p99 latency", "", None, latency, "%", at_least=False, note=_why(latency)))
    return told


def _share(found: Found, one: tuple[str, str], other: tuple[str, str]) -> float | None:
    """Deliveries at the limit of one pattern and side, as a percentage of another's."""
    results = [found.get(pattern, {}).get(side) for pattern, side in (one, other)]
    return _percent(*[result.limit_hz() if result is not None else None for result in results])


def _percent(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else 100 * one / other


def _why(ours: float | None, otherwise: str = "") -> str:
    return "one of the two was not measured, or never kept up" if ours is None else otherwise
