"""A publisher's lists: trusted for a lease, kept up to date, given up when they are of no use."""

from __future__ import annotations

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Control, Known, List, Renewed, Retain, SubReq
from ringmq.peer.messaging.publication import Publication
from tests.peer.conftest import Net


def test_a_list_is_asked_for_once_and_renewed(net: Net) -> None:
    publisher = net.others("a", "a/#", "#")[0]
    for _ in range(5):
        publisher.publish("a")
    net.run(0.01)
    asked = net.count(SubReq)
    assert asked == len({"a", "a/#", "#"})
    told = net.count(List)
    net.run(2 * net.config.lease_s)
    assert net.count(SubReq) > asked
    assert net.count(Renewed) > 0
    assert net.count(List) == told, "nothing has changed"
    net.seen.clear()
    publisher.publish("a")
    assert len(publisher.reasons) == 6, "a list that is trusted is not asked for"


def test_a_publisher_that_was_cut_off_asks_before_it_publishes(net: Net) -> None:
    publisher, one = net.others("a", "a/#", "#")[:2]
    publisher.publish("a")
    net.run(0.1)

    def cut_off(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return publisher.me in (sender, receiver)

    net.lost = cut_off
    done = one.subscribe("a")
    net.run(net.config.void_s + 1)
    assert done == ["a"], "the silent publisher's lease is void"
    publisher.publish("a", b"fresh")
    assert len(publisher.reasons) == 1, "and so it does not trust its list"
    net.lost = lambda sender, receiver, message: False
    net.run(5.0)
    assert one.got == [("a", b"fresh")]


def test_a_change_that_got_lost_is_noticed(net: Net) -> None:
    publisher, one, two = net.others("a", "a/#", "#")[:3]
    publisher.publish("a")
    net.run(0.1)
    dropped: list[List] = []

    def first_change(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        if receiver == publisher.me and isinstance(message, List) and message.entries and not dropped:
            dropped.append(message)
            return True
        return False

    net.lost = first_change
    done = one.subscribe("a")
    net.run(0.01)
    assert done == []
    later = two.subscribe("a")
    net.run(0.01)
    assert (done, later) == (["a"], ["a"]), "the gap shows with the next change"
    publisher.publish("a")
    net.run(0.1)
    assert (len(one.got), len(two.got)) == (1, 1)


def test_it_says_that_it_knows_when_what_it_published_before_is_stored(net: Net) -> None:
    publisher, one = net.others("a", "a/#", "#")[:2]
    publisher.publish("a")
    net.run(0.1)
    net.lost = lambda sender, receiver, message: isinstance(message, Retain)
    publisher.publish("a", b"kept", retain=True)
    done = one.subscribe("a")
    net.seen.clear()
    net.run(0.2)
    assert done == []
    assert not [message for sender, _, message in net.seen if isinstance(message, Known) and message.place == "a"]
    net.lost = lambda sender, receiver, message: False
    net.run(1.0)
    assert done == ["a"]
    assert one.kept == {"a": b"kept"}


def test_lists_that_were_given_up_are_declined(net: Net) -> None:
    publisher, one = net.others("a", "a/#", "#")[:2]
    publisher.publish("a")
    net.run(net.config.idle_s + 30)
    assert len(publisher.core.subscriber_lists) == 0
    assert one.subscribe("a") == []
    net.run(0.1)
    publisher.publish("a")
    net.run(0.1)
    assert one.got == [("a", b"x")]


def test_lists_that_are_not_used_lapse(net: Net) -> None:
    publisher, one = net.others("a", "b", "a/#", "b/#", "#")[:2]
    one.subscribe("a", "b")
    net.run(1.0)
    for topic in ("a", "b"):
        publisher.publish(topic)
    net.run(1.0)

    def renewed() -> set[str]:
        """The places of the lists that were asked for in two leases."""
        net.seen.clear()
        for _ in range(2):
            publisher.publish("b")
            net.run(net.config.lease_s)
        asked = [message for sender, _, message in net.seen if sender == publisher.me and isinstance(message, SubReq)]
        return {item.place for message in asked for item in message.items}

    assert {"a", "b", "#"} <= renewed(), "it was used a moment ago"
    renewed()
    assert "a" not in renewed()
    assert {"b", "#"} <= renewed()
    one.core.unsubscribe("a")
    net.run(1.0)
    one.got.clear()
    publisher.publish("a", b"late")
    net.run(1.0)
    assert not any(topic == "a" for topic, _ in one.got)
    one.subscribe("a")
    net.run(net.config.void_s)
    publisher.publish("a", b"again")
    net.run(1.0)
    assert ("a", b"again") in one.got


def test_the_lists_of_what_is_on_its_way_are_used(net: Net) -> None:
    """So that it is heard when the lease of its subscriber runs out."""
    publisher, one = net.others("a", "a/#", "#")[:2]
    one.subscribe("a")
    net.run(1.0)
    publisher.publish("a")
    net.run(1.0)
    assert publisher.reasons == [Reason.SUCCESS]
    net.crash(one)
    publisher.publish("a")
    net.run(net.config.entry_s + net.config.grace_s)
    assert len(publisher.reasons) == 2, "its lease ran out, and nobody else is on the list"
    assert publisher.core.counters.given_up == 1
