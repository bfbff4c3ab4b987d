"""The file of results: lines come back equal, a crash in a line costs that line, other lines are errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.experiments.chaos.results import RunKey, RunResult, append_result, load_results

KEY = RunKey("kill", 3, 7, 1.5, "lan", "direct")
BROKEN = RunResult(KEY, {"cut": 2}, ("cut at 1 s: …",), {"messages": 10.0}, "folder")


def test_results_come_back_equal(tmp_path: Path) -> None:
    file = tmp_path / "results"
    assert load_results(file) == {}
    clean = RunResult(RunKey("stop", 1, 5, 1.0, "lan", "guided"), {})
    append_result(file, BROKEN)
    append_result(file, clean)
    assert load_results(file) == {KEY: BROKEN, clean.key: clean}


def test_a_line_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "results"
    append_result(file, BROKEN)
    with file.open("a", encoding="utf-8") as out:
        out.write('{"key": {"scen')
    assert load_results(file) == {KEY: BROKEN}


@pytest.mark.parametrize("line", ["{}", "[]", "nonsense"])
def test_another_line_is_an_error_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "results"
    file.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="results:1: a line must be a result"):
        load_results(file)


def test_a_result_says_what_was_broken_and_how_to_see_it_again() -> None:
    assert BROKEN.summary() == "kill seed 3, 7 peers, direct: VIOLATED: 2 cut (messages 10)"
    assert KEY.command() == "ringmq bench chaos kill --seed 3 --peers 7 --minutes 1.5 --timing lan --dispatch direct"
    assert RunResult(KEY, {}).is_clean
    failed = RunResult(KEY, {}, failure="no port")
    assert not failed.is_clean
    assert failed.summary() == "kill seed 3, 7 peers, direct: not carried out: no port"
