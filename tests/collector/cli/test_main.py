"""The group `ringmq collect`: its commands are imported as they are asked for, and one that cannot be says why."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from ringmq.collector.cli import main as module
from ringmq.collector.cli.main import collect
from ringmq.collector.errors import CollectorError


@pytest.fixture
def _odd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of which something is missing: a package of others, a module of ours."""
    commands = {
        "far": "tests.collector.missing.package:far",
        "ingest": module.COMMANDS["ingest"],
        "near": "ringmq.collector.missing:near",
    }
    monkeypatch.setattr(module, "COMMANDS", commands)


def run(*arguments: str) -> object:
    return collect.main(list(arguments), prog_name="collect", standalone_mode=False)


@pytest.mark.usefixtures("_odd")
def test_commands_are_listed_with_those_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    shown = [line.split() for line in capsys.readouterr().out.split("Commands:")[1].strip().splitlines()]
    assert [words[0] for words in shown] == ["far", "ingest", "near"]
    assert shown[0][1:3] == ["Not", "available:"]
    assert shown[1][1:3] == ["Take", "what"]


@pytest.mark.usefixtures("_odd")
def test_what_is_missing_is_said_in_one_line() -> None:
    with pytest.raises(CollectorError) as caught:
        run("far", "--any", "option", "--help")
    what = "No module named 'tests.collector.missing'"
    assert str(caught.value) == f"collect far is not available: {what}; {module.REMEDY}"
    with pytest.raises(CollectorError) as caught:
        run("near")
    assert str(caught.value) == "collect near is not available: No module named 'ringmq.collector.missing'"


def test_a_name_that_there_is_not_is_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match="No such command 'nonsense'"):
        run("nonsense")


def test_all_commands_are_named() -> None:
    assert collect.list_commands(click.Context(collect)) == ["all", "ingest", "reduce", "show", "stream"]


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    program = (
        "import sys, ringmq.collector.cli.main; print([name for name in ('paho', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
