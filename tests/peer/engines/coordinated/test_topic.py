"""The plan of a topic, and when its publications may take the fast path."""

from __future__ import annotations

from math import inf

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Kind, Record
from ringmq.peer.engines.coordinated.subscriber_lists import Registration
from ringmq.peer.engines.coordinated.topic import Store, Topic
from ringmq.peer.messaging.pending import PendingPublication
from ringmq.peer.messaging.publication import Publication

PEERS = tuple(Peer(Id(number), "h", 1, 1) for number in range(3))
OUTGOING = PendingPublication(Publication(1, 1, 0, "a", b""), False, None, 0.0)


@pytest.fixture
def topic() -> Topic:
    """A topic with a plan for three peers, whose lists can be trusted until 5."""
    registration = Registration("a")
    registration.until = 5.0
    topic = Topic("a", (registration,), Choice("guided", 3), 0.0)
    topic.plan(PEERS, ())
    topic.renew()
    return topic


def test_the_fast_path_is_open_while_all_lists_can_be_trusted(topic: Topic) -> None:
    assert topic.fast_until == topic.valid_until == 5.0
    topic.lists[0].until = 9.0
    assert topic.renew() == topic.fast_until == 9.0


def test_a_changed_list_bars_the_fast_path_until_there_is_a_new_plan(topic: Topic) -> None:
    topic.forget_plan()
    assert topic.fast_until == -inf
    topic.plan(PEERS[:1], ())
    assert topic.fast_until == 5.0


def test_shared_filters_bar_the_fast_path(topic: Topic) -> None:
    topic.plan(PEERS, (("$share/g/a", PEERS),))
    assert topic.fast_until == -inf


def test_a_tree_bars_the_fast_path(topic: Topic) -> None:
    assert not topic.through_tree
    topic.plan((*PEERS, Peer(Id(9), "h", 1, 1)), ())
    assert topic.through_tree
    assert topic.fast_until == -inf


def test_a_held_publication_bars_the_fast_path_until_it_is_released(topic: Topic) -> None:
    topic.hold(OUTGOING)
    assert topic.fast_until == -inf
    assert topic.release() is OUTGOING
    assert topic.fast_until == 5.0


def test_the_wait_for_a_coordinator_is_doubled_up_to_its_bound() -> None:
    store = Store(Record(Kind.RETAINED, "a", None, (1, 1), False), (), 1, OUTGOING)
    assert [store.next_wait(0.5, 3.0) for _ in range(4)] == [0.5, 1.0, 2.0, 3.0]
