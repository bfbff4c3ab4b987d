"""The command: very short runs give plausible figures, and errors are one line."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ringmq.experiments.benchmarks import comparison, crowd
from ringmq.experiments.benchmarks.report import Report
from ringmq.experiments.cli import bench
from ringmq.experiments.load import reachability
from ringmq.experiments.processes import sides
from ringmq.experiments.processes.servers import Server, running
from tests.conftest import Eventually, Process

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a benchmark needs two cores")


SHORT = ("--quick", "--seconds", "0.05", "--repeats", "1", "--patience", "1", "--json")
FRONT = (*SHORT, "--servers", "ringmq", "--pattern", "qos0-1to10")


def run(*options: str, command: str = "front") -> Result:
    return CliRunner().invoke(bench.bench, [command, *options])


def figures_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert isinstance(figures, dict)
    return figures


def test_short_run_gives_plausible_figures() -> None:
    figures = figures_of(run(*FRONT))
    assert figures["goals"] == []
    (limit,) = figures["qos0-1to10"]["ringmq"]["at_limit"]
    assert limit["sp_ratio"] == 10
    assert limit["ingress_hz"] > 100
    assert limit["egress_hz"] == pytest.approx(10 * limit["ingress_hz"], rel=0.5)
    for half in figures["qos0-1to10"]["ringmq"]["at_half"]:
        assert 0 < half["latency_p50_s"] <= half["latency_p99_s"] < 60


def test_short_run_with_another_qos_and_payload_is_named_after_them() -> None:
    figures = figures_of(run(*FRONT, "--qos", "2", "--payload", "1000"))
    assert set(figures) == {"qos2-1to10-1000B", "goals"}
    (limit,) = figures["qos2-1to10-1000B"]["ringmq"]["at_limit"]
    assert (limit["sp_ratio"], limit["loss"]) == (10, 0)


@pytest.mark.parametrize("patience", [0, 2])
def test_disturbed_measurements_are_repeated_as_often_as_told(patience: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "DISTURBED", -1.0)
    measured: list[float] = []
    monkeypatch.setattr(Report, "measured", lambda report, name, figures: measured.append(figures.offered_hz))
    figures_of(run(*FRONT, "--patience", str(patience)))
    half_hz = measured[-1]
    assert measured[-1 - patience :] == [half_hz] * (1 + patience)
    assert measured.count(half_hz) == 1 + patience


def test_idle_and_filters_are_measured_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "MESSAGES", 100)
    monkeypatch.setattr(crowd, "ROUNDS", 1)
    figures = figures_of(run("--servers", "ringmq", "--idle", "20", "--filters", "100", "--json"))
    assert set(figures) == {"idle, ringmq", "filters, ringmq", "goals"}
    assert len(figures["goals"]) == 4


def test_core_affinity_of_the_process_is_restored() -> None:
    before = os.sched_getaffinity(0)
    run("--servers", "ringmq", "--idle", "1")
    assert os.sched_getaffinity(0) == before


def test_unknown_server_is_a_usage_error() -> None:
    result = run("--servers", "ringmq,emqx")
    assert result.exit_code == 2
    assert "no server 'emqx': there are ringmq, mosquitto, amqtt" in result.output


def test_run_without_any_available_server_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "why_not", lambda name: f"{name} is not installed")
    result = run("--servers", "mosquitto")
    assert result.exit_code == 1
    assert "no server is left" in result.output


@pytest.mark.skipif(sides.why_not("bridged") is not None, reason=str(sides.why_not("bridged")))
def test_short_run_over_several_servers_gives_plausible_figures() -> None:
    result = run(*SHORT, "--pattern", "two-1to1", "--sides", "bridged,mosquitto", command="ring")
    figures = figures_of(result)
    assert set(figures) == {"two-1to1", "goals"}
    assert set(figures["two-1to1"]) == {"bridged", "mosquitto"}
    assert figures["goals"] == []
    for side in figures["two-1to1"].values():
        for limit in side["at_limit"]:
            assert limit["egress_hz"] == pytest.approx(limit["ingress_hz"], rel=0.5)
    assert "cpu s/million" in result.stderr


@pytest.mark.parametrize("arguments", [("front", "--servers", "ringmq", "--seconds", "600"), ("pairs", "--peers", "2")])
def test_sigterm_ends_all_started_servers(
    start: Callable[..., Process], arguments: tuple[str, ...], eventually: Eventually
) -> None:
    process = start("bench", *arguments)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    pids = eventually(lambda: children.read_text().split(), 30, "a server")
    assert process.end(signal.SIGTERM, within_s=30) == 130
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 20, "the end of the servers")


def test_servers_that_pass_no_messages_fail_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def strangers(side: str, count: int, core: int) -> Iterator[list[Server]]:
        with ExitStack() as stack:
            yield [stack.enter_context(running("ringmq", core)) for _ in range(count)]

    monkeypatch.setattr(sides, "joined", strangers)
    monkeypatch.setattr(reachability, "PASSAGE_S", 0.05)
    monkeypatch.setattr(reachability, "ROUND_S", 0.05)
    result = run(*SHORT, "--pattern", "two-1to1", "--sides", "ringmq", command="ring")
    assert result.exit_code == 1
    assert "ringmq: no message came through: published at 127.0.0.1:" in result.output


def test_unknown_side_is_a_usage_error() -> None:
    result = run("--sides", "ringmq,emqx", command="ring")
    assert result.exit_code == 2
    assert "no side 'emqx': there are ringmq, bridged, nodelay, mosquitto" in result.output
