"""Figures of nodes, and the differences between simulated and other rings."""

from __future__ import annotations

import pytest

from ringmq.experiments.studies.harness.approaches import DIRECT, SCRIBE, WITHOUT_BOUND, Approach
from ringmq.experiments.studies.scale.figures import (
    CORES,
    REAL,
    SIMULATED,
    RingFigures,
    below_scribe,
    differences,
    of_nodes,
    of_tally,
    quantities,
    rows,
    summary,
)
from ringmq.experiments.studies.scale.multicast import NodeTally


def ring_of(
    source: str, *messages: float, approach: Approach = DIRECT, nodes: int = 2, late_ms: float = 5.0
) -> RingFigures:
    sizes_bytes = [1000 * count + 100 for count in messages]
    return of_nodes(nodes, approach, source, messages, sizes_bytes, [late_ms, 2 * late_ms])


def test_summary_has_the_deviation_of_the_population() -> None:
    found = summary([1.0, 2.0, 6.0])
    assert (found.mean, found.maximum) == (3.0, 6.0)
    assert found.deviation == pytest.approx((14 / 3) ** 0.5)


def test_figures_of_a_tally_are_per_published_message() -> None:
    tally = NodeTally(3)
    tally.copies, tally.bytes = [4, 2, 0], [400, 200, 0]
    for at in (0.002, 0.004):
        tally.give(1, at)
    figures = of_tally(3, SCRIBE, SIMULATED, tally, 2)
    assert figures.measures["messages"].maximum == 2.0
    assert figures.measures["bytes"].mean == 100.0
    assert figures.measures["latency_ms"].mean == pytest.approx(3.0), "only of nodes with deliveries"


def test_rows_have_all_statistics() -> None:
    (row,) = rows([ring_of(REAL, 1.0, 3.0)])
    assert (row["nodes"], row["approach"], row["source"]) == (2, "Direct", REAL)
    assert (row["messages_mean"], row["messages_maximum"], row["messages_deviation"]) == (2.0, 3.0, 1.0)
    assert (row["bytes_maximum"], row["latency_ms_mean"]) == (3100.0, 7.5)


def test_only_rings_of_equal_size_and_approach_are_compared() -> None:
    rings = [
        ring_of(SIMULATED, 1.0, 3.0),
        ring_of(REAL, 1.0, 4.0),
        ring_of(REAL, 1.0, 4.0, approach=SCRIBE),
        ring_of(REAL, 1.0, 4.0, nodes=7),
    ]
    compared = differences(rings)
    assert {(row["nodes"], row["approach"], row["against"]) for row in compared} == {(2, "Direct", REAL)}
    assert len(compared) == 9
    by_name = {(row["measure"], row["statistic"]): row for row in compared}
    assert by_name["messages", "maximum"]["difference_percent"] == -25.0
    assert (by_name["bytes", "mean"]["simulated"], by_name["bytes", "mean"]["other"]) == (2100.0, 2600.0)
    assert by_name["latency_ms", "mean"]["difference_percent"] == 0.0


def test_difference_from_zero_has_no_percentage() -> None:
    compared = differences([ring_of(SIMULATED, 1.0, 1.0), ring_of(REAL, 0.0, 0.0)])
    by_name = {(row["measure"], row["statistic"]): row["difference_percent"] for row in compared}
    assert by_name["messages", "mean"] is None
    assert by_name["messages", "deviation"] == 0.0


def test_largest_difference_is_listed_with_its_ring() -> None:
    compared = differences(
        [
            ring_of(SIMULATED, 1.0, 3.0, late_ms=5.0),
            ring_of(SIMULATED, 1.0, 3.0, approach=SCRIBE),
            ring_of(REAL, 1.0, 3.3, late_ms=50.0),
            ring_of(REAL, 1.0, 3.0, approach=SCRIBE),
            ring_of(CORES, 1.0, 4.0),
        ]
    )
    listed = quantities(compared)
    real, cores = listed[:2]
    assert real.ours == pytest.approx(100 * 0.3 / 3.3)
    assert (real.theirs, real.holds) == (15.0, True)
    assert real.note == "Direct, 2 nodes, messages maximum"
    assert cores.ours == pytest.approx(25.0)
    assert cores.holds is False
    latencies = [quantity for quantity in listed if "latency_ms mean" in quantity.what]
    assert [quantity.ours for quantity in latencies] == [pytest.approx(90.0)]
    assert all(quantity.theirs is None and quantity.holds is None for quantity in listed[2:])


def test_quantities_without_another_ring_have_a_note() -> None:
    listed = quantities(differences([ring_of(SIMULATED, 1.0, 2.0)]))
    assert all(quantity.ours is None and quantity.note for quantity in listed)


def test_largest_simulated_ring_is_compared_with_scribe() -> None:
    listed = below_scribe(
        [
            ring_of(SIMULATED, 1.0, 9.0, approach=SCRIBE),
            ring_of(SIMULATED, 1.0, 4.0, approach=SCRIBE, nodes=50),
            ring_of(SIMULATED, 1.0, 3.0, nodes=50, late_ms=10.0),
            ring_of(SIMULATED, 1.0, 3.0, approach=WITHOUT_BOUND, nodes=50),
            ring_of(REAL, 1.0, 3.0, nodes=500),
        ]
    )
    assert [quantity.what.partition(": ")[0] for quantity in listed] == ["50 simulated nodes"] * 2
    assert [quantity.ours for quantity in listed] == [pytest.approx(100 * 1000 / 4100), -100.0]
    assert [quantity.note for quantity in listed] == ["3,100 against 4,100 B", "20 against 10 ms"]
    assert below_scribe([ring_of(SIMULATED, 1.0, 3.0)]) == below_scribe([]) == []
