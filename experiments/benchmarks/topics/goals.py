"""The goals of the patterns, and verdicts on their readings. Most are ratios, which depend little on the machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from ringmq.experiments.benchmarks.goals import Verdict
from ringmq.experiments.benchmarks.topics.costs import Reading, Work
from ringmq.experiments.benchmarks.topics.method import PEERS, USUAL_PEERS, TopicsMethod, TopicsPattern

RATIOS: Final = {
    TopicsPattern.NEW: {"new": 3},
    TopicsPattern.AGAIN: {"new": 3, "again": 2},
    TopicsPattern.DEEP: {"100 levels": 8},
    TopicsPattern.FILTERS: {"filter": 3, "message": 3},
    TopicsPattern.CHURN: {"pair": 25, "pair, 100 clients": 10},
    TopicsPattern.REQUEST: {"request": 35},
    # With an id of its own a client is entered in the registry of the ring, and struck off when it leaves.
    TopicsPattern.CONNECTS: {"client": 24},
    TopicsPattern.RETAINED: {"retained topic": 8},
}
"""The most processor time of a unit, divided by that of a message to a topic in use."""
UNIT_BYTES: Final = {
    TopicsPattern.NEW: 500,
    TopicsPattern.AGAIN: 500,
    TopicsPattern.FILTERS: 2500,
    TopicsPattern.RETAINED: 3000,
}
"""The most memory of a unit over all peers."""
REST_CORES: Final = 0.01
"""The most that the processor time at rest may grow by new or retained topics."""
NEW_HZ: Final = 20_000
"""New topics a second with QoS 0."""
WILD_HZ: Final = 500_000
"""Deliveries a second."""
REQUEST_MS: Final = 3
PUBACK_MS: Final = 50
PUBACK_RATIO: Final = 2
"""The 99.9th percentile of PUBACKs beside the longest topics: PUBACK_MS, or PUBACK_RATIO times that without them."""
CROWD: Final = 100_000
"""Filters from which on a grant is judged by its duration as well."""
CROWD_PEERS: Final = 7
GRANTED_S: Final = 20
CROWD_PUBACK_MS: Final = 1000
CROWD_REST_CORES: Final = 0.02
DATA_GB: Final = 0.6
ALL_S: Final = 30
READY_S: Final = 10
"""One peer with a data folder and a million retained topics."""
CONCERNED_MS: Final = 1000
OTHERS_MS: Final = 100


def has_goals(pattern: TopicsPattern, peers: int, method: TopicsMethod) -> bool:
    """Whether the goals are for this number of peers."""
    if method.data:
        return True
    if pattern is TopicsPattern.FILTERS and method.count >= CROWD:
        return peers == CROWD_PEERS
    return peers == PEERS.get(pattern, USUAL_PEERS)


def verdicts(pattern: TopicsPattern, method: TopicsMethod, readings: Sequence[Reading]) -> list[Verdict]:
    """Verdicts on the medians of several readings."""
    if method.data:
        found, extras = [], _of_data(readings)
    else:
        found, extras = list(_of_works(pattern, method, readings)), _of_extras(pattern, method, readings)
    return found + [_verdict(f"{pattern}: {name}", value, goal, unit) for name, value, goal, unit in extras]


def _of_works(pattern: TopicsPattern, method: TopicsMethod, readings: Sequence[Reading]) -> Iterator[Verdict]:
    """Costs, rates and waits. An incomplete work has missed its goals."""
    for name, ratio in RATIOS.get(pattern, {}).items():
        works = [(work, reading.reference) for reading in readings for work in reading.works if work.name == name]
        if works:
            value = _middle(
                [work.cpu_us / reference.cpu_us if work.complete else math.nan for work, reference in works]
            )
            yield _verdict(f"{pattern}: processor time of {name} / of a message to a topic in use", value, ratio)
    first = [reading.works[0] for reading in readings if reading.works]
    if pattern is TopicsPattern.WILD:
        yield Verdict("wild: deliveries a second", _rate_hz(first), WILD_HZ, True)
    elif pattern in (TopicsPattern.NEW, TopicsPattern.AGAIN) and not method.qos:
        yield Verdict(f"{pattern}: new topics a second", _rate_hz(first), NEW_HZ, True)
    elif pattern is TopicsPattern.REQUEST:
        median_ms = _middle([1000 * work.percentile_s(50) if work.complete else math.nan for work in first])
        yield _verdict("request: median wait", median_ms, REQUEST_MS, " ms")


def _of_extras(
    pattern: TopicsPattern, method: TopicsMethod, readings: Sequence[Reading]
) -> Iterator[tuple[str, float, float, str]]:
    """Names, values, goals and units of what is no work."""

    def extra(name: str) -> float:
        return _middle([reading.extra.get(name, math.nan) for reading in readings])

    if pattern in UNIT_BYTES:
        yield "memory of a unit", _middle([reading.unit_bytes for reading in readings]), UNIT_BYTES[pattern], " B"
    if pattern in (TopicsPattern.NEW, TopicsPattern.AGAIN, TopicsPattern.RETAINED):
        growth = _middle([reading.rest_after - reading.rest_before for reading in readings])
        yield "growth of the processor time at rest", growth, REST_CORES, " cores"
    if pattern is TopicsPattern.DEEP:
        goal = max(PUBACK_MS, PUBACK_RATIO * extra("puback_p99.9_without_ms"))
        yield "99.9th percentile of PUBACK beside the longest topics", extra("puback_p99.9_with_ms"), goal, " ms"
    if pattern is TopicsPattern.FILTERS:
        yield "lost messages", extra("lost_messages"), 0, ""
    if pattern is TopicsPattern.FILTERS and method.count >= CROWD:
        yield "time until all filters are granted", extra("granted_s"), GRANTED_S, " s"
        yield "longest PUBACK meanwhile", extra("puback_max_ms"), CROWD_PUBACK_MS, " ms"
        yield (
            "processor time at rest",
            _middle([reading.rest_after for reading in readings]),
            CROWD_REST_CORES,
            " cores",
        )
    if pattern is TopicsPattern.TAKEOVER:
        yield "lost messages", extra("lost_messages"), 0, ""
        yield "longest PUBACK of topics concerned", extra("puback_max_concerned_ms"), CONCERNED_MS, " ms"
        yield "longest PUBACK of other topics", extra("puback_max_others_ms"), OTHERS_MS, " ms"


def _of_data(readings: Sequence[Reading]) -> Iterator[tuple[str, float, float, str]]:
    """Likewise, of one peer with a data folder and many retained topics."""
    works = [work for reading in readings for work in reading.works if work.name == "#"]
    yield "memory of the peer", _middle([reading.memory_after for reading in readings]) / 1e9, DATA_GB, " GB"
    yield "time until # has all", _middle([work.seconds if work.complete else math.nan for work in works]), ALL_S, " s"
    ready_s = _middle([reading.extra.get("ready_after_kill_s", math.nan) for reading in readings])
    yield "time until ready after a kill", ready_s, READY_S, " s"


def _verdict(what: str, value: float, goal: float, unit: str = "") -> Verdict:
    return Verdict(what, value, goal, False, unit)


def _rate_hz(works: Sequence[Work]) -> float:
    return median(work.rate_hz if work.done else 0.0 for work in works)


def _middle(values: Sequence[float]) -> float:
    """The median, where a missing value is worse than any goal."""
    return median(math.inf if math.isnan(value) else value for value in values)
