"""Trees: everybody once, nobody more sends than allowed, and around those that take nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.config import LAN
from ringmq.peer.messaging.publication import Publication
from tests.peer.conftest import Net

FANOUT = 2


@pytest.fixture
def woods() -> Net:
    net = Net(replace(LAN, dispatch=Choice("guided", FANOUT), rules=(("flat/#", Choice("direct")),)))
    for number in range(16):
        net.add((number << 124) + 5)
    for member in net.members.values():
        member.subscribe("a", "flat/a")
    net.run(1.0)
    return net


def _sends(net: Net) -> Counter[int]:
    return Counter(sender.id for sender, _, message in net.seen if isinstance(message, Publication))


@pytest.mark.parametrize("qos", [0, 1])
def test_everybody_once_and_nobody_overworked(woods: Net, qos: int) -> None:
    publisher = next(iter(woods.members.values()))
    publisher.publish("a", qos=qos)
    woods.run(2.0)
    assert all(len(member.got) == (member is not publisher) for member in woods.members.values())
    assert max(_sends(woods).values()) == FANOUT
    assert sum(_sends(woods).values()) == len(woods.members) - 1
    assert len(publisher.reasons) == 1


def test_a_rule_chooses_by_topic(woods: Net) -> None:
    publisher = next(iter(woods.members.values()))
    publisher.publish("flat/a")
    woods.run(1.0)
    assert set(_sends(woods)) == {publisher.me.id}


def test_who_takes_nothing_is_gone_around(woods: Net) -> None:
    publisher, *others = woods.members.values()
    publisher.publish("a", b"1")
    woods.run(1.0)
    first = next(to for sender, to, one in woods.seen if isinstance(one, Publication) and sender == publisher.me)
    relay, send = woods.members[first.id], publisher.send
    assert _sends(woods)[first.id], "it has a part of the tree behind it"
    publisher.send = lambda peer, payload: peer != first and send(peer, payload)  # type: ignore[method-assign]
    publisher.publish("a", b"2", qos=0)
    woods.run(0.1)
    missed = [member for member in others if ("a", b"2") not in member.got]
    assert missed == [relay]
    assert sum(member.core.counters.bypassed for member in woods.members.values()) == 1


@pytest.mark.parametrize("qos", [0, 1])
def test_who_turns_out_not_to_be_reachable_is_gone_around(woods: Net, qos: int) -> None:
    """A link to it could not be opened: each part that it was to serve comes back, and its first takes its place."""
    publisher, *others = woods.members.values()
    publisher.publish("a", b"1")
    woods.run(1.0)
    first = next(to for sender, to, one in woods.seen if isinstance(one, Publication) and sender == publisher.me)
    send, refused = publisher.send, []

    def dial(peer: Peer, payload: bytes) -> bool:
        if peer == first:
            refused.append(payload)
            return len(refused) == 1  # the others are not even queued, for a while
        return send(peer, payload)

    publisher.send = dial  # type: ignore[method-assign]
    publisher.publish("a", b"2", qos=qos)
    publisher.core.unsent(refused[0])
    woods.run(0.1)
    missed = [member.me for member in others if ("a", b"2") not in member.got]
    assert missed == [first]
    assert all(member.got.count(("a", b"2")) == 1 for member in others if member.me != first)
    assert publisher.core.counters.bypassed == 1


@pytest.mark.parametrize("silent", [1, 5, 14])
def test_nobody_waits_for_what_the_silent_pass_on(woods: Net, silent: int) -> None:
    """They get their message as well; nobody has more sends than ever."""
    publisher, *others = woods.members.values()
    publisher.publish("a", b"1")
    woods.run(1.0)
    busiest = sorted(others, key=lambda member: -_sends(woods)[member.me.id])
    woods.doubted = {member.me.id for member in busiest[:silent]}
    woods.seen.clear()
    publisher.publish("a", b"2", qos=0)
    woods.run(0.1)
    assert all(member.got == [("a", b"1"), ("a", b"2")] for member in others)
    assert max(_sends(woods).values()) <= FANOUT
    publications = [sent for sent in woods.seen if isinstance(sent[2], Publication)]
    passed_on = {sender.id for sender, to, _ in publications if to.id not in woods.doubted}
    assert not passed_on & woods.doubted


def test_among_the_silent_the_tree_is_as_ever(woods: Net) -> None:
    publisher, *others = woods.members.values()
    publisher.publish("a", b"1")
    woods.run(1.0)
    before = [(sender, to) for sender, to, one in woods.seen if isinstance(one, Publication)]
    woods.doubted = {member.me.id for member in others}
    woods.seen.clear()
    publisher.publish("a", b"2", qos=0)
    woods.run(0.1)
    assert [(sender, to) for sender, to, one in woods.seen if isinstance(one, Publication)] == before


@pytest.mark.parametrize("qos", [0, 1])
def test_what_was_for_one_peer_alone_is_not_passed_on(woods: Net, qos: int) -> None:
    publisher = next(iter(woods.members.values()))
    publisher.publish("flat/a")
    woods.run(1.0)
    payloads = [b"", b"\xff", b"M\0"]
    publisher.send = lambda peer, payload: not payloads.append(payload)  # type: ignore[func-returns-value, method-assign]
    publisher.publish("flat/a", b"1", qos=qos)
    publisher.subscribe("b")
    woods.run(0.0)
    sent = payloads.copy()
    assert len(sent) > len(woods.members)
    for payload in sent:
        publisher.core.unsent(payload)
    woods.run(0.0)
    assert payloads == sent


def test_what_is_lost_in_a_tree_is_sent_directly(woods: Net) -> None:
    publisher, *others = woods.members.values()
    publisher.publish("a", b"1")
    woods.run(1.0)
    relay = next(member for member in others if _sends(woods)[member.me.id])
    woods.lost = lambda sender, receiver, message: receiver == relay.me and isinstance(message, Publication)
    publisher.publish("a", b"2")
    publisher.publish("a", b"3")
    woods.run(2.0)
    assert all(member.got[-2:] == [("a", b"2"), ("a", b"3")] for member in others if member is not relay)
    woods.lost = lambda sender, receiver, message: False
    woods.run(4.0)
    assert relay.got == [("a", b"1"), ("a", b"2"), ("a", b"3")]
    assert len(publisher.reasons) == 3
