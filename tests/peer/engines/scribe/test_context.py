"""What the parts share: who hears what, and what comes too late."""

from __future__ import annotations

from ringmq.peer.engines.scribe.context import Orders, TreeContext
from ringmq.peer.engines.scribe.messages import Leave
from tests.peer.engines.scribe.alone import Lone, peer_at


def state_of(lone: Lone) -> TreeContext:
    return lone.core._state


def test_what_a_peer_says_to_itself_is_not_sent(lone: Lone) -> None:
    state, leave = state_of(lone), Leave(("a",))
    state.tell(lone.me, leave)
    state.tell(peer_at(1), leave)
    assert list(state.said) == [(lone.me, leave)]
    assert lone.told(Leave) == [(peer_at(1), leave)]


def test_only_what_is_later_is_fresh() -> None:
    orders = Orders(10)
    tags = [(1, 2), (1, 2), (1, 1), (1, 3), (2, 1), (1, 9)]
    assert [orders.fresh("a", tag) for tag in tags] == [True, False, False, True, True, False]
    assert orders.fresh("b", (1, 1)), "each line by itself"


def test_the_lines_used_longest_ago_are_forgotten() -> None:
    orders = Orders(2)
    for line in ("a", "b", "a", "c"):
        orders.fresh(line, (1, len(orders) + 1))
    assert len(orders) == 2
    assert orders.fresh("b", (0, 0)), "it is not known any more"


def test_counters_are_those_of_pubsub_and_some(lone: Lone) -> None:
    assert {"published", "duplicates", "joins", "orphaned"} <= set(lone.core.counters.as_dict())
