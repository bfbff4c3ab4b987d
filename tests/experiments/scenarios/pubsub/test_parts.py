"""Parts of the ring are cut off for seconds, and connections delay what is sent meanwhile, as those of TCP do."""

from __future__ import annotations

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.pubsub.figures import PubSubFigures
from ringmq.experiments.scenarios.pubsub.scene import pubsub
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.peer.engines.partitioned.coordinating.recalls import Recalls
from ringmq.peer.engines.partitioned.publishing.holdings import Holdings

SPAN_S = 15.0
LONGEST_ANSWER_S = 20.0
GUIDED = Choice("guided", 3)


def run(nodes: int, seed: int) -> PubSubFigures:
    return pubsub(nodes, seed, span_s=SPAN_S, trouble="parts", dispatch=GUIDED if seed % 2 else Choice("direct"))


@pytest.mark.parametrize(("nodes", "seed"), [(5, 2), (9, 113), (8, 112)])
def test_a_part_that_is_cut_off_for_seconds_loses_nothing(nodes: int, seed: int) -> None:
    figures = run(nodes, seed)
    assert figures.longest_puback_s < LONGEST_ANSWER_S
    assert figures.checked["owed deliveries"] > 400


def test_routes_of_another_part_that_come_late_lack_what_was_granted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher trusted them by the lease that the coordinator of its own part had given."""
    monkeypatch.setattr(Holdings, "_may_be_of_another_part", lambda holdings, source: False)
    with pytest.raises(InvariantBrokenError, match="done, but not held"):
        run(9, 113)


def test_publishers_that_are_back_trust_what_they_were_sent_in_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless their coordinator lets them begin anew."""
    monkeypatch.setattr(Recalls, "_greet", lambda recalls, peer: None)
    with pytest.raises(InvariantBrokenError, match="done, but not held"):
        run(8, 112)
