"""The command: a very short run against RingMQ alone gives figures that make sense."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from click.testing import CliRunner, Result

from experiments import bench
from experiments.benchmarks import crowd

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a benchmark needs two cores")


def run(*options: str) -> Result:
    return CliRunner().invoke(bench.bench, ["front", *options])


def figures_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert isinstance(figures, dict)
    return figures


def test_a_short_run() -> None:
    options = ("--servers", "ringmq", "--pattern", "qos0-1to10", "--quick", "--seconds", "0.05", "--repeats", "1")
    figures = figures_of(run(*options, "--json"))
    assert figures["goals"] == []
    (limit,) = figures["qos0-1to10"]["ringmq"]["at_limit"]
    assert limit["sp_ratio"] == 10
    assert limit["ingress_hz"] > 100
    assert limit["egress_hz"] == pytest.approx(10 * limit["ingress_hz"], rel=0.5)
    for half in figures["qos0-1to10"]["ringmq"]["at_half"]:
        assert 0 < half["latency_p50_s"] <= half["latency_p99_s"] < 60


def test_a_small_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "MESSAGES", 100)
    monkeypatch.setattr(crowd, "ROUNDS", 1)
    figures = figures_of(run("--servers", "ringmq", "--idle", "20", "--filters", "100", "--json"))
    assert set(figures) == {"idle, ringmq", "filters, ringmq", "goals"}
    assert len(figures["goals"]) == 4


def test_the_process_is_left_as_it_was() -> None:
    before = os.sched_getaffinity(0)
    run("--servers", "ringmq", "--idle", "1")
    assert os.sched_getaffinity(0) == before


def test_an_unknown_server_is_told() -> None:
    result = run("--servers", "ringmq,emqx")
    assert result.exit_code == 2
    assert "no server 'emqx': there are ringmq, mosquitto, amqtt" in result.output


def test_no_server_left_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "why_not", lambda name: f"{name} is not installed")
    result = run("--servers", "mosquitto")
    assert result.exit_code == 1
    assert "no server is left" in result.output
