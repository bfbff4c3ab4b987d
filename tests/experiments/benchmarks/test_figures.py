"""Conclusions from the figures of one measurement."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from ringmq.experiments.benchmarks.figures import Figures

Make = Callable[..., Figures]


def test_percentile_of_latencies(figures: Make) -> None:
    assert figures().percentile_s(50) == 0.051
    assert figures().percentile_s(99) == 0.1
    assert figures(latencies_s=(0.2,)).percentile_s(99.9) == 0.2
    assert math.isnan(figures(latencies_s=()).percentile_s(50))


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"egress_hz": 9890.0}, False),
        ({"ingress_hz": 980.0, "egress_hz": 9800.0}, False),
        ({"ingress_hz": 995.0, "egress_hz": 9900.0}, True),
    ],
)
def test_server_keeps_up_if_it_accepts_the_offer_and_queues_nothing(
    figures: Make, changes: dict[str, float], holds: bool
) -> None:
    assert figures(**changes).keeps_up is holds


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        ({"ingress_hz": 900.0, "egress_hz": 9000.0, "generator_cpu": 1.0}, True),
        ({"ingress_hz": 900.0, "egress_hz": 9000.0, "generator_cpu": 0.5, "generator_waited": 0.5}, True),
        ({"ingress_hz": 900.0, "egress_hz": 8000.0, "generator_cpu": 1.0}, False),
        ({"ingress_hz": 900.0, "egress_hz": 9000.0, "generator_cpu": 1.0, "blocked": 0.2}, False),
        ({"ingress_hz": 900.0, "egress_hz": 9000.0, "generator_cpu": 0.5}, False),
        ({"generator_cpu": 1.0}, False),
    ],
)
def test_generator_is_the_bound_if_it_is_busy_and_the_server_keeps_up(
    figures: Make, changes: dict[str, float], bound: bool
) -> None:
    assert figures(**changes).generator_bound is bound


def test_waiting_times_and_costs_follow_from_the_figures(figures: Make) -> None:
    assert figures(server_waited=0.1, generator_waited=0.3).waited == 0.3
    assert figures(server_cpu=0.25).egress_per_cpu_s == 40_000
    assert math.isnan(figures(server_cpu=0.0).egress_per_cpu_s)
    assert figures(server_cpu=0.25).cpu_s_per_million == 25
    assert math.isnan(figures(egress_hz=0.0).cpu_s_per_million)
