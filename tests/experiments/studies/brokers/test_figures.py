"""What the paper states beside what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from ringmq.experiments.benchmarks.comparison import Result
from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.studies.brokers.figures import cpu_s_per_million, latency_ms, quantities, rows


def figures(egress_hz: float, late_s: float = 0.001, cpu: float = 0.5) -> Figures:
    late = tuple(late_s * number / 100 for number in range(1, 101))
    return Figures(egress_hz / 10, egress_hz / 10, egress_hz, 10, 0.0, late, cpu, 0.4, 0.0, 0.0, 0.0)


def result(egress_hz: float, late_s: float | None = 0.001) -> Result:
    at_half = [] if late_s is None else [figures(egress_hz / 2, late_s)]
    return Result([figures(0.9 * egress_hz), figures(egress_hz), figures(1.1 * egress_hz)], at_half=at_half)


def of(found: Any, what: str) -> Any:
    (one,) = [each for each in quantities(found) if each.what == what]
    return one


def test_a_row_for_each_side_of_each_pattern() -> None:
    first, second = rows({"A": {"ringmq": result(1000), "mosquitto": Result()}})
    assert (first["pattern"], first["side"], first["ingress_per_s"], first["egress_per_s"]) == (
        "A",
        "ringmq",
        100,
        1000,
    )
    assert (first["egress_lowest_per_s"], first["egress_highest_per_s"]) == (900, 1100)
    assert first["latency_p50_ms"] == pytest.approx(0.51)
    assert first["latency_p99_ms"] == pytest.approx(1.0)
    assert first["cpu_s_per_million"] == pytest.approx(500)
    assert (first["half_load_ingress_per_s"], first["loss_percent"]) == (50, 0.0)
    assert second.keys() == first.keys()
    assert [second[name] for name in ("egress_per_s", "latency_p50_ms", "cpu_s_per_million")] == [None] * 3


def test_what_was_not_measured_has_no_value() -> None:
    assert latency_ms(Result(), 50) is None
    assert cpu_s_per_million(Result()) is None


def test_the_ring_against_one_mosquitto() -> None:
    found = {"A": {"ringmq": result(950), "mosquitto": result(1000)}, "B": {"ringmq": result(300)}}
    alone = of(found, "pattern A: deliveries/s at the limit, of one Mosquitto's")
    assert (alone.theirs, alone.ours, alone.holds) == (90.0, pytest.approx(95.0), True)
    joined = of(found, "pattern B: deliveries/s at the limit, of one Mosquitto's")
    assert (joined.theirs, joined.ours) == (200.0, None)
    assert joined.note == "one of the two was not measured, or never kept up"


def test_why_five_on_one_core_are_not_faster_is_said() -> None:
    found = {"C": {"ringmq": result(500), "mosquitto": result(1000)}}
    one = of(found, "pattern C: deliveries/s at the limit, of one Mosquitto's")
    assert (one.ours, one.holds) == (50.0, False)
    assert one.note == "their brokers had a machine each, ours share one core"


def test_latency_of_pattern_a_is_to_be_no_longer() -> None:
    one = of({"A": {"ringmq": result(1000, 0.004)}}, "pattern A: latency")
    assert (one.ours, one.holds, one.unit) == (pytest.approx(2.04), True, "ms")
    assert of({"A": {"ringmq": result(1000, 0.1)}}, "pattern A: latency").holds is False


def test_locality_makes_it_faster() -> None:
    found = {name: {"ringmq": result(egress)} for name, egress in (("B", 400), ("C", 1000), ("D", 500))}
    shares = [of(found, f"pattern C: deliveries/s at the limit, of those of pattern {low}").ours for low in "BD"]
    assert shares == [250, 200]


def test_the_ring_against_bridges() -> None:
    found = {"B": {"ringmq": result(1500, 0.001), "bridged": result(1000, 0.004), "nodelay": result(1000, None)}}
    assert of(found, "pattern B: ring against bridged Mosquittos, deliveries/s at the limit").ours == 150
    assert of(found, "pattern B: ring against bridged Mosquittos, p99 latency").ours == pytest.approx(25)
    late = of(found, "pattern B: ring against nodelay Mosquittos, p99 latency")
    assert (late.ours, late.theirs) == (None, None)
    without = {"B": {"bridged": result(1000)}}
    assert of(without, "pattern B: ring against bridged Mosquittos, deliveries/s at the limit").ours is None
