"""Verdicts on goals that are reached or missed."""

from __future__ import annotations

from collections.abc import Callable

from ringmq.experiments.benchmarks.comparison import Result
from ringmq.experiments.benchmarks.crowd import FilterFigures, IdleFigures
from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.benchmarks.goals import Verdict, of_filters, of_idle, of_pattern, of_ring

Make = Callable[..., Figures]


def result(make: Make, egress: list[float], p99_s: list[float], lower_bound: bool = False) -> Result:
    at_half = [make(latencies_s=(latency_s,)) for latency_s in p99_s]
    return Result([make(egress_hz=egress_hz) for egress_hz in egress], lower_bound, at_half)


def test_verdicts_are_ratios_to_mosquitto_and_amqtt(figures: Make) -> None:
    results = {
        "ringmq": result(figures, [900, 1000, 1100], [0.002, 0.002, 0.003]),
        "mosquitto": result(figures, [450, 500, 500], [0.001, 0.001, 0.001]),
        "amqtt": result(figures, [200, 200, 200], []),
    }
    egress, p99, amqtt = of_pattern("qos0-1to10", results)
    assert (egress.value, egress.low, egress.high, egress.reached) == (2.0, 2.0, 2.2, True)
    assert (p99.value, p99.low, p99.high, p99.reached) == (2.0, 2.0, 3.0, False)
    assert (amqtt.value, amqtt.reached) == (5.0, False)
    assert str(p99) == "MISSED: qos0-1to10 p99 latency / Mosquitto's 2 (2.00-3.00), goal <= 1.5"


def test_goal_depends_on_the_pattern(figures: Make) -> None:
    results = {"ringmq": result(figures, [800], []), "mosquitto": result(figures, [1000], [])}
    reached = {name: of_pattern(name, results)[0].reached for name in ("qos0-1to10", "qos0-1to1", "qos1-1to1")}
    assert reached == {"qos0-1to10": False, "qos0-1to1": False, "qos1-1to1": True}


def test_patterns_without_a_goal_are_not_judged(figures: Make) -> None:
    results = {"ringmq": result(figures, [1], [1]), "mosquitto": result(figures, [1], [1])}
    assert of_pattern("qos2-1to1", results) == []


def test_verdicts_compare_a_ring_with_bridges(figures: Make) -> None:
    results = {
        "ringmq": result(figures, [110], [0.001]),
        "bridged": result(figures, [100], [0.001]),
        "nodelay": result(figures, [50], []),
        "mosquitto": result(figures, [1000], [0.001]),
    }
    patterns = ("two-1to10", "two-1to1", "five-B")
    reached = {name: [verdict.reached for verdict in of_ring(name, results)] for name in patterns}
    assert reached == {"two-1to10": [False, True, True], "two-1to1": [True, True, True], "five-B": []}
    assert str(of_ring("two-1to10", results)[0]).startswith(
        "MISSED: two-1to10 egress / bridged Mosquittos' 1.1 (1.10-1.10), goal >= 1.2"
    )
    assert of_ring("two-1to10", {"bridged": result(figures, [1], [1])}) == []
    assert of_ring("two-1to10", {"ringmq": result(figures, [1], [1])}) == []


def test_there_are_no_verdicts_without_other_servers(figures: Make) -> None:
    assert of_pattern("qos0-1to1", {"ringmq": result(figures, [1], [1])}) == []
    assert of_pattern("qos0-1to1", {"mosquitto": result(figures, [1], [1])}) == []


def test_ringmq_that_never_keeps_up_misses_all_goals(figures: Make) -> None:
    verdicts = of_pattern("qos0-1to1", {"ringmq": Result(), "mosquitto": result(figures, [10], [1])})
    assert [verdict.reached for verdict in verdicts] == [False, False]


def test_verdict_has_a_note_about_a_lower_bound(figures: Make) -> None:
    results = {"ringmq": result(figures, [10], [], lower_bound=True), "mosquitto": result(figures, [10], [])}
    assert "RingMQ's limit is higher" in str(of_pattern("qos0-1to1", results)[0])


def test_verdicts_on_a_crowd() -> None:
    assert [verdict.reached for verdict in of_idle(IdleFigures(10_000, 20_001.0, 0.004))] == [False, True]
    assert [verdict.reached for verdict in of_filters(FilterFigures(100_000, 1.1, 1.3, 1e-6, 1e-5))] == [True, False]


def test_value_equal_to_the_goal_reaches_it() -> None:
    assert Verdict("a", 1.0, 1.0, at_least=True).reached
    assert Verdict("a", 1.0, 1.0, at_least=False).reached
