"""Figures of the paper beside the measurements."""

from __future__ import annotations

from typing import Any

import pytest

from ringmq.experiments.benchmarks.comparison import Result
from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.studies.brokers.figures import cpu_s_per_million, latency_ms, quantities, rows


def figures(egress_hz: float, slowest_s: float = 0.001, cpu: float = 0.5) -> Figures:
    latencies_s = tuple(slowest_s * number / 100 for number in range(1, 101))
    return Figures(egress_hz / 10, egress_hz / 10, egress_hz, 10, 0.0, latencies_s, cpu, 0.4, 0.0, 0.0, 0.0)


def result(egress_hz: float, slowest_s: float | None = 0.001) -> Result:
    at_half = [] if slowest_s is None else [figures(egress_hz / 2, slowest_s)]
    return Result([figures(0.9 * egress_hz), figures(egress_hz), figures(1.1 * egress_hz)], at_half=at_half)


def quantity_of(found: Any, what: str) -> Any:
    (quantity,) = [each for each in quantities(found) if each.what == what]
    return quantity


def test_each_side_of_each_pattern_has_a_row() -> None:
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


def test_side_without_measurements_has_no_figures() -> None:
    assert latency_ms(Result(), 50) is None
    assert cpu_s_per_million(Result()) is None


def test_ring_is_compared_with_one_mosquitto() -> None:
    found = {"A": {"ringmq": result(950), "mosquitto": result(1000)}, "B": {"ringmq": result(300)}}
    alone = quantity_of(found, "pattern A: deliveries/s at the limit, of one Mosquitto's")
    assert (alone.theirs, alone.ours, alone.holds) == (90.0, pytest.approx(95.0), True)
    joined = quantity_of(found, "pattern B: deliveries/s at the limit, of one Mosquitto's")
    assert (joined.theirs, joined.ours) == (200.0, None)
    assert joined.note == "one of the two was not measured or never kept up"


def test_five_brokers_on_one_core_have_a_note_about_the_core() -> None:
    found = {"C": {"ringmq": result(500), "mosquitto": result(1000)}}
    quantity = quantity_of(found, "pattern C: deliveries/s at the limit, of one Mosquitto's")
    assert (quantity.ours, quantity.holds) == (50.0, False)
    assert quantity.note == "their brokers had a machine each, ours share one core"


def test_latency_of_pattern_a_holds_if_it_is_at_most_the_papers() -> None:
    quantity = quantity_of({"A": {"ringmq": result(1000, 0.004)}}, "pattern A: latency")
    assert (quantity.ours, quantity.holds, quantity.unit) == (pytest.approx(2.04), True, "ms")
    assert quantity_of({"A": {"ringmq": result(1000, 0.1)}}, "pattern A: latency").holds is False


def test_pattern_c_is_compared_with_the_patterns_of_lower_locality() -> None:
    found = {name: {"ringmq": result(egress)} for name, egress in (("B", 400), ("C", 1000), ("D", 500))}
    names = [f"pattern C: deliveries/s at the limit, of pattern {low}'s" for low in "BD"]
    assert [quantity_of(found, name).ours for name in names] == [250, 200]


def test_ring_is_compared_with_bridged_mosquittos() -> None:
    found = {"B": {"ringmq": result(1500, 0.001), "bridged": result(1000, 0.004), "nodelay": result(1000, None)}}
    name = "pattern B: ring against bridged Mosquittos, deliveries/s at the limit"
    assert quantity_of(found, name).ours == 150
    latency = "pattern B: ring against bridged Mosquittos, p99 latency"
    assert quantity_of(found, latency).ours == pytest.approx(25)
    late = quantity_of(found, "pattern B: ring against nodelay Mosquittos, p99 latency")
    assert (late.ours, late.theirs) == (None, None)
    assert quantity_of({"B": {"bridged": result(1000)}}, name).ours is None
