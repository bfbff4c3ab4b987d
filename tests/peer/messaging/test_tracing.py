"""Messages that are recorded: whoever gets one says so once, and nothing else about it changes."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.dispatching.algorithms import Choice
from ringmq.peer.messaging.config import DIRECT, PubSubConfig
from ringmq.peer.messaging.fast_path import FAST_HEAD
from ringmq.peer.messaging.publication import Publication, Trace, encode
from tests.peer.conftest import Member, Net


class Seen(NamedTuple):
    """What a peer was told, beside what names the message."""

    at: int
    sequence: int
    dispatching: str
    sender: str
    sent_ns: int
    received_ns: int
    hops: int
    size: int
    clients: int
    sends: int
    duplicate: bool


class Notes:
    """The witness of one peer."""

    def __init__(self, member: Member, seen: list[Seen]) -> None:
        self._number = list(member.net.members).index(member.me.id)
        self._seen = seen
        member.core.tracing.witness = self
        member.core.tracing.wall_ns = lambda: 1000 + self._number

    def delivered(
        self,
        origin: str,
        origin_boot: int,
        sequence: int,
        topic: str,
        dispatching: str,
        sender: str,
        sent_ns: int,
        received_ns: int,
        hops: int,
        size: int,
        clients: int,
        sends: int,
        duplicate: bool = False,
    ) -> None:
        self._seen.append(
            Seen(
                self._number, sequence, dispatching, sender, sent_ns, received_ns, hops, size, clients, sends, duplicate
            )
        )


def traced(choice: Choice = DIRECT, count: int = 4) -> tuple[Net, list[Member], list[Seen]]:
    """Peers that all subscribe to "t" but for the first, whose publisher knows it."""
    net = Net(PubSubConfig(dispatch=choice))
    members = [net.add((number << 124) + 5) for number in range(count)]
    seen: list[Seen] = []
    for member in members:
        Notes(member, seen)
    for member in members[1:]:
        member.subscribe("t")
    net.run(0.5)
    members[0].publish("t", b"", 0)
    net.run(0.1)
    return net, members, seen


def publish(member: Member, qos: int, payload: bytes = b"abc") -> int:
    return member.core.publish("t", FAST_HEAD + payload, qos, trace=Trace(7, clients=2))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_peer_records_a_traced_message_once(qos: int) -> None:
    net, members, seen = traced()
    number = publish(members[0], qos)
    net.run(0.5)
    origin = members[0].me.id.hex()
    assert sorted(seen) == [
        Seen(0, number, "direct", origin, 7, 7, 0, 3, 2, 3, False),
        *[Seen(at, number, "direct", origin, 7, 1000 + at, 1, 3, 1, 0, False) for at in (1, 2, 3)],
    ]


def test_messages_without_a_trace_are_not_recorded() -> None:
    net, members, seen = traced()
    for qos in (0, 1, 2):
        members[0].publish("t", b"x", qos)
    net.run(0.5)
    assert seen == []


@pytest.mark.parametrize("qos", [0, 1])
def test_trace_through_a_tree_counts_each_link(qos: int) -> None:
    net, members, seen = traced(Choice("guided", 2), 8)
    number = publish(members[0], qos)
    net.run(0.5)
    assert {one.at for one in seen} == set(range(8))
    assert len(seen) == 8
    assert {(one.sequence, one.dispatching, one.duplicate) for one in seen} == {(number, "guided", False)}
    assert sum(one.sends for one in seen) == 7
    assert max(one.sends for one in seen) <= 2
    hops = {members[one.at].me.id.hex(): one.hops for one in seen}
    assert max(hops.values()) > 1
    for one in seen:
        assert one.hops == (hops[one.sender] + 1 if one.at else 0)
    sent = Counter(one.sender for one in seen if one.at)
    assert all(sent[members[one.at].me.id.hex()] == one.sends for one in seen)


def test_second_copy_is_recorded_as_a_duplicate() -> None:
    _, members, seen = traced(count=2)
    members[1].core.receive(members[0].me, payload := encode(Publication(1, 99, 0, "t", FAST_HEAD, trace=Trace(7, 1))))
    members[1].core.receive(members[0].me, payload)
    assert [(one.clients, one.duplicate) for one in seen] == [(1, False), (0, True)]


def test_unwanted_message_is_recorded() -> None:
    _, members, seen = traced(count=2)
    members[1].core.receive(
        members[0].me, encode(Publication(1, 9, 1, "x", FAST_HEAD, number=1, base=1, trace=Trace(7, 1)))
    )
    assert [(one.at, one.clients, one.duplicate) for one in seen] == [(1, 0, False)]


def test_one_member_of_a_group_counts_among_the_clients() -> None:
    net, members, seen = traced(count=2)
    members[0].subscribe("$share/g/t")
    net.run(0.5)
    publish(members[0], 0)
    net.run(0.5)
    assert sorted((one.at, one.clients, one.sends) for one in seen) == [(0, 3, 1), (1, 1, 0)]


def test_retried_message_keeps_its_trace() -> None:
    net, members, seen = traced(Choice("guided", 1), 4)
    lost: list[object] = []

    def loses(sender: object, receiver: object, message: object) -> bool:
        if isinstance(message, Publication) and message.relay is not None:
            lost.append(message)
            return True
        return False

    net.lost = loses
    publish(members[0], 1)
    net.run(5.0)
    assert lost
    assert sorted((one.at, one.hops, one.dispatching) for one in seen) == [
        (0, 0, "guided"),
        *[(at, 1, "direct") for at in (1, 2, 3)],
    ]


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([DIRECT, Choice("guided", 1)]))
def test_recorded_and_fast_messages_stay_in_order(seed: int, choice: Choice) -> None:
    """Whether a list is known when it is published, and whichever way a message takes."""
    net, members, seen = traced(choice)
    chance = Random(seed)
    for member in members[1:]:
        member.got.clear()
        member.quick = chance.random() < 0.8
    chosen = 0
    for number in range(40):
        members[0].core.clock.now = net.now
        body = FAST_HEAD + b"%d" % number
        if chance.random() < 0.5:
            chosen += 1
            members[0].core.publish("t", body, 0, trace=Trace(1))
        elif not members[0].core.publish_fast("t", body):
            members[0].core.publish("t", body, 0)
        if chance.random() < 0.2:
            net.run(chance.choice((0.0, 0.01, 10.0)))
    net.run(2.0)
    for member in members[1:]:
        assert member.got == [("t", FAST_HEAD + b"%d" % number) for number in range(40)]
    assert Counter(one.at for one in seen) == dict.fromkeys(range(4), chosen)
    assert not any(one.duplicate for one in seen)
