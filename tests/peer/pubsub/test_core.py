"""All roles together: what goes in and out, and the time."""

from __future__ import annotations

from math import inf

import pytest

from overlay.messages import Peer
from peer.pubsub.messages import Control, Held
from peer.pubsub.wire import Publication
from tests.peer.pubsub.conftest import Net


@pytest.mark.parametrize("payload", [b"", b"Z", b"C\xff", b"P"])
def test_garbage_is_counted(net: Net, payload: bytes) -> None:
    member = next(iter(net.members.values()))
    member.core.receive(member.me, payload)
    assert member.core.counters.unreadable == 1


def test_a_peer_alone_is_everything_to_itself() -> None:
    from peer.pubsub.config import LAN  # noqa: PLC0415 - the only test without the net of others

    net = Net(LAN)
    member = net.add(5)
    done = member.subscribe("a", "#")
    net.run(0.1)
    assert done == ["a", "#"]
    member.publish("a", b"kept", retain=True)
    net.run(0.1)
    assert len(member.reasons) == 1
    assert member.kept == {"a": b"kept"}
    assert member.got == [], "its own clients have it already"


def test_what_nobody_asked_for_is_not_given_out(net: Net) -> None:
    publisher, one = net.others("a", "a/#", "#")[:2]
    one.subscribe("a")
    publisher.publish("a")
    net.run(0.5)
    one.core.unsubscribe("a")
    publisher.publish("a", b"late")
    net.run(0.5)
    assert one.got == [("a", b"x")]
    assert one.core.counters.unwanted == 1
    assert len(publisher.reasons) == 2


def test_acknowledgements_can_wait_for_the_disk(net: Net) -> None:
    publisher, one = net.others("a")[:2]
    one.core.acknowledges_later = True
    one.subscribe("a")
    net.run(0.5)
    publisher.publish("a")
    net.run(0.2)
    assert one.got
    assert publisher.reasons == []
    assert one.core.owes
    one.core.acknowledge()
    net.run()
    assert len(publisher.reasons) == 1
    assert net.count(Held) == 1


def test_a_message_is_seen_by_who_subscribes_while_it_is_retained(net: Net) -> None:
    """As retained or as live, and never as both."""
    publisher, *others = net.others("a/b")
    publisher.publish("a/b", b"0")
    net.run(0.1)
    for number, one in enumerate(others):
        one.subscribe("a/+")
        publisher.publish("a/b", str(number).encode(), retain=True)
        net._deliver()
        last = str(number).encode()
        assert one.kept["a/b"] == last or ("a/b", last) in one.got
        assert one.got.count(("a/b", last)) <= 1


def test_time(net: Net) -> None:
    member = next(iter(net.members.values()))
    assert member.core.deadline() < inf
    member.core.now = 7.0
    assert member.core.now == 7.0


def test_everything_lost_for_a_while_does_no_lasting_harm(net: Net) -> None:
    publisher, *others = net.others("a")
    for one in others:
        one.subscribe("a")

    def lost(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return True

    net.lost = lost
    publisher.publish("a", b"1")
    net.run(4.0)
    net.lost = lambda sender, receiver, message: False
    net.run(6.0)
    publisher.publish("a", b"2")
    net.run(1.0)
    assert all(one.got[-1] == ("a", b"2") for one in others)
    assert len(publisher.reasons) == 2
