"""The command: names, folders, printed results and exit status."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from ringmq.experiments.cli import experiment as command
from ringmq.experiments.cli.experiment import EXPERIMENTS, experiment
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Outcome, Quantity, Request
from tests.conftest import Eventually, Process


def outcome(**changes: object) -> Outcome:
    found = Outcome(quantities=[Quantity("latency", "§1", 14, 50.0, "%")], tables={"levels": [{"level": "1"}]})
    for name, value in changes.items():
        setattr(found, name, value)
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Request]]:
    """Replaces the real experiments by two; returns the requests that each of them gets."""
    requests: dict[str, list[Request]] = {"one": [], "two": []}

    def play(name: str) -> Callable[[Request], Outcome]:
        def run(request: Request) -> Outcome:
            requests[name].append(request)
            (request.folder / "plot.png").write_bytes(b"")
            request.progress.begin(1)
            request.progress.step("all")
            return outcome(plots=[request.folder / "plot.png"])

        return run

    monkeypatch.setattr(command, "_load", play)
    monkeypatch.setattr(command, "EXPERIMENTS", dict.fromkeys(requests, "nowhere"))
    return requests


def run(*arguments: str) -> Result:
    return CliRunner().invoke(experiment, arguments, standalone_mode=False)


def test_experiment_gets_the_options_and_its_results_are_printed_and_stored(
    asked: dict[str, list[Request]], tmp_path: Path
) -> None:
    result = run("two", "--quick", "--seed", "7", "--out", str(tmp_path / "out"))
    assert (result.exit_code, result.return_value) == (0, 0), result.output
    (request,) = asked["two"]
    assert (request.quick, request.seed) == (True, 7)
    assert asked["one"] == []
    assert "two (quick: rings are smaller than in the papers, seed 7)" in result.stdout
    assert "latency   §1      14 %  50 %  as good" in result.stdout
    assert "two: 1/1 (all)" in result.stderr
    kept = tmp_path / "out" / "two"
    assert json.loads((kept / "summary.json").read_text())["seed"] == 7
    assert {file.name for file in kept.iterdir()} == {"summary.json", "levels.csv", "plot.png"}


def test_all_runs_each_experiment_once(asked: dict[str, list[Request]], tmp_path: Path) -> None:
    assert run("one", "all", "one", "--out", str(tmp_path)).return_value == 0
    assert [len(requests) for requests in asked.values()] == [1, 1]
    assert {folder.name for folder in tmp_path.iterdir()} == {"one", "two"}


def test_unknown_name_is_a_usage_error_and_creates_no_folder(tmp_path: Path) -> None:
    result = run("nodes", "noodles", "--out", str(tmp_path / "out"))
    assert isinstance(result.exception, click.UsageError)
    assert "no experiment 'noodles': there are subscribers, publishers," in str(result.exception)
    assert not (tmp_path / "out").exists()
    assert isinstance(run().exception, click.UsageError)


def failing(monkeypatch: pytest.MonkeyPatch, name: str, by: BaseException | Outcome) -> None:
    load = command._load

    def play(asked_name: str) -> Callable[[Request], Outcome]:
        def fail(request: Request) -> Outcome:
            if isinstance(by, BaseException):
                raise by
            return by

        return fail if asked_name == name else load(asked_name)

    monkeypatch.setattr(command, "_load", play)


def test_failed_experiment_is_reported_and_the_next_one_runs(
    asked: dict[str, list[Request]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "one", ExperimentError("no ring"))
    result = run("all", "--out", str(tmp_path))
    assert result.return_value == 1
    assert "ringmq: one: no ring" in result.stderr
    assert [folder.name for folder in tmp_path.iterdir()] == ["two"]
    alone = run("one", "--out", str(tmp_path))
    assert isinstance(alone.exception, ExperimentError)


def test_broken_experiment_is_stored_and_the_next_one_runs(
    asked: dict[str, list[Request]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "one", outcome(broken=True, left_out=["tables of the collector: no Spark"]))
    result = run("all", "--out", str(tmp_path))
    assert result.return_value == 1
    assert "left out: tables of the collector: no Spark" in result.stdout
    assert {folder.name for folder in tmp_path.iterdir()} == {"one", "two"}


def test_interrupted_experiment_is_stored_and_no_other_runs(
    asked: dict[str, list[Request]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "one", outcome(interrupted=True))
    result = run("all", "--out", str(tmp_path))
    assert result.return_value == 130
    assert "interrupted: these are the results so far" in result.stdout
    assert [folder.name for folder in tmp_path.iterdir()] == ["one"]
    assert asked["two"] == []


def test_earlier_results_are_kept_if_nothing_was_measured(
    asked: dict[str, list[Request]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("one", "--out", str(tmp_path))
    failing(monkeypatch, "one", Outcome(interrupted=True, tables={"levels": []}))
    result = run("one", "--seed", "2", "--out", str(tmp_path))
    assert result.return_value == 130
    assert "earlier results are kept" in result.stderr
    assert json.loads((tmp_path / "one" / "summary.json").read_text())["seed"] == 1


def test_signal_handlers_are_restored(asked: dict[str, list[Request]], tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run("one", "--out", str(tmp_path))
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_name_loads_a_callable_experiment(name: str) -> None:
    assert callable(command._load(name))


@pytest.mark.parametrize(
    ("missing", "wanted"),
    [
        ("matplotlib", "install it with the extra"),
        ("ringmq.experiments.studies.none", "No module named 'ringmq.experiments.studies.none'$"),
    ],
)
def test_missing_package_is_reported_with_the_extra_and_missing_module_without(
    missing: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr("importlib.import_module", fail)
    with pytest.raises(ExperimentError, match=wanted):
        command._load("nodes")


@pytest.mark.parametrize(("number", "peers"), [(signal.SIGINT, 12), (signal.SIGTERM, 2)])
def test_interrupted_real_experiment_leaves_no_processes_and_no_files(
    start: Callable[..., Process], tmp_path: Path, number: signal.Signals, peers: int, eventually: Eventually
) -> None:
    """A peer whose start was under way ends a little later: the writing end of its pipe is closed by then."""
    process = start("experiment", "failure", "--quick", "--out", str(tmp_path / "out"))
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    eventually(lambda: len(children.read_text().split()) >= peers, 60, "the peers")
    pids = children.read_text().split()
    assert process.end(number, within_s=30) == 130
    assert "nothing was measured" in process.err
    assert list((tmp_path / "out").iterdir()) == []
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 20, "the end of the peers")
