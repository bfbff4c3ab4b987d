"""A faulty member sends well-formed items with false contents: nothing fails, and the ring goes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.item_codec import decode_item, encode_item
from ringmq.peer.engines.partitioned.messages import (
    Append,
    Begun,
    EntryFlag,
    Extra,
    Found,
    Handover,
    Registered,
    Renewed,
    Retain,
    Retained,
    Row,
    State,
)
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.publication import encode_control
from ringmq.peer.replication.record import RecordKind, SharedRecord
from ringmq.peer.replication.space import ALL, PARTITIONS
from ringmq.peer.streams.stream_messages import Batch, BatchAck, Lane
from ringmq.peer.streams.streams import OwnItem
from tests.peer.conftest import Member, Net
from tests.peer.engines.partitioned.liars import CONTROL, ITEMS, Liar

PEERS = 4
LIES = 60
NAMES = ["a", "a/b", "c", "a/+", "a/#", "kept"]
QUIET_S = 90.0
"""All leases are over, and tombstones forgotten."""


def ring(folder: Path | None) -> Net:
    net = Net(PubSubConfig(), folder)
    for number in range(PEERS):
        net.add((number << 126) + 5)
    net.run(1.0)
    return net


def lie(net: Net, victim: Member, sender: Peer, item: object) -> None:
    """As if the item had come in the stream of this member."""
    victim.core.clock.now = net.now
    if type(item) in CONTROL:
        victim.core._do(lambda: victim.core._handle(sender, item))  # type: ignore[arg-type]
    else:
        read = decode_item(encode_item(item))  # type: ignore[arg-type]
        victim.core._do(lambda: within_a_batch(victim.core.streams, lambda: victim.core._handle_item(sender, read)))
    victim.settle()


def within_a_batch(streams: Any, call: Callable[[], None]) -> None:
    """Handlers may hold the present batch back."""
    before, streams._present = streams._present, OwnItem(None, None)
    try:
        call()
    finally:
        streams._present = before


def works(net: Net) -> None:
    """Subscriptions, publications and retained messages between all peers."""
    members = list(net.members.values())
    for number, member in enumerate(members[:2]):
        name = f"late/{number}"
        done = member.subscribe(name, f"{name}/#")
        net.run(20.0)
        assert sorted(done) == [name, f"{name}/#"]
        for other in members:
            other.publish(name, b"1", 1)
            other.publish(f"{name}/kept", b"2", 1, retain=True)
        net.run(20.0)
        heard = [body for topic, body in member.got if topic.startswith(name)]
        assert heard.count(b"1") == heard.count(b"2") == len(members) - 1
        reader = members[number - 1]
        assert reader.subscribe(f"{name}/+") == []
        net.run(20.0)
        assert reader.kept.get(f"{name}/kept") == b"2"


@pytest.mark.parametrize("seed", range(4))
def test_a_ring_goes_on_after_lies_of_all_kinds(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    # Disks make it several times slower.
    net = ring(tmp_path if seed == 0 else None)
    members = list(net.members.values())
    liar, honest = members[0], members[1:]
    for member in members:
        member.subscribe(*chance.sample(NAMES[:-1], 3))
        member.publish("kept", b"x", retain=True)
    net.run(2.0)
    make = Liar(chance, [member.me for member in members], NAMES)
    for _ in range(LIES):
        victim = chance.choice(honest)
        lie(net, victim, liar.me, make.message(chance.choice((*ITEMS, *CONTROL))))
        net.run(chance.choice((0.0, 0.0, 0.5)))
    net.run(QUIET_S)
    works(net)
    net.crash(*members)


def test_a_stamp_from_a_distant_future_ends_no_topic(tmp_path: Path) -> None:
    net = ring(tmp_path)
    members = list(net.members.values())
    liar, honest = members[0], members[1:]
    far = ((1 << 63) - 1, 5)
    row = Row(partition_of("kept"), RecordKind.RETAINED, "kept", -1, far, False, body=b"false")
    for victim in honest:
        for item in (
            Retain(row), Retained("kept", far, far[0]), Renewed(0.0, False, far[0]), Extra((), (row,)),
            Handover(((row.partition, row.partition),), (), (row,)), State(1, (), (), (row,), ()),
            Found(1, (row,), ALL),
            Registered((), (), (), (row,)), Append((), (), (row,)),
        ):  # fmt: skip
            lie(net, victim, liar.me, item)
            net.run(0.1)
        counters = victim.core.counters
        assert counters.false_records >= 5
        assert counters.far_stamps >= 2
    honest[0].publish("kept", b"true", retain=True)
    net.run(5.0)
    reader = honest[1]
    reader.subscribe("kept")
    net.run(5.0)
    assert reader.kept["kept"] == b"true"
    net.crash(*members)


def test_a_record_of_another_partition_is_dropped_and_counted() -> None:
    net = ring(None)
    members = list(net.members.values())
    coordinator, other = net.owning("a")[:2]
    wrong = (partition_of("a") + 1) % PARTITIONS
    rows = (
        Row(wrong, RecordKind.ENTRY, "a", 0, (1, 1), False),
        Row(wrong, RecordKind.RETAINED, "a", -1, (1, 1), False),
    )
    before = coordinator.core.counters.false_records
    lie(net, coordinator, other.me, Extra((members[0].me,), rows))
    assert coordinator.core.counters.false_records == before + 2
    assert not any(record.name == "a" for _, record in coordinator.core.replicas)


def test_a_home_follows_no_boot_from_a_distant_future() -> None:
    net = ring(None)
    home = net.others("a")[0]
    coordinator = net.owning("a")[0]
    home.subscribe("a")
    own = next(iter(home.core.subscriber))
    lie(net, home, coordinator.me, Registered((), (((1 << 63) - 1, own.count),), ()))
    net.run(5.0)
    assert home.core.subscriber.in_force("a")
    assert home.core.counters.false_boots == 1


def test_overlapping_ranges_cost_no_more_than_all_partitions() -> None:
    everything = Begun(0, PARTITIONS - 1, 1)
    with pytest.raises(ValueError, match="more partitions than there are"):
        Append((everything, everything), (), ())


def test_a_routed_payload_that_names_a_false_origin_counts_for_nothing() -> None:
    """It would silence this peer towards the one that it names: only links say who sends."""
    net = ring(None)
    victim, named = list(net.members.values())[:2]
    false = Peer(named.me.id, "nowhere", 9, 1 << 40)
    for origin in (false, victim.me):
        for message in (BatchAck(Lane.CONTROL, 1, 1, 1), Batch(Lane.CONTROL, victim.me.boot, 1, 1, True, False, ())):
            victim.core.deliver(origin, encode_control(message))
    victim.core.deliver(false, b"nonsense")
    assert victim.core.counters.unreadable == 5
    assert victim.core.streams._pairs.by_id.get(named.me.id) is None or (
        victim.core.streams._pairs.by_id[named.me.id].boot == named.me.boot
    )
    works(net)


@pytest.mark.parametrize("gone", [True, False])
def test_a_count_of_its_entries_that_others_made_up_ends_no_filter_of_a_home(gone: bool) -> None:
    net = ring(None)
    home = net.others("a")[0]
    coordinator, shadow = net.owning("a")[:2]
    home.subscribe("a")
    net.run(1.0)
    row = Row(partition_of("a"), RecordKind.ENTRY, "a", 0, (home.me.boot, (1 << 63) - 1), gone)
    lie(net, coordinator, shadow.me, Extra((home.me,), (row,)))
    net.run(QUIET_S)
    done = home.subscribe("b")
    net.run(5.0)
    assert done == ["b"]
    for member in net.members.values():
        member.publish("a", b"%x" % member.me.id, 1)
    net.run(10.0)
    assert len([body for topic, body in home.got if topic == "a"]) == len(net.members) - 1
    home.core.unsubscribe("a")
    net.run(QUIET_S)
    assert home.subscribe("a") == []
    net.run(10.0)
    assert home.core.subscriber.in_force("a")


def test_a_home_that_is_away_since_a_distant_future_is_not_believed(tmp_path: Path) -> None:
    """The disk has no room for the time, and the record would never be forgotten."""
    net = ring(tmp_path)
    coordinator, shadow = net.owning("a")[:2]
    home = net.others("a")[0]
    body = b"\xff" * 8
    flags = int(EntryFlag.LASTING | EntryFlag.LAPSED)
    row = Row(partition_of("a"), RecordKind.ENTRY, "a", 0, (home.me.boot, 7), True, flags=flags, body=body)
    lie(net, coordinator, shadow.me, Extra((home.me,), (row,)))
    net.run(5.0)
    assert coordinator.core.counters.false_records == 1
    works(net)
    net.crash(*net.members.values())


def test_a_poisoned_folder_stops_no_topic(tmp_path: Path) -> None:
    """An earlier version believed any stamp, and stored it."""
    net = ring(tmp_path)
    members = list(net.members.values())
    far = (1 << 63) - 1, 5
    for member in members:
        member.store.keep("kept", SharedRecord(RecordKind.RETAINED, "kept", None, far, True))
        member.store.keep("other", SharedRecord(RecordKind.RETAINED, "other", None, far, False, body=b"\0false"))
        member.store.commit()
    members = net.restart(*members)
    net.run(20.0)
    for name in ("kept", "other"):
        members[0].publish(name, b"true", retain=True)
    net.run(10.0)
    reader = members[1]
    reader.subscribe("kept", "other")
    net.run(10.0)
    assert (reader.kept.get("kept"), reader.kept.get("other")) == (b"true", b"true")
    net.crash(*members)
