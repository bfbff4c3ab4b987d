"""Totals of several runs."""

from __future__ import annotations

from dataclasses import replace

from ringmq.experiments.scenarios.pubsub.figures import Total
from ringmq.experiments.scenarios.pubsub.scene import pubsub


def test_total_sums_the_figures_of_all_runs() -> None:
    total = Total()
    figures = pubsub(8, 1, span_s=5.0, trouble="calm")
    total.add(figures)
    total.add(figures)
    assert (total.held, total.messages) == (2, 2 * figures.messages)
    assert total.counters["published"] == 2 * figures.counters["published"]
    total.add(replace(figures, losses={"not reached": 3}))
    total.add(replace(figures, losses={"not reached": 4}))
    assert total.losses == {"not reached": 7}
