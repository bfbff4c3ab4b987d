"""Pairs of peers that do not hear each other for longer than any lease lasts, while the others hear both."""

from __future__ import annotations

import pytest

from ringmq.experiments.scenarios.pubsub.scene import pubsub
from ringmq.overlay.core.liveness.detours import Detours
from ringmq.overlay.core.messages import Peer

LONGEST_ANSWER_S = 5.0
"""For a SUBACK or a PUBACK, whichever pair is broken."""
SPAN_S = 90.0


@pytest.mark.parametrize(("seed", "nodes"), [(28, 9), (31, 9), (3, 5), (4, 4)])
def test_broken_pairs_stop_no_topic_and_lose_nothing(seed: int, nodes: int) -> None:
    figures = pubsub(nodes, seed, span_s=SPAN_S, trouble="pairs")
    assert figures.longest_suback_s < LONGEST_ANSWER_S
    assert figures.longest_puback_s < LONGEST_ANSWER_S
    assert figures.checked["owed deliveries"] > 1000


@pytest.mark.parametrize("seed", [12, 31])
def test_without_detours_acknowledged_messages_are_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(self: Detours, target: Peer, via: Peer) -> None: ...

    monkeypatch.setattr(Detours, "begin", begin)
    with pytest.raises(AssertionError, match="done, but not held"):
        pubsub(9, seed, span_s=SPAN_S, trouble="pairs")
