"""SUBACK is strict: what it waits for, and for how long."""

from __future__ import annotations

from overlay.messages import Peer
from peer.pubsub.messages import Control, Copied, Drop, Elsewhere, Fetch, Fetched, Known, List, Sub, SubAck
from peer.pubsub.wire import Publication, encode_control
from tests.peer.pubsub.conftest import Net


def test_a_filter_is_in_force_when_the_shadows_have_it(net: Net) -> None:
    one = net.others("a")[0]
    net.lost = lambda sender, receiver, message: isinstance(message, Copied)
    done = one.subscribe("a")
    net.run(0.2)
    assert done == []
    net.lost = lambda sender, receiver, message: False
    net.run(1.0)
    assert done == ["a"]
    for holder in net.holders("a"):
        holding = holder.core.holdings.get("a")
        assert holding is not None
        assert [record.peer for record in holding.book if not record.gone] == [one.me]


def test_a_publisher_that_trusts_a_list_is_waited_for(net: Net) -> None:
    publisher, one = net.others("a")[:2]
    publisher.publish("a")
    net.run(0.1)

    def silent(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return sender == publisher.me and isinstance(message, Known)

    net.lost = silent
    began, done = net.now, one.subscribe("a")
    net.run(net.config.lease_s)
    assert done == [], "it may still trust the list it has"
    net.run(net.config.void_s - net.config.lease_s + 0.01)
    assert done == ["a"]
    assert net.now - began < net.config.void_s + 0.1
    assert sum(member.core.counters.silent_publishers for member in net.members.values()) == 1


def test_a_publisher_that_uses_the_list_no_more_is_not_waited_for(net: Net) -> None:
    publisher, one = net.others("a", "a/#", "#")[:2]
    publisher.publish("a")
    net.run(net.config.idle_s + 30)
    assert net.count(Drop) > 0
    assert len(publisher.core.publisher) == 0
    net.crash(publisher)
    done = one.subscribe("a")
    net.run(0.01)
    assert done == ["a"]


def test_who_asks_the_wrong_peer_is_told(net: Net) -> None:
    wrong, asker = net.others("a")[:2]
    net.queue.append((asker.me, wrong.me, encode_control(Fetch("a"))))
    net.run()
    assert net.seen[-1][2] == Elsewhere(("a",))
    assert wrong.core.holdings.get("a") is None


def test_nobody_can_subscribe_for_another(net: Net) -> None:
    one, other = net.others("a")[:2]
    one.subscribe("a")
    net.run(0.1)
    sub = next(message for _, _, message in net.seen if isinstance(message, Sub))
    before = net.count(SubAck)
    net.queue.append((other.me, net.holders("a")[0].me, encode_control(sub)))
    net.run()
    assert net.count(SubAck) == before


def test_what_is_retained_can_be_fetched(net: Net) -> None:
    publisher, asker = net.others("a", "a/#", "#")[:2]
    publisher.publish("a", b"kept", retain=True)
    net.run(1.0)
    net.queue.append((asker.me, net.holders("a")[0].me, encode_control(Fetch("a"))))
    net.run()
    answer = net.seen[-1][2]
    assert isinstance(answer, Fetched)
    assert answer.record is not None
    assert answer.record.body == b"kept"


def test_an_entry_that_is_not_renewed_is_dropped_from_the_lists(net: Net) -> None:
    publisher, one = net.others("a", "a/#", "#")[:2]
    done = one.subscribe("a")
    publisher.publish("a")
    net.run(0.1)
    assert done == ["a"]
    net.crash(one)
    publisher.publish("a")
    net.run(1.0)
    assert len(publisher.reasons) == 1, "it is waited for as long as its lease runs"
    for _ in range(4):
        net.run(net.config.entry_s / 3)
        publisher.publish("a", qos=0)
    assert len(publisher.reasons) > 1
    holding = net.holders("a")[0].core.holdings.get("a")
    assert holding is not None
    assert not [record for record in holding.book if record.name == "a" and not record.gone]
    assert net.count(List) > 0
