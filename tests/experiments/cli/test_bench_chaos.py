"""`ringmq bench chaos`: short runs by the real command, runs that find something, and the file of results."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringmq.experiments.chaos import run as running
from ringmq.experiments.chaos import scenarios
from ringmq.experiments.chaos.recorder import Recorder
from ringmq.experiments.chaos.results import RunKey, load_results
from ringmq.experiments.chaos.scenarios import SCENARIOS
from ringmq.experiments.cli.bench import bench
from ringmq.mqtt_front.client.events import Arrived

SMALL = ("--peers", "3", "--minutes", "0.05")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CALM_S", 1.0)
    monkeypatch.setattr(running, "QUIET_S", 1.0)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(bench, ["chaos", *arguments])


@pytest.mark.parametrize("scenario", ["stop"])
def test_a_short_run_finds_every_promise_held(scenario: str, tmp_path: Path) -> None:
    """The short set: real peers, all clients and all checks. docs/faults.md says how to run the whole."""
    file = tmp_path / "results"
    result = run(scenario, *SMALL, "--out", str(file), "--dispatch", "guided")
    assert result.exit_code == 0, result.output
    assert f"{scenario} seed 1, 3 peers, guided: all promises hold" in result.output
    ((key, stored),) = load_results(file).items()
    assert key == RunKey(scenario, 1, 3, 0.05, "lan", "guided")
    assert stored.figures["deliveries"] > stored.figures["acknowledged"] > 100
    assert stored.kept == ""


def test_a_broken_promise_ends_with_status_1_and_a_kept_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliveries of some messages are taken out of the history."""
    taken = Recorder.got

    def forgetful(recorder: Recorder, client: str, message: Arrived) -> int:
        return 0 if client == "stay-1" and message.payload[:1] == b"9" else taken(recorder, client, message)

    monkeypatch.setattr(Recorder, "got", forgetful)
    monkeypatch.setattr(running, "DRAIN_S", 2.0)
    monkeypatch.setattr("ringmq.experiments.cli.bench_chaos.mkdtemp", lambda prefix: str(_made(tmp_path / prefix)))
    file = tmp_path / "results"
    monkeypatch.setattr(running, "RETAINED_WITHIN_S", 5.0)
    result = run("steady", *SMALL, "--out", str(file))
    assert result.exit_code == 1, result.output
    assert "did not reach kept session stay-1 at peer 1" in result.output
    assert "to see it again: ringmq bench chaos steady --seed 1 --peers 3 --minutes 0.05" in result.output
    folder = tmp_path / "ringmq-chaos-steady-1-"
    assert (folder / "history.jsonl").stat().st_size > 10_000
    assert "ringmq bench chaos steady" in (folder / "violations").read_text(encoding="utf-8")
    assert (folder / "peer-2" / "log").exists()
    (stored,) = load_results(file).values()
    assert stored.counts == {"kept": len(stored.lines)} or stored.counts.keys() <= {"kept", "will"}
    assert stored.kept == str(folder)

    # It is not carried out again.
    again = run("steady", *SMALL, "--out", str(file), "--resume")
    assert again.exit_code == 1
    assert again.output == f"{stored.summary()}\n"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_scenario_that_the_machine_cannot_have_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "lacking", lambda: "network namespaces need root")
    result = run("one_pair", *SMALL)
    assert result.exit_code == 1
    assert result.output == "one_pair seed 1, 3 peers, direct: not carried out: network namespaces need root\n"
    listed = run("--list").output
    assert "(not here: network namespaces need root)" in listed
    assert [line.split()[0] for line in listed.splitlines()] == list(SCENARIOS)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("bogus",), "bogus"),
        (("steady", "--resume"), "--resume needs --out"),
        (("steady", "--peers", "2"), "2 is not in the range"),
    ],
)
def test_wrong_arguments_are_errors(arguments: tuple[str, ...], text: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert text in result.output


def test_a_file_that_holds_no_results_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "results"
    file.write_text("{}\n", encoding="utf-8")
    result = run("steady", "--out", str(file), "--resume")
    assert result.exit_code == 1
    assert "a line must be a result of bench chaos" in result.output
