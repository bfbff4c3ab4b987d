"""Comparison of a quantity with the paper's."""

from __future__ import annotations

import pytest

from ringmq.experiments.studies.harness.outcome import Quantity


@pytest.mark.parametrize(
    ("theirs", "ours", "at_least", "holds"),
    [
        (14.0, 14.0, True, True),
        (14.0, 13.9, True, False),
        (0.0, 0.0, False, True),
        (0.0, 1.0, False, False),
        (None, 1.0, True, None),
        (14.0, None, True, None),
    ],
)
def test_quantity_holds_if_it_is_as_good_as_the_papers(
    theirs: float | None, ours: float | None, at_least: bool, holds: bool | None
) -> None:
    assert Quantity("latency", "§1", theirs, ours, "%", at_least=at_least).holds is holds
