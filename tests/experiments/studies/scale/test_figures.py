"""Figures of nodes, and how far simulated ones are from others."""

from __future__ import annotations

import pytest

from ringmq.experiments.studies.harness.approaches import DIRECT, SCRIBE, WITHOUT_BOUND, Approach
from ringmq.experiments.studies.scale.figures import (
    CORES,
    REAL,
    SIMULATED,
    Found,
    below_scribe,
    differences,
    of_nodes,
    of_tally,
    quantities,
    rows,
    summary,
)
from ringmq.experiments.studies.scale.multicast import Tally


def found(source: str, *messages: float, approach: Approach = DIRECT, nodes: int = 2, late_ms: float = 5.0) -> Found:
    return of_nodes(nodes, approach, source, messages, [1000 * one + 100 for one in messages], [late_ms, 2 * late_ms])


def test_a_summary() -> None:
    one = summary([1.0, 2.0, 6.0])
    assert (one.mean, one.maximum) == (3.0, 6.0)
    assert one.deviation == pytest.approx((14 / 3) ** 0.5)


def test_a_tally_counts_for_each_message() -> None:
    tally = Tally(3)
    tally.copies, tally.bytes = [4, 2, 0], [400, 200, 0]
    for at in (0.002, 0.004):
        tally.give(1, at)
    one = of_tally(3, SCRIBE, SIMULATED, tally, 2)
    assert one.measures["messages"].maximum == 2.0
    assert one.measures["bytes"].mean == 100.0
    assert one.measures["latency_ms"].mean == pytest.approx(3.0), "of those that were given anything"


def test_rows_have_all_statistics() -> None:
    (row,) = rows([found(REAL, 1.0, 3.0)])
    assert (row["nodes"], row["approach"], row["source"]) == (2, "Direct", REAL)
    assert (row["messages_mean"], row["messages_maximum"], row["messages_deviation"]) == (2.0, 3.0, 1.0)
    assert (row["bytes_maximum"], row["latency_ms_mean"]) == (3100.0, 7.5)


def test_only_the_same_ring_is_compared() -> None:
    all_found = [
        found(SIMULATED, 1.0, 3.0),
        found(REAL, 1.0, 4.0),
        found(REAL, 1.0, 4.0, approach=SCRIBE),
        found(REAL, 1.0, 4.0, nodes=7),
    ]
    compared = differences(all_found)
    assert {(row["nodes"], row["approach"], row["against"]) for row in compared} == {(2, "Direct", REAL)}
    assert len(compared) == 9
    by_name = {(row["measure"], row["statistic"]): row for row in compared}
    assert by_name["messages", "maximum"]["difference_percent"] == -25.0
    assert (by_name["bytes", "mean"]["simulated"], by_name["bytes", "mean"]["other"]) == (2100.0, 2600.0)
    assert by_name["latency_ms", "mean"]["difference_percent"] == 0.0


def test_nothing_is_no_share_of_something() -> None:
    compared = differences([found(SIMULATED, 1.0, 1.0), found(REAL, 0.0, 0.0)])
    by_name = {(row["measure"], row["statistic"]): row["difference_percent"] for row in compared}
    assert by_name["messages", "mean"] is None
    assert by_name["messages", "deviation"] == 0.0


def test_the_largest_difference_is_told_with_its_place() -> None:
    compared = differences(
        [
            found(SIMULATED, 1.0, 3.0, late_ms=5.0),
            found(SIMULATED, 1.0, 3.0, approach=SCRIBE),
            found(REAL, 1.0, 3.3, late_ms=50.0),
            found(REAL, 1.0, 3.0, approach=SCRIBE),
            found(CORES, 1.0, 4.0),
        ]
    )
    told = quantities(compared)
    real, cores = told[:2]
    assert real.ours == pytest.approx(100 * 0.3 / 3.3)
    assert (real.theirs, real.holds) == (15.0, True)
    assert real.note == "Direct, 2 nodes, messages maximum"
    assert cores.ours == pytest.approx(25.0)
    assert cores.holds is False
    latencies = [one for one in told if "latency_ms mean" in one.what]
    assert [one.ours for one in latencies] == [pytest.approx(90.0)]
    assert all(one.theirs is None and one.holds is None for one in told[2:])


def test_nothing_to_compare_with_is_told() -> None:
    assert all(one.ours is None and one.note for one in quantities(differences([found(SIMULATED, 1.0, 2.0)])))


def test_the_largest_ring_is_compared_with_scribe() -> None:
    told = below_scribe(
        [
            found(SIMULATED, 1.0, 9.0, approach=SCRIBE),
            found(SIMULATED, 1.0, 4.0, approach=SCRIBE, nodes=50),
            found(SIMULATED, 1.0, 3.0, nodes=50, late_ms=10.0),
            found(SIMULATED, 1.0, 3.0, approach=WITHOUT_BOUND, nodes=50),
            found(REAL, 1.0, 3.0, nodes=500),
        ]
    )
    assert [one.what.partition(": ")[0] for one in told] == ["50 simulated nodes"] * 2
    assert [one.ours for one in told] == [pytest.approx(100 * 1000 / 4100), -100.0]
    assert [one.note for one in told] == ["3,100 against 4,100 B", "20 against 10 ms"]
    assert below_scribe([found(SIMULATED, 1.0, 3.0)]) == below_scribe([]) == []
