"""Shadows become copies, whatever gets lost on the way, and tell the coordinator what it does not know."""

from __future__ import annotations

from random import Random

from overlay.messages import Peer
from peer.pubsub.messages import Control, Copied, Copy, Kind, Record, Reign
from peer.pubsub.wire import Publication, encode_control
from tests.peer.pubsub.conftest import Net


def _equal(net: Net, place: str) -> bool:
    holdings = [member.core.holdings.get(place) for member in net.holders(place)]
    present = {holding.present() for holding in holdings if holding is not None}
    return len(present) == 1 and None not in holdings


def test_shadows_are_equal_whatever_is_lost(net: Net) -> None:
    random = Random(7)

    def lost(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return isinstance(message, (Copy, Copied)) and random.random() < 0.4

    net.lost = lost
    members = list(net.members.values())
    for member in members:
        member.subscribe("a")
    net.run(3.0)
    members[0].core.unsubscribe("a")
    net.run(10.0)
    assert _equal(net, "a")
    holding = net.holders("a")[0].core.holdings.get("a")
    assert holding is not None
    assert sum(not record.gone for record in holding.book) == len(members) - 1


def test_only_what_changed_is_copied(net: Net) -> None:
    members = list(net.members.values())
    for member in members:
        member.subscribe("a")
        net.run(0.1)
    copies = [message for _, _, message in net.seen if isinstance(message, Copy)]
    assert copies
    assert max(len(copy.records) for copy in copies) <= 3


def test_what_only_a_shadow_holds_goes_to_the_coordinator(net: Net) -> None:
    coordinator, shadow = net.holders("a")[:2]
    stranger = Peer(type(shadow.me.id)(77), "h", 1, 0)
    holding = shadow.core.holdings.open("a")
    holding.take(Record(Kind.ENTRY, "a", stranger, (0, 1), False), 0.0, net.config)
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    mine = coordinator.core.holdings.get("a")
    assert mine is not None
    assert mine.book.get((Kind.ENTRY, "a", 77)) is not None
    assert _equal(net, "a")


def test_a_reign_that_is_over_brings_nothing_into_force(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    coordinator, shadow = net.holders("a")[:2]
    holding = shadow.core.holdings.get("a")
    assert holding is not None
    holding.reign = Reign(9, shadow.me.id)
    late = net.others("a")[1].subscribe("a")
    net.run(2.0)
    assert late == ["a"]
    assert coordinator.core.counters.superseded == 1
    mine = coordinator.core.holdings.get("a")
    assert mine is not None
    assert mine.reign > Reign(9, shadow.me.id)


def test_a_shadow_that_missed_something_says_so(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    coordinator, shadow = net.holders("a")[:2]
    holding = coordinator.core.holdings.get("a")
    assert holding is not None
    position = holding.book.position
    net.queue.append(
        (coordinator.me, shadow.me, encode_control(Copy("a", holding.reign, position + 5, position + 6, ())))
    )
    net.run()
    answer = [message for _, _, message in net.seen if isinstance(message, Copied)][-1]
    assert answer.missing or answer.position == position
    net.run(1.0)
    assert _equal(net, "a")
