"""The group `ringmq collect`: commands are imported on demand, and an unavailable command gives the reason."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from ringmq.collector.cli import main as module
from ringmq.collector.cli.main import collect
from ringmq.collector.errors import CollectorError


@pytest.fixture
def _incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands with a missing module: of a foreign package, and of this package."""
    commands = {
        "far": "tests.collector.missing.package:far",
        "ingest": module.COMMANDS["ingest"],
        "near": "ringmq.collector.missing:near",
    }
    monkeypatch.setattr(module, "COMMANDS", commands)


def run(*arguments: str) -> object:
    return collect.main(list(arguments), prog_name="collect", standalone_mode=False)


@pytest.mark.usefixtures("_incomplete")
def test_unavailable_commands_are_listed_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    shown = [line.split() for line in capsys.readouterr().out.split("Commands:")[1].strip().splitlines()]
    assert [words[0] for words in shown] == ["far", "ingest", "near"]
    assert shown[0][1:3] == ["Not", "available:"]
    assert shown[1][1:3] == ["Store", "the"]


@pytest.mark.usefixtures("_incomplete")
def test_unavailable_command_fails_with_one_line() -> None:
    with pytest.raises(CollectorError) as caught:
        run("far", "--any", "option", "--help")
    error = "No module named 'tests.collector.missing'"
    assert str(caught.value) == f"collect far is not available: {error}; {module.REMEDY}"
    with pytest.raises(CollectorError) as caught:
        run("near")
    assert str(caught.value) == "collect near is not available: No module named 'ringmq.collector.missing'"


def test_unknown_command_is_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match="No such command 'nonsense'"):
        run("nonsense")


def test_all_commands_are_listed() -> None:
    assert collect.list_commands(click.Context(collect)) == ["all", "ingest", "reduce", "show", "stream"]


def test_commands_are_not_imported_with_the_group() -> None:
    program = (
        "import sys, ringmq.collector.cli.main; print([name for name in ('paho', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
