"""Outcomes as text."""

from __future__ import annotations

import pytest

from ringmq.experiments.studies.harness.outcome import Outcome, Quantity
from ringmq.experiments.studies.harness.output import lines, number


def test_each_quantity_has_a_line() -> None:
    outcome = Outcome(
        quantities=[
            Quantity("latency", "§1", 14.0, 43.21, "%", note="why"),
            Quantity("bandwidth of a node", "§2", 40, 39.9, "%"),
            Quantity("lost", "our goal", 0, 3, "messages", at_least=False),
            Quantity("else", "§3", None, None, "%"),
        ],
        left_out=["a level: too small"],
        interrupted=True,
    )
    assert list(lines("nodes (quick)", outcome)) == [
        "nodes (quick)",
        "  quantity             from          theirs        ours",
        "  latency              §1              14 %      43.2 %  as good  why",
        "  bandwidth of a node  §2              40 %      39.9 %  less",
        "  lost                 our goal  0 messages  3 messages  less",
        "  else                 §3                 –           –",
        "  left out: a level: too small",
        "  interrupted: these are the results so far",
    ]


def test_empty_outcome_is_its_title() -> None:
    assert list(lines("nodes", Outcome())) == ["nodes"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "%", "–"),
        (1234567.0, "1/s", "1,234,567 1/s"),
        (0.01234, "s", "0.0123 s"),
        (-12.345, "%", "-12.3 %"),
        (7.0, "", "7"),
    ],
)
def test_number_has_its_unit_and_three_digits(value: float | None, unit: str, text: str) -> None:
    assert number(value, unit) == text
