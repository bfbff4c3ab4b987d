"""The filters of this peer's clients: asked for, in force, renewed, given back."""

from __future__ import annotations

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Control, Fetch, Sub, SubAck
from ringmq.peer.engines.coordinated.subscriber import MOST_ASKED
from ringmq.peer.messaging.publication import Publication
from tests.peer.conftest import Net


def test_it_asks_until_it_is_answered(net: Net) -> None:
    one = net.others("a")[0]
    net.lost = lambda sender, receiver, message: isinstance(message, SubAck)
    done = one.subscribe("a")
    net.run(3.0)
    assert done == []
    asked = net.count(Sub)
    assert 3 < asked < 10
    net.lost = lambda sender, receiver, message: False
    net.run(2.0)
    assert done == ["a"]
    assert one.core.subscriber.in_force("a")
    second = one.subscribe("a")
    assert second == ["a"], "it is in force here already"


def test_not_all_filters_are_asked_for_at_once(net: Net) -> None:
    """Those beyond wait for the others, whether these are granted or given back; and none is forgotten."""
    one = net.others()[0]
    net.lost = lambda sender, receiver, message: isinstance(message, SubAck)
    filters = [f"t/{number}" for number in range(3 * MOST_ASKED)]
    done = one.subscribe(*filters)
    net.run(net.config.ask_s / 2)
    asked = {entry.name for _, _, message in net.seen if isinstance(message, Sub) for entry in message.entries}
    assert 0 < len(asked) <= MOST_ASKED
    net.lost = lambda sender, receiver, message: False
    for name in filters[:10] + filters[-10:]:
        one.core.unsubscribe(name)
    net.run(10.0)
    assert sorted(done) == sorted(filters)
    assert len(one.core.subscriber) == len(filters) - 20
    assert all(one.core.subscriber.in_force(name) for name in filters[10:-10])


def test_every_done_is_called_once(net: Net) -> None:
    one = net.others("a")[0]
    first = one.subscribe("a", "a")
    one.core.unsubscribe("a")
    assert first == ["a", "a"]
    again = one.subscribe("a")
    net.run(1.0)
    assert (first, again) == (["a", "a"], ["a"])
    one.core.unsubscribe("a")
    one.core.unsubscribe("never")
    net.run(1.0)
    assert len(one.core.subscriber) == 0


def test_leases_are_renewed_at_the_coordinator(net: Net) -> None:
    one = net.others("a", "b")[0]
    one.subscribe("a", "b")
    net.run(1.0)
    net.seen.clear()
    net.run(4 * net.config.entry_s)
    assert 10 < net.count(Sub) < 60
    publisher = net.others("a", "b")[1]
    publisher.publish("b")
    net.run(1.0)
    assert one.got == [("b", b"x")]


def test_a_lost_lease_is_asked_for_anew(net: Net) -> None:
    one, publisher = net.others("a", "a/#", "#")[:2]
    one.subscribe("a")
    net.run(1.0)

    def cut_off(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return one.me in (sender, receiver)

    net.lost = cut_off
    net.run(2 * net.config.entry_s)
    publisher.publish("a", b"missed")
    net.run(5.0)
    assert publisher.reasons == [Reason.NO_MATCHING_SUBSCRIBERS]
    net.lost = lambda sender, receiver, message: False
    net.run(net.config.entry_s)
    assert one.core.counters.leases_lost == 1
    publisher.publish("a", b"again")
    net.run(1.0)
    assert one.got == [("a", b"again")]


def test_what_is_retained_is_here_before_it_is_in_force(net: Net) -> None:
    publisher = net.others("a/b")[0]
    for topic in ("a/b", "a/c"):
        publisher.publish(topic, topic.encode(), retain=True)
    net.run(1.0)
    one = net.others("a/b", "a/c", "a/#")[-1]
    net.lost = lambda sender, receiver, message: isinstance(message, Fetch)
    done = one.subscribe("a/+")
    net.run(2.0)
    assert done == []
    net.lost = lambda sender, receiver, message: False
    net.run(3.0)
    assert done == ["a/+"]
    assert one.kept == {"a/b": b"a/b", "a/c": b"a/c"}
    assert one.core.subscriber.wants("a/x")
    one.core.unsubscribe("a/+")
    assert one.kept == {"a/b": b"", "a/c": b""}
    assert not one.core.subscriber.wants("a/x")


def test_shared_filters_want_nothing_for_themselves(net: Net) -> None:
    publisher, one = net.others("a")[:2]
    publisher.publish("a", b"kept", retain=True)
    net.run(1.0)
    assert one.subscribe("$share/g/a") == []
    net.run(1.0)
    assert one.core.subscriber.in_force("$share/g/a")
    assert not one.core.subscriber.wants("a")
    assert one.kept == {}
