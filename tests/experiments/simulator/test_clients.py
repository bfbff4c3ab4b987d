"""The clients of a simulated peer behave as those of a front."""

from __future__ import annotations

from ringmq.experiments.simulator.clients import SimulatedClients
from ringmq.experiments.simulator.pubsub import PubSubWorld
from ringmq.experiments.simulator.pubsub_checks import PubSubChecks
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import LAN
from ringmq.peer.messaging.config import LAN as ROLES
from ringmq.peer.messaging.publication import Publication

PEER = Peer(Id(1), "h", 1, 0)


def begin(*retained: bool) -> tuple[PubSubChecks, SimulatedClients]:
    told = PubSubWorld(1, LAN, config=ROLES).told
    for flag in retained:
        told.publishing(PEER, "a", 1, flag, 0.0)
    return told, SimulatedClients(PEER, told)


def message(number: int, *, retain: bool = False, plain: bool = True, shared: tuple[str, ...] = ()) -> Publication:
    return Publication(0, 1, 1, "a", str(number).encode(), retain, unshared=plain, shared=shared)


def test_messages_go_to_the_filters_that_match() -> None:
    told, clients = begin(False, False)
    matching, other = clients.subscribing("+", 0.0), clients.subscribing("b", 0.0)
    group = clients.subscribing("$share/g/a", 0.0)
    clients.deliver(message(0))
    clients.deliver(message(1, plain=False, shared=("$share/g/a", "$share/not/here")))
    assert (dict(matching.got), dict(other.got), dict(group.got)) == ({0: 1}, {}, {1: 1})
    assert told.delivered == 2


def test_what_is_retained_is_given_with_suback_unless_it_came_live() -> None:
    _, clients = begin(True, True)
    early, late = clients.subscribing("a", 0.0), clients.subscribing("+", 0.0)
    clients.deliver(message(0, retain=True))
    clients.retained("a", b"0")
    clients.subscribed(early, 1.0)
    clients.retained("a", b"1")
    clients.subscribed(late, 2.0)
    assert dict(early.got) == {0: 1}
    assert dict(late.got) == {0: 1, 1: 1}
    clients.retained("a", b"")
    third = clients.subscribing("#", 3.0)
    clients.subscribed(third, 4.0)
    assert not third.got
    clients.subscribed(third, 5.0)


def test_who_left_gets_nothing() -> None:
    _, clients = begin(False)
    gone = clients.subscribing("a", 0.0)
    clients.unsubscribed("a", 1.0)
    clients.subscribed(gone, 2.0)
    clients.deliver(message(0))
    assert not gone.got
    assert (gone.acked_at, gone.removed_at) == (None, 1.0)


def test_a_publisher_has_its_message_already() -> None:
    told, clients = begin()
    clients.subscribing("a", 0.0)
    assert clients.published_here(told.publishing(PEER, "a", 0, False, 0.0))
    assert not clients.published_here(told.publishing(PEER, "b", 0, False, 0.0))
