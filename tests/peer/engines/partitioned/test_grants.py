"""SUBACK is strict: its conditions, and how long it waits; and the end of entries and retained messages."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating import quota
from ringmq.peer.engines.partitioned.coordinating.quota import MAX_SHAPES
from ringmq.peer.engines.partitioned.item_codec import encode_item
from ringmq.peer.engines.partitioned.messages import Append, Elsewhere, Find, Found, Release, Retain, Retained, Row
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.engines.partitioned.shell.record_store import RecordStore
from ringmq.peer.messaging.body import encode_body, remaining_of
from ringmq.peer.messaging.messages import Control
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.replication.record import RecordKind
from ringmq.peer.replication.space import key_of_partition
from ringmq.peer.streams.stream_messages import Batch, BatchAck
from tests.peer.conftest import Member, Net, parts_of


def live_entries(member: Member, topic_filter: str) -> list[Peer | None]:
    records = member.core.replicas.records(partition_of(topic_filter)).values()
    return [record.home for record in records if record.name == topic_filter and not record.gone]


def test_a_filter_is_in_force_when_the_shadows_have_it(net: Net) -> None:
    home, other = net.others("a")[:2]
    other.subscribe("a")
    net.run(0.5)
    shadow = net.owning("a")[1]
    net.lost = lambda sender, receiver, message: sender == shadow.me and isinstance(message, Batch | BatchAck)
    done = home.subscribe("a")
    net.run(1.0)
    assert done == []
    net.lost = lambda sender, receiver, message: False
    net.run(3.0)
    assert done == ["a"]
    for owner in net.owning("a"):
        assert set(live_entries(owner, "a")) == {home.me, other.me}


def test_a_holder_that_trusts_older_routes_is_waited_for(net: Net) -> None:
    publisher, home = net.others("a")[:2]
    publisher.publish("a")
    net.run(0.5)
    net.lost = lambda sender, receiver, message: sender == publisher.me
    began, done = net.now, home.subscribe("a")
    net.run(net.config.lease_s)
    assert done == [], "it may still trust the routes that it has"
    net.run(net.config.void_s - net.config.lease_s + 0.1)
    assert done == ["a"]
    assert net.now - began < net.config.void_s + 0.2
    assert sum(member.core.counters.silent_publishers for member in net.members.values()) == 1


def test_a_retained_message_on_its_way_is_waited_for_however_long_it_takes(net: Net) -> None:
    """It was published by the routes before: a subscriber that does not wait gets it neither live nor retained."""
    (coordinator, *_), (keeper, *_) = net.owning("a"), net.owning("a/b")
    assert coordinator is not keeper
    publisher, home = [member for member in net.others("a/b") if member is not coordinator][:2]
    publisher.publish("a/b")
    net.run(0.5)
    net.lost = lambda sender, receiver, message: (sender, receiver) == (publisher.me, keeper.me)
    publisher.publish("a/b", b"kept", retain=True)
    done = home.subscribe("a/+")
    net.run(3 * net.config.void_s)
    assert done == []
    net.lost = lambda sender, receiver, message: False
    net.run(2 * net.config.slow_retry_s)
    assert done == ["a/+"]
    assert home.kept["a/b"] == b"kept"
    assert sum(member.core.counters.silent_publishers for member in net.members.values()) == 0


def test_a_former_holder_is_not_waited_for(net: Net) -> None:
    publisher, home = net.others("a", "#")[:2]
    publisher.publish("a")
    net.run(2 * net.config.idle_s)
    assert net.count(Release) > 0
    assert len(publisher.core.publisher) == 0
    net.crash(publisher)
    done = home.subscribe("a")
    net.run(0.5)
    assert done == ["a"]


def test_a_request_to_a_peer_that_does_not_coordinate_is_refused(net: Net) -> None:
    wrong, asker = net.others("a")[:2]
    row = Row(partition_of("a"), RecordKind.RETAINED, "a", -1, (1, 1), False, body=b"x")
    asker.core.streams.send(wrong.me, Retain(row))
    asker.core.acknowledge()
    net.run(0.5)
    answers = [part for sender, _, message in net.seen if sender == wrong.me for part in parts_of(message)]
    partition = partition_of("a")
    assert Elsewhere(((partition, partition),)) in answers
    assert not wrong.core.replicas.records(partition)


def test_entries_of_a_silent_home_lapse_and_messages_to_it_are_given_up(net: Net) -> None:
    publisher, home = net.others("a", "#")[:2]
    done = home.subscribe("a")
    net.run(0.5)
    publisher.publish("a")
    net.run(0.5)
    assert done == ["a"]
    assert len(publisher.reasons) == 1
    net.crash(home)
    publisher.publish("a")
    net.run(1.0)
    assert len(publisher.reasons) == 1, "the home is waited for until its entries lapse"
    net.run(net.config.entry_s + 2.0)
    assert len(publisher.reasons) == 2
    for owner in net.owning("a"):
        assert live_entries(owner, "a") == []
    net.run(net.config.tomb_s + 2.0)
    assert not any(member.core.replicas.partitions() for member in net.members.values())


def test_a_partition_refuses_more_shapes_than_a_match_may_cost(net: Net) -> None:
    home = net.others("a")[0]
    shapes = ["a/+/" + "/".join("+" if number >> bit & 1 else "x" for bit in range(7)) for number in range(100)]
    done = home.subscribe(*shapes)
    net.run(5.0)
    assert (len(done), len(home.refused)) == (MAX_SHAPES, len(shapes) - MAX_SHAPES), "each SUBSCRIBE is answered"
    assert len(home.core.subscriber) == MAX_SHAPES
    assert home.core.counters.refused_filters == len(shapes) - MAX_SHAPES
    assert not any(record.gone for owner in net.owning("a") for _, record in owner.core.replicas), "no traces"
    home.core.unsubscribe(next(iter(home.core.subscriber)).filter)
    net.run(1.0)
    assert home.subscribe("a/+/+/+/+/+/+/+/+/+") == []
    net.run(1.0)
    assert len(home.core.subscriber) == MAX_SHAPES, "there is room for another shape"


def test_a_full_partition_takes_what_it_has_once_more(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "MAX_ENTRIES", 2)
    monkeypatch.setattr(quota, "MAX_RETAINED", 1)
    home, other = net.others("a")[:2]
    done = home.subscribe("a/+/1", "a/+/2", "a/+/3")
    net.run(1.0)
    assert (sorted(done), home.refused) == (["a/+/1", "a/+/2"], ["a/+/3"])
    home.core.unsubscribe("a/+/1")
    net.run(1.0)
    assert home.subscribe("a/+/3") == []
    assert other.subscribe("a/+/2") == []
    net.run(1.0)
    assert (home.refused, other.refused) == (["a/+/3"], ["a/+/2"]), "another home's entry is an entry of its own"


def test_a_full_partition_replaces_and_clears_but_retains_nothing_more(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "MAX_RETAINED", 1)
    publisher, reader = net.others("a")[:2]
    second = next(name for name in (f"b{n}" for n in range(100_000)) if partition_of(name) == partition_of("a"))
    reader.subscribe(second)
    net.run(1.0)
    for topic, body in (("a", b"1"), (second, b"2"), ("a", b"3"), ("a", b""), (second, b"4")):
        publisher.publish(topic, body, retain=True)
        net.run(1.0)
    full = Reason.QUOTA_EXCEEDED
    nobody = Reason.NO_MATCHING_SUBSCRIBERS
    assert publisher.reasons == [nobody, full, nobody, nobody, Reason.SUCCESS]
    assert publisher.core.counters.not_retained == 1
    assert [body for topic, body in reader.got if topic == second] == [b"2", b"4"], "delivered all the same"


def _body(expiry_s: int) -> bytes:
    return encode_body(Message("a", b"x", expires_at=expiry_s), 0.0)


def test_a_retained_message_ages_where_it_is_kept(net: Net) -> None:
    publisher, *readers = net.others("a")
    publisher.publish("a", _body(100), retain=True)
    net.run(30.0)
    readers[0].subscribe("a")
    net.run(1.0)
    assert remaining_of(readers[0].kept["a"]) in (69, 70)
    net.add(key_of_partition(partition_of("a")) + 1)
    net.run(19.0)
    readers[1].subscribe("#")
    net.run(1.0)
    assert remaining_of(readers[1].kept["a"]) in (49, 50), "a new coordinator goes on with the rest"


def test_an_expired_message_is_removed_from_all_copies_and_disks(lasting: Net) -> None:
    publisher, reader = lasting.others("a", "#")[:2]
    publisher.publish("a", b"first", retain=True)
    lasting.run(1.0)
    away = lasting.owning("a")[2]
    lasting.crash(away)
    lasting.run(5.0)
    publisher.publish("a", _body(10), retain=True)
    lasting.run(10.0)
    reader.subscribe("a")
    lasting.run(lasting.config.look_s + 2.0)
    for owner in lasting.owning("a"):
        assert live_entries(owner, "a") == [reader.me], "no retained message"
        assert owner.store is not None
        assert owner.store.load().records == []
        assert [topic for topic, _, _ in owner.store.load().cleared] == ["a"]
    lasting.run(2 * lasting.config.tomb_s)
    lasting.restart(away)
    lasting.run(2.0)
    reader.subscribe("+")
    lasting.run(2.0)
    assert not reader.kept.get("a"), "nor does the message come back that it had replaced"


def _unwritten(member: Member) -> RecordStore:
    """Its disk takes nothing for a while."""
    store, member.store = member.store, None
    assert store is not None
    return store


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_retained_message_is_acknowledged_when_all_disks_have_it(lasting: Net, position: int) -> None:
    publisher, owner = lasting.others("a", "#")[0], lasting.owning("a")[position]
    publisher.publish("other", b"x")
    lasting.run(1.0)
    for body in (b"x", b""):
        before = len(publisher.reasons)
        store = _unwritten(owner)
        publisher.publish("a", body, retain=True)
        lasting.run(3.0)
        assert len(publisher.reasons) == before
        owner.store = store
        lasting.run(3.0)
        assert len(publisher.reasons) == before + 1


def test_a_peer_alone_acknowledges_a_retained_message_when_it_is_on_its_disk(lasting: Net) -> None:
    alone = next(iter(lasting.members.values()))
    lasting.crash(*[member for member in lasting.members.values() if member is not alone])
    # Until then a subscriber's peer may live behind a cut.
    lasting.run(lasting.config.entry_s + 5.0)
    store = _unwritten(alone)
    alone.publish("a", b"x", retain=True)
    lasting.run(2.0)
    assert alone.reasons == []
    alone.store = store
    lasting.run(1.0)
    assert alone.reasons == [Reason.NO_MATCHING_SUBSCRIBERS]


def test_a_message_that_comes_after_its_clearing_is_answered_and_not_kept(net: Net) -> None:
    publisher, reader = net.others("a", "#")[:2]
    publisher.publish("a", b"", retain=True)
    net.run(1.0)
    row = Row(partition_of("a"), RecordKind.RETAINED, "a", -1, (0, 1), False, body=b"late")
    publisher.core.streams.send(net.owning("a")[0].me, Retain(row))
    publisher.core.acknowledge()
    net.run(1.0)
    answers = [part for _, _, message in net.seen for part in parts_of(message) if isinstance(part, Retained)]
    assert answers[-1].number == (0, 1), "its publisher need not send it again"
    reader.subscribe("a")
    net.run(1.0)
    assert not reader.kept.get("a")


def test_a_new_coordinator_knows_the_clock_of_its_predecessor(net: Net) -> None:
    """The clock of the first publisher is far ahead of that of the second, who hears of it from the coordinator."""
    first, second, reader = net.others("a", "#")[:3]
    first.core._state.clock_us = lambda: 10**15
    first.publish("a", b"first", retain=True)
    net.run(1.0)
    net.crash(net.owning("a")[0])
    net.run(1.0)
    second.publish("a", b"not retained")
    net.run(1.0)
    second.publish("a", b"second", retain=True)
    net.run(1.0)
    reader.subscribe("a")
    net.run(1.0)
    assert reader.kept == {"a": b"second"}


def test_the_first_retained_message_of_a_peer_is_later_than_those_of_a_clock_that_was_ahead(net: Net) -> None:
    """It learns of that clock only when it asks for routes, while its message waits."""
    first, second, reader = net.others("a", "#")[:3]
    wall_us = int(net.now * 1e6)
    first.core._state.clock_us = lambda: wall_us + 5 * 3600 * 10**6
    first.publish("a", b"first", retain=True)
    net.run(1.0)
    second.core._state.clock_us = lambda: wall_us
    second.subscribe("other")
    second.publish("a", b"second", retain=True)
    second.publish("a", b"third", retain=True)
    net.run(1.0)
    assert second.reasons == [Reason.NO_MATCHING_SUBSCRIBERS] * 2
    reader.subscribe("a")
    net.run(1.0)
    assert reader.kept == {"a": b"third"}


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
        ("a/b", {"a/b"}),
    ],
)
def test_a_filter_finds_all_retained_messages(net: Net, topic_filter: str, wanted: set[str]) -> None:
    publisher, reader = net.others("#", "a")[:2]
    for topic in ("a", "a/", "a/b", "a/b/c", "/", "//", "/x", "//x", "$x", "$x/y"):
        publisher.publish(topic, retain=True)
    net.run(1.0)
    done = reader.subscribe(topic_filter)
    net.run(1.0)
    assert done == [topic_filter]
    assert set(reader.kept) == wanted


def test_a_wildcard_finds_a_message_that_a_silent_shadow_has_not_confirmed(net: Net) -> None:
    """The publisher has sent it to all subscribers that it knew, and is silent for their coordinator."""
    publisher, home = net.others("a/b", "a", "#")[:2]
    publisher.publish("a/b")
    net.run(0.5)
    coordinator, shadow = net.owning("a")[0], net.owning("a/b")[1]

    def silent(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        if (sender, receiver) == (publisher.me, coordinator.me):
            return True
        if receiver != shadow.me:
            return False
        appends = [part for part in parts_of(message) if isinstance(part, Append)]
        return any(row.name == "a/b" for append in appends for row in append.rows)

    net.lost = silent
    publisher.publish("a/b", b"kept", retain=True)
    done = home.subscribe("a/+")
    net.run(2 * net.config.void_s)
    assert publisher.reasons == [Reason.NO_MATCHING_SUBSCRIBERS], "the second is not acknowledged"
    assert done == ["a/+"]
    assert home.kept == {"a/b": b"kept"}


def test_a_search_says_which_partitions_are_elsewhere(net: Net) -> None:
    home = net.others("a")[0]
    coordinator = net.owning("a")[0]
    home.subscribe("a")
    net.run(1.0)
    net.seen.clear()
    home.core.streams.send(coordinator.me, Find(7, ("#",), ((0, 4095),)))
    home.core.acknowledge()
    net.run(0.5)
    found = [part for _, _, message in net.seen for part in parts_of(message) if isinstance(part, Found)]
    runs = sorted(run for part in found for run in (*part.runs, *part.elsewhere))
    assert runs[0][0] == 0
    assert runs[-1][1] == 4095
    assert all(before[1] + 1 == after[0] for before, after in pairwise(runs))


def test_items_of_an_unknown_kind_are_not_acknowledged(net: Net) -> None:
    home, coordinator = net.others("a")[0], net.owning("a")[0]
    assert encode_item(Elsewhere(())) != b""
    home.core.streams.send_encoded(coordinator.me, b"\x91\x7f")
    home.core.acknowledge()
    net.run(1.0)
    assert coordinator.core.streams.counters.as_dict()["unreadable"] > 0
    assert not home.core.streams.idle(coordinator.me)
