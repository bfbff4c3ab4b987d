"""The commands: output and exit status of small runs."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from ringmq.experiments.benchmarks import kill, pairs, retained
from ringmq.experiments.cli.bench import bench
from ringmq.experiments.load.client import Client
from ringmq.experiments.load.raw_clients import BenchError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(bench, arguments)


def test_pairs_without_faults_ends_with_status_0() -> None:
    result = run("pairs", "--peers", "3", "--pairs", "20", "--at-once", "10", "--dispatch", "guided")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("20 pairs: 0 missed, 0 twice, 0 unanswered\nSUBACK, ")
    assert "the peers counted" in result.stdout


def test_retained_without_faults_ends_with_status_0() -> None:
    result = run("retained", "--peers", "3", "--meetings", "20")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("20 meetings: 0 missed, 0 twice, 0 unanswered\nseen: ")


@pytest.mark.parametrize(
    "command", [("pairs", "--pairs", "3"), ("retained", "--meetings", "5")], ids=lambda command: command[0]
)
def test_loss_ends_with_status_1(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "ARRIVE_S", 0.01)
    monkeypatch.setattr(retained, "ARRIVE_S", 0.01)
    monkeypatch.setattr(Client, "publish", lambda *_, **__: None)
    monkeypatch.setattr(Client, "publish_qos1", lambda *_, **__: None)
    monkeypatch.setattr(retained, "_publish", _nothing)
    result = run(*command, "--peers", "2")
    assert result.exit_code == 1
    assert "missed: " in result.stderr


async def _nothing(*_: object) -> None: ...


def test_kill_without_losses_ends_with_status_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill, "BEFORE_S", 0.3)
    monkeypatch.setattr(kill, "AFTER_S", 0.5)
    result = run("kill", "--peers", "8", "--runs", "3", "--rate", "100", "--within", "60")
    assert result.exit_code == 0, result.output
    heads = [line.split(",")[:2] for line in result.stdout.splitlines() if " runs, " in line]
    assert heads == [
        ["direct", " coordinator: 1 runs"],
        ["direct", " owners: 1 runs"],
        ["guided", " coordinator: 1 runs"],
    ]


def test_ring_that_does_not_survive_a_kill_ends_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise BenchError("no SUBACK came")

    monkeypatch.setattr(kill, "check", broken)
    result = run("kill", "--peers", "8", "--runs", "2")
    assert result.exit_code == 1
    assert result.stdout.startswith("direct, coordinator: 0 runs, ")
    assert "broken off: run 0: no SUBACK came" in result.stderr
    assert "run 1" not in result.stderr


def test_flap_ends_with_status_1_if_memory_is_kept() -> None:
    small = ("--filters", "2", "--retained", "100", "--rate", "20", "--seconds", "0.2", "--quiet", "0")
    result = run("flap", "--peers", "2", *small, "--ratio", "1000")
    assert result.exit_code == 0, result.output
    assert "memory in MB" in result.stdout
    result = run("flap", "--peers", "1", *small, "--ratio", "0.01")
    assert result.exit_code == 1
    assert "kept: " in result.stderr


def test_ring_that_cannot_start_fails_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.experiments.processes.peers.SETTLE_S", 0.0)
    monkeypatch.setattr("ringmq.experiments.processes.peers.SETTLE_S_PER_PEER", 0.0)
    result = run("pairs", "--peers", "2")
    assert result.exit_code == 1
    assert "Error: 2 peers were not one ring after 0 s" in result.output
