"""The clients of a simulated peer behave like the clients of a front."""

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
    checks = PubSubWorld(1, LAN, config=ROLES).pubsub_checks
    for flag in retained:
        checks.publishing(PEER, "a", 1, flag, 0.0)
    return checks, SimulatedClients(PEER, checks)


def message(number: int, *, retain: bool = False, plain: bool = True, shared: tuple[str, ...] = ()) -> Publication:
    return Publication(0, 1, 1, "a", str(number).encode(), retain, unshared=plain, shared=shared)


def test_messages_go_to_matching_filters() -> None:
    checks, clients = begin(False, False)
    matching, other = clients.add_subscription("+", 0.0), clients.add_subscription("b", 0.0)
    group = clients.add_subscription("$share/g/a", 0.0)
    clients.deliver(message(0))
    clients.deliver(message(1, plain=False, shared=("$share/g/a", "$share/not/here")))
    assert (dict(matching.got), dict(other.got), dict(group.got)) == ({0: 1}, {}, {1: 1})
    assert checks.delivered == 2


def test_retained_messages_come_with_suback_unless_they_came_live() -> None:
    _, clients = begin(True, True)
    early, late = clients.add_subscription("a", 0.0), clients.add_subscription("+", 0.0)
    clients.deliver(message(0, retain=True))
    clients.retained("a", b"0")
    clients.acknowledge(early, 1.0)
    clients.retained("a", b"1")
    clients.acknowledge(late, 2.0)
    assert dict(early.got) == {0: 1}
    assert dict(late.got) == {0: 1, 1: 1}
    clients.retained("a", b"")
    third = clients.add_subscription("#", 3.0)
    clients.acknowledge(third, 4.0)
    assert not third.got
    clients.acknowledge(third, 5.0)


def test_removed_subscription_gets_no_messages() -> None:
    _, clients = begin(False)
    gone = clients.add_subscription("a", 0.0)
    clients.remove_subscription("a", 1.0)
    clients.acknowledge(gone, 2.0)
    clients.deliver(message(0))
    assert not gone.got
    assert (gone.acked_at, gone.removed_at) == (None, 1.0)


def test_local_subscribers_get_a_message_at_once() -> None:
    checks, clients = begin()
    clients.add_subscription("a", 0.0)
    assert clients.publish_locally(checks.publishing(PEER, "a", 0, False, 0.0))
    assert not clients.publish_locally(checks.publishing(PEER, "b", 0, False, 0.0))
