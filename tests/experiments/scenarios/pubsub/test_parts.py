"""Parts of the ring are cut off for seconds, and connections delay what is sent meanwhile, as those of TCP do."""

from __future__ import annotations

import pytest

from ringmq.experiments.scenarios.pubsub.scene import pubsub

SPAN_S = 15.0
LONGEST_ANSWER_S = 20.0


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_a_part_that_is_cut_off_for_seconds_loses_nothing(seed: int) -> None:
    figures = pubsub(5, seed, span_s=SPAN_S, trouble="parts")
    assert figures.longest_puback_s < LONGEST_ANSWER_S
    assert figures.checked["owed deliveries"] > 500
