"""Traces one PUBLISH over two peers, and checks the counting with calls made by hand. No timings."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from ringmq.experiments.benchmarks import publish_walk
from ringmq.experiments.benchmarks.publish_walk import (
    BOOKKEEPING,
    GENERAL_PATH,
    GOAL_FILES,
    GOAL_SHARE,
    NEAR,
    WARM_UP,
    Call,
    Group,
    Loop,
    Walk,
    WalkError,
    definitions,
    functions_in,
    listed_names,
    main,
    most_common,
    walks,
    wrong_names,
)


@pytest.fixture(scope="module")
def walk() -> Walk:
    return walks(1)[0]


def test_walk_ends_with_the_puback(walk: Walk) -> None:
    packet_id = WARM_UP + 2
    assert walk.puback == b"\x40\x02" + packet_id.to_bytes(2, "big")


def test_walk_takes_the_general_path(walk: Walk) -> None:
    assert set(GENERAL_PATH) <= {call.name for call in walk.calls}


def test_walk_passes_over_both_peers_and_back(walk: Walk) -> None:
    """The publisher's socket once, and the link once on each side."""
    starts = [call.name for call in walk.calls if call.depth == 0 and call.name.endswith(".data_received")]
    assert len(starts) == 3


def test_walk_has_calls_of_the_product_alone(walk: Walk) -> None:
    assert {file.split("/")[0] for file in walk.files} == {"logger", "overlay", "mqtt_front", "peer"}


def test_bookkeeping_is_found_in_the_walk(walk: Walk) -> None:
    assert 0 < walk.total(BOOKKEEPING) < len(walk.calls)
    assert walk.total(NEAR)


def test_bookkeeping_and_files_stay_within_their_limits(walk: Walk) -> None:
    assert walk.share <= GOAL_SHARE
    assert len(walk.files) <= GOAL_FILES


def test_every_listed_name_exists() -> None:
    assert wrong_names(listed_names(), definitions()) == []


def test_no_name_is_listed_twice() -> None:
    names = [name for group in (*BOOKKEEPING, *NEAR) for name in group.names]
    assert len(names) == len(set(names))


def test_a_publish_on_the_fast_path_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_walk, "PROPERTY", b"")
    with pytest.raises(WalkError, match="must take the general path"):
        walks(1)


def test_a_missing_name_fails_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_walk, "BOOKKEEPING", (Group("clock", "sets the time", ("EngineAdapter._gone",)),))
    result = CliRunner().invoke(main, ["--walks", "1"])
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert "no function is called EngineAdapter._gone" in result.output


def test_a_name_of_two_files_is_refused() -> None:
    faults = wrong_names(["MessagingContext.me"], {"MessagingContext.me": {"a/b.py", "c/d.py"}})
    assert faults == ["MessagingContext.me must be defined in one file to be counted by its name, got a/b.py, c/d.py"]


def test_functions_have_qualified_names() -> None:
    source = "def f():\n    def g(): ...\nclass A:\n    def f(self): ...\n    class B:\n        async def f(self): ..."
    assert functions_in(source) == {"f", "A.f", "A.B.f"}


def test_changes_and_functions_are_counted_by_hand() -> None:
    calls = [("a/x.py", "f"), ("a/x.py", "g"), ("a/y.py", "f"), ("b/x.py", "f"), ("a/x.py", "f")]
    made = Walk(tuple(Call(0, file, name, 1) for file, name in calls), 0, b"")
    assert (made.functions, dict(made.files)) == (4, {"a/x.py": 3, "a/y.py": 1, "b/x.py": 1})
    assert (made.file_changes, made.folder_changes) == (3, 2)
    assert made.of([Group("group", "reason", ("f", "h"))]) == {"group": {"f": 4, "h": 0}}


def test_the_most_common_walk_is_shown() -> None:
    short, long = (Walk(tuple(Call(0, "a/x.py", "f", 1) for _ in range(count)), 0, b"") for count in (2, 3))
    assert most_common([short, long, long]) == (long, 2)


def test_the_clock_stands_still_and_goes_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5.0]
    monkeypatch.setattr(asyncio.SelectorEventLoop, "time", lambda loop: now[0])
    loop = Loop()
    try:
        loop.stop_clock()
        now[0] = 7.0
        assert loop.time() == 5.0
        loop.start_clock()
        now[0] = 8.0
        assert loop.time() == 6.0
    finally:
        loop.close()


def test_json_has_the_figures_and_the_calls() -> None:
    result = CliRunner().invoke(main, ["--walks", "1", "--json", "--calls"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["calls"] == len(report["trace"]) == sum(report["calls_by_file"].values())
    assert report["bookkeeping"] == sum(sum(names.values()) for names in report["bookkeeping_calls"].values())


def test_text_marks_the_bookkeeping_among_the_calls() -> None:
    result = CliRunner().invoke(main, ["--walks", "1", "--calls"])
    assert result.exit_code == 0, result.output
    trace = result.output.split("marked with *\n")[1].splitlines()
    marked = sum(line.startswith("*") for line in trace)
    assert f"bookkeeping {marked} calls" in result.output
