"""SUBACK is strict: what it waits for, and for how long."""

from __future__ import annotations

from math import inf

import pytest

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import (
    AppendAck,
    Control,
    Drop,
    Elsewhere,
    Fetch,
    Fetched,
    Kind,
    Known,
    List,
    Note,
    Record,
    Retain,
    Retained,
    Sub,
    SubAck,
)
from ringmq.peer.engines.coordinated.shell.retained_store import RetainedStore
from ringmq.peer.messaging.body import encode_body, remaining_of
from ringmq.peer.messaging.partitions import key_of_place
from ringmq.peer.messaging.publication import Publication, encode_control
from tests.peer.conftest import Member, Net


def test_a_filter_is_in_force_when_the_shadows_have_it(net: Net) -> None:
    one = net.others("a")[0]
    net.lost = lambda sender, receiver, message: isinstance(message, AppendAck)
    done = one.subscribe("a")
    net.run(0.2)
    assert done == []
    net.lost = lambda sender, receiver, message: False
    net.run(1.0)
    assert done == ["a"]
    for holder in net.holders("a"):
        replica = holder.core.replicas.get("a")
        assert replica is not None
        assert [record.peer for record in replica.book if not record.gone] == [one.me]


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
    assert wrong.core.replicas.get("a") is None


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
    replica = net.holders("a")[0].core.replicas.get("a")
    assert replica is not None
    assert not [record for record in replica.book if record.name == "a" and not record.gone]
    assert net.count(List) > 0


def _body(expiry_s: int) -> bytes:
    return encode_body(Message("a", b"x", expires_at=expiry_s), 0.0)


def test_what_is_retained_ages_where_it_is_kept(net: Net) -> None:
    publisher, *readers = net.others("a", "a/#", "#")
    publisher.publish("a", _body(100), retain=True)
    net.run(30.0)
    readers[0].subscribe("a")
    net.run(1.0)
    assert remaining_of(readers[0].kept["a"]) == 70
    net.add(key_of_place("a") + 1)
    net.run(19.0)
    readers[1].subscribe("#")
    net.run(1.0)
    assert remaining_of(readers[1].kept["a"]) == 50, "and a new coordinator goes on with what remains"
    for victim in net.holders("a")[:2]:
        net.crash(victim)
    net.run(29.0)
    readers[1].subscribe("a")
    net.run(1.0)
    assert remaining_of(readers[1].kept["a"]) == 50, "it was here"
    third = next(reader for reader in readers[1:] if "a" not in reader.kept and reader.me.id in net.members)
    third.subscribe("a")
    net.run(1.0)
    assert remaining_of(third.kept["a"]) in (18, 19)


def test_what_has_expired_is_removed_wherever_it_is_kept(lasting: Net) -> None:
    publisher, reader = lasting.others("a", "a/#", "#")[:2]
    publisher.publish("a", b"first", retain=True)
    lasting.run(1.0)
    away = lasting.holders("a")[2]
    lasting.crash(away)
    lasting.run(5.0)
    publisher.publish("a", _body(10), retain=True)
    lasting.run(10.0)
    reader.subscribe("a")
    lasting.run(lasting.config.look_s + 0.5)
    for holder in lasting.holders("a"):
        replica = holder.core.replicas.get("a")
        assert replica is not None
        assert (replica.ends_at, replica.retained(lasting.now).gone) == (inf, True)  # type: ignore[union-attr]
        assert holder.store is not None
        assert "a" not in holder.store.load().places
        assert [topic for topic, _, _ in holder.store.load().cleared] == ["a"]
    lasting.run(lasting.config.note_s + 2 * lasting.config.tomb_s)
    assert not any(replica.place in ("#", "a/#") for one in lasting.members.values() for replica in one.core.replicas)
    lasting.restart(away)
    lasting.run(2.0)
    reader.subscribe("a/#")
    lasting.run(2.0)
    assert not reader.kept.get("a"), "nor does it give way to what it replaced"


def _unwritten(member: Member) -> RetainedStore:
    """Its disk does not take anything for a while."""
    store, member.store = member.store, None
    assert store is not None
    return store


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_retained_message_is_acknowledged_when_all_disks_have_it(lasting: Net, place: int) -> None:
    publisher, holder = lasting.others("a", "a/#", "#")[0], lasting.holders("a")[place]
    for body in (b"x", b""):
        before = len(publisher.reasons)
        store = _unwritten(holder)
        publisher.publish("a", body, retain=True)
        lasting.run(3.0)
        assert len(publisher.reasons) == before
        holder.store = store
        lasting.run(1.0)
        assert len(publisher.reasons) == before + 1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_retained_message_is_acknowledged_when_its_notes_are_on_the_disks(lasting: Net, place: int) -> None:
    publisher = lasting.others("#")[0]
    topic = next(topic for topic in map(str, range(99)) if not set(lasting.holders(topic)) & set(lasting.holders("#")))
    store = _unwritten(holder := lasting.holders("#")[place])
    publisher.publish(topic, retain=True)
    lasting.run(3.0)
    assert publisher.reasons == []
    holder.store = store
    lasting.run(3.0)
    assert len(publisher.reasons) == 1


def test_what_was_cleared_is_not_noted(net: Net) -> None:
    """A message that comes late, after what cleared it."""
    publisher = net.others("a", "a/#", "#")[0]
    for _ in range(2):
        publisher.publish("a", b"", retain=True)
        net.run(1.0)
    late = Retain(Record(Kind.RETAINED, "a", None, (0, 1), False, body=b"x"))
    net.queue.append((publisher.me, net.holders("a")[0].me, encode_control(late)))
    net.run(1.0)
    assert net.count(Note) == 0
    answer = [message for _, _, message in net.seen if isinstance(message, Retained)][-1]
    assert answer.number == (0, 1), "who brings it is rid of it"


def test_a_new_coordinator_knows_how_late_it_is(net: Net) -> None:
    """The clock of the first publisher is far ahead of that of the second, who hears of it from the coordinator."""
    first, second, reader = net.others("a", "a/#", "#")[:3]
    first.core._state.clock_us = lambda: 10**15
    first.publish("a", b"first", retain=True)
    net.run(1.0)
    net.crash(net.holders("a")[0])
    net.run(1.0)
    second.publish("a", b"not retained")
    net.run(1.0)
    second.publish("a", b"second", retain=True)
    net.run(1.0)
    reader.subscribe("a")
    net.run(1.0)
    assert reader.kept == {"a": b"second"}


@pytest.mark.parametrize(
    ("topic_filter", "wanted"),
    [
        ("#", {"a", "a/", "a/b", "a/b/c", "/", "//", "/x", "//x"}),
        ("+", {"a"}),
        ("+/#", {"a", "a/", "a/b", "a/b/c", "/", "//", "/x", "//x"}),
        ("a/#", {"a", "a/", "a/b", "a/b/c"}),
        ("a/+", {"a/", "a/b"}),
        ("a/+/#", {"a/", "a/b", "a/b/c"}),
        ("a//#", {"a/"}),
        ("a/b/#", {"a/b", "a/b/c"}),
        ("/#", {"/", "//", "/x", "//x"}),
        ("/+", {"/", "/x"}),
        ("//#", {"/", "//", "//x"}),
        ("///#", {"//"}),
        ("$x/#", {"$x", "$x/y"}),
        ("$x/+", {"$x/y"}),
        ("$x/y/#", {"$x/y"}),
    ],
)
def test_a_filter_finds_all_that_is_retained(net: Net, topic_filter: str, wanted: set[str]) -> None:
    publisher, reader = net.others("#", "a/#")[:2]
    for topic in ("a", "a/", "a/b", "a/b/c", "/", "//", "/x", "//x", "$x", "$x/y"):
        publisher.publish(topic, retain=True)
    net.run(1.0)
    done = reader.subscribe(topic_filter)
    net.run(1.0)
    assert done == [topic_filter]
    assert set(reader.kept) == wanted
    assert Fetch("") not in [message for _, _, message in net.seen], "no topic has that name"


def test_no_place_is_held_for_the_name_of_a_topic_alone(net: Net) -> None:
    publisher, reader = net.others("a/b", "a/#", "#")[:2]
    publisher.publish("a/b", retain=True)
    net.run(2 * net.config.idle_s + net.config.tomb_s + 10.0)
    assert {replica.place for one in net.members.values() for replica in one.core.replicas} == {"a/b", "a/#", "#"}
    reader.subscribe("c/#")
    net.run(net.config.tomb_s)
    assert not any(one.core.replicas.get("c") for one in net.members.values()), "who asks for nothing leaves nothing"


def test_a_wildcard_finds_what_a_silent_shadow_has_not_confirmed(net: Net) -> None:
    """The publisher has sent it to all it knew of, and is silent until it is kept: longer than a SUBACK waits."""
    publisher, one = net.others("a/b", "a/b/#", "a/#", "#")[:2]
    publisher.publish("a/b")
    net.run(0.5)
    shadow = net.holders("a/b")[1]

    def silent(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return sender == shadow.me and isinstance(message, AppendAck) and message.place == "a/b"

    net.lost = silent
    publisher.publish("a/b", b"kept", retain=True)
    done = one.subscribe("a/+")
    net.run(2 * net.config.void_s)
    assert publisher.reasons == [Reason.NO_MATCHING_SUBSCRIBERS], "the second is not acknowledged"
    assert done == ["a/+"]
    assert one.kept == {"a/b": b"kept"}
