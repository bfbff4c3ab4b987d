"""Compared figures: averages over the levels of the worst node and of the spread."""

from __future__ import annotations

import pytest

from ringmq.experiments.studies.harness.approaches import DIRECT, SCRIBE, guided
from ringmq.experiments.studies.harness.figures import (
    NO_TABLES,
    WHY_LESS,
    WHY_SMALL,
    Claim,
    Measure,
    Statistic,
    by_level,
    common_levels,
    lower_percent,
    mean,
    with_unit,
)
from tests.experiments.studies.making import box

LATENCY, BANDWIDTH = Measure.LATENCY, Measure.BANDWIDTH
RUNS = {f"{level}-{key}": (level, key) for level in ("a", "b", "c", "d") for key in (SCRIBE.key, DIRECT.key)}
BOXES = by_level(
    [
        box("a-scribe", "latency", 0.010, 0.002),
        box("b-scribe", "latency", 0.030, 0.004),
        box("c-scribe", "latency", 0.900, 0.900),
        box("a-direct", "latency", 0.008, 0.001),
        box("b-direct", "latency", 0.012, 0.002),
        box("a-direct", "bandwidth", 8e6, 1e6),
        box("d-direct", "latency", 5.0, 5.0),
        box("somebody-else", "latency", 9.0, 9.0),
    ],
    RUNS,
)


def test_rows_are_found_by_level_and_approach() -> None:
    assert list(BOXES) == [
        ("a", "scribe"),
        ("b", "scribe"),
        ("c", "scribe"),
        ("a", "direct"),
        ("b", "direct"),
        ("d", "direct"),
    ]
    assert set(BOXES["a", "direct"]) == {LATENCY, BANDWIDTH}


def test_only_levels_with_both_approaches_count() -> None:
    assert common_levels(BOXES, DIRECT, LATENCY) == ["a", "b"]
    assert common_levels(BOXES, DIRECT, BANDWIDTH) == []
    assert mean(BOXES, ["a", "b"], SCRIBE, LATENCY, Statistic.MAXIMUM) == pytest.approx(0.020)


def test_lower_percent_compares_averages_over_the_levels() -> None:
    assert lower_percent(BOXES, DIRECT, LATENCY, Statistic.MAXIMUM) == pytest.approx(50.0)
    assert lower_percent(BOXES, DIRECT, LATENCY, Statistic.SPREAD) == pytest.approx(50.0)
    assert lower_percent(BOXES, SCRIBE, LATENCY, Statistic.SPREAD) == pytest.approx(0.0)
    assert lower_percent(BOXES, guided(5), LATENCY, Statistic.MAXIMUM) is None
    assert lower_percent({}, DIRECT, LATENCY, Statistic.MAXIMUM) is None


def test_claim_that_is_reached_holds() -> None:
    found = Claim("§1", DIRECT, LATENCY, Statistic.MAXIMUM, 14).against(BOXES, DIRECT)
    assert found.holds is True
    assert (found.theirs, found.ours, found.unit) == (14, pytest.approx(50.0), "%")
    assert found.what == "highest average latency of a node, Direct below Scribe"
    assert found.note == "10.00 ms against 20.00 ms"


def test_claim_that_falls_short_does_not_hold() -> None:
    found = Claim("§1", guided(5), LATENCY, Statistic.SPREAD, 60).against(BOXES, DIRECT)
    assert found.holds is False
    assert found.note == "1.50 ms against 3.00 ms"
    assert "Direct" in found.what


@pytest.mark.parametrize("small", [False, True])
def test_bandwidth_that_falls_short_has_a_note_with_the_reason(small: bool) -> None:
    boxes = {("a", key): {BANDWIDTH: box("a", "bandwidth", 4e6, 1e6)} for key in (SCRIBE.key, DIRECT.key)}
    found = Claim("§1", DIRECT, BANDWIDTH, Statistic.SPREAD, 44).against(boxes, DIRECT, small)
    assert found.ours == 0
    assert found.note == "1.000 Mbit/s against 1.000 Mbit/s" + WHY_LESS + (WHY_SMALL if small else "")
    assert WHY_LESS not in Claim("§1", DIRECT, BANDWIDTH, Statistic.SPREAD, -1).against(boxes, DIRECT, small).note


def test_note_on_the_worst_node_has_the_lowest_possible_bandwidth() -> None:
    boxes = {
        ("a", SCRIBE.key): {BANDWIDTH: box("a", "bandwidth", 8e6, 1e6, mean=3e6)},
        ("a", DIRECT.key): {BANDWIDTH: box("a", "bandwidth", 6e6, 1e6, mean=2e6)},
    }
    found = Claim("§1", DIRECT, BANDWIDTH, Statistic.MAXIMUM, 44).against(boxes, DIRECT)
    assert found.ours == 25
    assert found.note.endswith("; with an equal load at every node it would be 2.000 Mbit/s, 75.0 % below")


def test_claim_without_measurements_has_no_figure() -> None:
    found = Claim("§1", guided(5), BANDWIDTH, Statistic.SPREAD, 60).against(BOXES, guided(5))
    assert found.holds is found.ours is None
    assert found.note == "no level has measurements of both Scribe and Guided F=5"
    assert Claim("§1", guided(5), BANDWIDTH, Statistic.SPREAD, 60).against({}, guided(5)).note == NO_TABLES


def test_values_have_the_units_for_readers() -> None:
    assert with_unit(LATENCY, 0.0123) == "12.30 ms"
    assert with_unit(BANDWIDTH, 1_234_000) == "1.234 Mbit/s"
