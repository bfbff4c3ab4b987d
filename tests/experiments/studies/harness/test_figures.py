"""What is compared: averages over levels of the worst node and of the spread."""

from __future__ import annotations

import pytest

from ringmq.experiments.studies.harness.approaches import DIRECT, SCRIBE, guided
from ringmq.experiments.studies.harness.figures import (
    NO_TABLES,
    WHY_LESS,
    WHY_SMALL,
    Claim,
    Measure,
    Of,
    both,
    by_level,
    lower_percent,
    mean,
    shown,
)
from tests.experiments.studies.making import box

LATENCY, BANDWIDTH = Measure.LATENCY, Measure.BANDWIDTH
RUNS = {f"{level}-{one.key}": (level, one.key) for level in ("a", "b", "c", "d") for one in (SCRIBE, DIRECT)}
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


def test_only_levels_with_both_count() -> None:
    assert both(BOXES, DIRECT, LATENCY) == ["a", "b"]
    assert both(BOXES, DIRECT, BANDWIDTH) == []
    assert mean(BOXES, ["a", "b"], SCRIBE, LATENCY, Of.MAXIMUM) == pytest.approx(0.020)


def test_how_much_lower() -> None:
    assert lower_percent(BOXES, DIRECT, LATENCY, Of.MAXIMUM) == pytest.approx(50.0)
    assert lower_percent(BOXES, DIRECT, LATENCY, Of.SPREAD) == pytest.approx(50.0)
    assert lower_percent(BOXES, SCRIBE, LATENCY, Of.SPREAD) == pytest.approx(0.0)
    assert lower_percent(BOXES, guided(5), LATENCY, Of.MAXIMUM) is None
    assert lower_percent({}, DIRECT, LATENCY, Of.MAXIMUM) is None


def test_a_claim_that_holds() -> None:
    found = Claim("§1", DIRECT, LATENCY, Of.MAXIMUM, 14).against(BOXES, DIRECT)
    assert found.holds is True
    assert (found.theirs, found.ours, found.unit) == (14, pytest.approx(50.0), "%")
    assert found.what == "highest average latency of a node, Direct below Scribe"
    assert found.note == "10.00 ms against 20.00 ms"


def test_a_claim_that_falls_short() -> None:
    found = Claim("§1", guided(5), LATENCY, Of.SPREAD, 60).against(BOXES, DIRECT)
    assert found.holds is False
    assert found.note == "1.50 ms against 3.00 ms"
    assert "Direct" in found.what


@pytest.mark.parametrize("small", [False, True])
def test_bandwidth_that_falls_short_has_the_reason(small: bool) -> None:
    boxes = {("a", one.key): {BANDWIDTH: box("a", "bandwidth", 4e6, 1e6)} for one in (SCRIBE, DIRECT)}
    found = Claim("§1", DIRECT, BANDWIDTH, Of.SPREAD, 44).against(boxes, DIRECT, small)
    assert found.ours == 0
    assert found.note == "1.000 Mbit/s against 1.000 Mbit/s" + WHY_LESS + (WHY_SMALL if small else "")
    assert WHY_LESS not in Claim("§1", DIRECT, BANDWIDTH, Of.SPREAD, -1).against(boxes, DIRECT, small).note


def test_of_the_worst_node_it_is_said_how_low_it_could_be() -> None:
    boxes = {
        ("a", SCRIBE.key): {BANDWIDTH: box("a", "bandwidth", 8e6, 1e6, mean=3e6)},
        ("a", DIRECT.key): {BANDWIDTH: box("a", "bandwidth", 6e6, 1e6, mean=2e6)},
    }
    found = Claim("§1", DIRECT, BANDWIDTH, Of.MAXIMUM, 44).against(boxes, DIRECT)
    assert found.ours == 25
    assert found.note.endswith("; with as much at every node it would be 2.000 Mbit/s, 75.0 % below")


def test_a_claim_that_was_not_measured() -> None:
    found = Claim("§1", guided(5), BANDWIDTH, Of.SPREAD, 60).against(BOXES, guided(5))
    assert found.holds is found.ours is None
    assert found.note == "Scribe and this were not both measured at any level"
    assert Claim("§1", guided(5), BANDWIDTH, Of.SPREAD, 60).against({}, guided(5)).note == NO_TABLES


def test_units() -> None:
    assert shown(LATENCY, 0.0123) == "12.30 ms"
    assert shown(BANDWIDTH, 1_234_000) == "1.234 Mbit/s"
