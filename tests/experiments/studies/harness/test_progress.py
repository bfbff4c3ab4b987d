"""Progress: a line for each step, or one line that is rewritten, with the time left."""

from __future__ import annotations

import io

import pytest

from ringmq.experiments.studies.harness.progress import CLEAR, ProgressLine, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_step_has_a_line_if_the_output_is_no_terminal() -> None:
    out, clock = io.StringIO(), Clock()
    progress = ProgressLine("nodes", out, clock)
    progress.begin(3)
    for step in ("a", "b", "c"):
        clock.now += 60
        progress.step(step)
    progress.say("too small")
    progress.close()
    assert out.getvalue().splitlines() == [
        "nodes: 0/3",
        "nodes: 1/3, 2 min left (a)",
        "nodes: 2/3, 1 min left (b)",
        "nodes: 3/3 (c)",
        "nodes: too small",
    ]


def test_line_is_rewritten_on_a_terminal_and_cleared_at_the_end() -> None:
    out = Terminal()
    progress = ProgressLine("nodes", out, Clock())
    progress.begin(2)
    progress.say("too small")
    progress.step("a")
    progress.close()
    assert out.getvalue() == (f"{CLEAR}nodes: 0/2{CLEAR}nodes: too small\n{CLEAR}nodes: 1/2, 5 s left (a){CLEAR}")


def test_more_steps_than_announced_are_shown() -> None:
    out = io.StringIO()
    progress = ProgressLine("nodes", out, Clock())
    progress.begin(1)
    progress.step("a")
    progress.step("b")
    assert out.getvalue().splitlines()[-1] == "nodes: 2/1 (b)"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "5 s"), (12, "10 s"), (58, "60 s"), (61, "1 min"), (150, "2 min"), (3600, "60 min")]
)
def test_duration_is_rounded(seconds: float, text: str) -> None:
    assert duration(seconds) == text
