"""Progress: a line a step, or one line rewritten, with the time left."""

from __future__ import annotations

import io

import pytest

from ringmq.experiments.studies.harness.progress import CLEAR, Teller, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_elsewhere_each_step_has_a_line() -> None:
    out, clock = io.StringIO(), Clock()
    teller = Teller("nodes", out, clock)
    teller.begin(3)
    for what in ("a", "b", "c"):
        clock.now += 60
        teller.step(what)
    teller.say("too small")
    teller.close()
    assert out.getvalue().splitlines() == [
        "nodes: 0/3",
        "nodes: 1/3, 2 min left (a)",
        "nodes: 2/3, 1 min left (b)",
        "nodes: 3/3 (c)",
        "nodes: too small",
    ]


def test_on_a_terminal_the_line_is_rewritten_and_left_to_others() -> None:
    out = Terminal()
    teller = Teller("nodes", out, Clock())
    teller.begin(2)
    teller.say("too small")
    teller.step("a")
    teller.close()
    assert out.getvalue() == (f"{CLEAR}nodes: 0/2{CLEAR}nodes: too small\n{CLEAR}nodes: 1/2, 5 s left (a){CLEAR}")


def test_steps_beyond_those_that_were_said() -> None:
    out = io.StringIO()
    teller = Teller("nodes", out, Clock())
    teller.begin(1)
    teller.step("a")
    teller.step("b")
    assert out.getvalue().splitlines()[-1] == "nodes: 2/1 (b)"


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "5 s"), (12, "10 s"), (58, "60 s"), (61, "1 min"), (150, "2 min"), (3600, "60 min")]
)
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told
