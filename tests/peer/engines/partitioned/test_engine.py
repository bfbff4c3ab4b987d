"""All roles over partitions together: payloads in and out, calls of the ring, and the order at the end of a call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.partitioned.item_codec import encode_item
from ringmq.peer.engines.partitioned.messages import Elsewhere, Entry, Here, Item, Register, Where
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.engines.scribe.codec import encode_tree
from ringmq.peer.engines.scribe.messages import Leave
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.publication import CONTROL, MANY, decode, encode_control
from ringmq.peer.replication.record import RecordKind, SharedRecord
from ringmq.peer.replication.space import key_of_partition, partitions_in
from ringmq.peer.streams.stream_messages import Batch, BatchAck, Lane
from tests.peer.conftest import Member, Net, eight


@pytest.fixture
def net() -> Net:
    """Eight members, evenly spread."""
    return eight(PubSubConfig(), engine=PartitionedEngine)


def first_of(net: Net) -> Member:
    return next(iter(net.members.values()))


def coordinator_of(net: Net, partition: int) -> Member:
    (owner,) = net.owners(key_of_partition(partition), 1)
    return net.members[owner.id]


@pytest.mark.parametrize("payload", [b"", b"Z", b"C\xff", b"P", MANY + b"\x00"])
def test_garbage_is_counted(net: Net, payload: bytes) -> None:
    member = first_of(net)
    member.core.receive(member.me, payload)
    assert member.core.counters.unreadable == 1


@pytest.mark.parametrize("payload", [CONTROL + b"\x92\x12\xa1a", encode_tree(Leave(("a",)))])
def test_a_message_of_another_engine_is_counted_as_unreadable(net: Net, payload: bytes) -> None:
    member = first_of(net)
    member.core.receive(member.me, payload)
    assert member.core.counters.unreadable == 1


def test_an_item_is_handled_and_acknowledged_after_the_call(net: Net) -> None:
    member, sender = list(net.members.values())[:2]
    batch = Batch(Lane.CONTROL, member.me.boot, 1, 1, True, False, (encode_item(Elsewhere(((1, 2),))),))
    net.run()
    net.seen.clear()
    member.core.receive(sender.me, encode_control(batch))
    net.run()
    acks = [message for from_peer, _, message in net.seen if from_peer == member.me and isinstance(message, BatchAck)]
    assert [(ack.stream, ack.seq) for ack in acks] == [(1, 1)]


def test_a_peer_alone_is_everything_to_itself() -> None:
    net = Net(PubSubConfig(), engine=PartitionedEngine)
    member = net.add(5)
    done = member.subscribe("a", "#")
    net.run(1.0)
    assert sorted(done) == ["#", "a"]
    member.publish("a", b"kept", retain=True)
    net.run(1.0)
    assert len(member.reasons) == 1
    assert member.kept == {"a": b"kept"}
    assert member.got == [], "its own clients have it already"


def test_roles_that_ask_each_other_without_end_hold_up_nobody_else(net: Net) -> None:
    member, other = list(net.members.values())[:2]
    core = member.core
    handlers = core._handlers
    before = handlers[Where]
    asked = 0

    def ask_again(sender: Peer, message: Where) -> None:
        nonlocal asked
        asked += 1
        core._state.send(member.me, message)

    handlers[Where] = ask_again
    core.receive(other.me, encode_control(Where(7, other.me)))
    assert core.counters.postponed == 1
    first = asked
    assert core.acknowledge() is None
    assert asked == first, "it goes on in a later iteration, before whose commit it may change something"
    done = member.subscribe("a/+")
    net.run(1.0)
    assert asked > first
    assert done == ["a/+"]
    handlers[Where] = before
    net.run(1.0)
    count = core.counters.postponed
    net.run(1.0)
    assert core.counters.postponed == count


def test_publications_reach_subscribers_and_stop_after_the_end(net: Net) -> None:
    publisher, *others = net.members.values()
    for member, name in zip(others, ("a/b", "a/+", "#", "$share/g/a/b", "x"), strict=False):
        assert member.subscribe(name) == []
        net.run(1.0)
    publisher.publish("a/b")
    net.run(1.0)
    assert [member.got for member in others] == [[("a/b", b"x")]] * 4 + [[]] * 3
    assert len(publisher.reasons) == 1
    others[0].core.unsubscribe("a/b")
    net.run(1.0)
    publisher.publish("a/b", b"late")
    net.run(1.0)
    assert others[0].got == [("a/b", b"x")]
    assert others[0].core.counters.unwanted == 0


def test_subscriptions_outlive_their_coordinator(net: Net) -> None:
    coordinator = coordinator_of(net, partition_of("a"))
    subscriber, publisher = [member for member in net.members.values() if member is not coordinator][:2]
    assert subscriber.subscribe("a") == []
    net.run(1.0)
    net.crash(coordinator)
    net.run(5.0)
    successor = coordinator_of(net, partition_of("a"))
    assert successor.core.acts(partition_of("a"))
    publisher.publish("a")
    net.run(5.0)
    assert subscriber.got == [("a", b"x")]


def test_a_peer_that_had_a_faster_clock_before_it_restarted_subscribes_again(net: Net) -> None:
    partition = partition_of("a")
    coordinator = coordinator_of(net, partition)
    subscriber = next(member for member in net.members.values() if member is not coordinator)
    net.run(1.0)
    boot = subscriber.me.boot
    before = Register((Entry("a", (boot + 50, 1000), False), Entry("b", (boot, 1), False)))
    coordinator.core.coordinator.register(subscriber.me, before)
    net.run(1.0)
    done = subscriber.subscribe("a")
    net.run(1.0)
    assert done == ["a"]
    known = coordinator.core.replicas.get(partition, (RecordKind.ENTRY, "a", subscriber.me.id))
    assert known is not None
    assert known.number > (boot + 50, 1000)


def test_a_later_subscriber_gets_retained_messages(net: Net) -> None:
    publisher, exact, wild = list(net.members.values())[:3]
    publisher.publish("a/b", b"kept", retain=True)
    net.run(2.0)
    done = [exact.subscribe("a/b"), wild.subscribe("a/#")]
    net.run(2.0)
    assert done == [["a/b"], ["a/#"]]
    assert exact.kept == wild.kept == {"a/b": b"kept"}


def test_calls_of_the_ring_wait_for_the_call_of_a_role(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    member = first_of(net)
    engine: PartitionedEngine = member.core
    calls: list[str] = []
    monkeypatch.setattr(engine, "_follow_leaves", lambda: calls.append("leaves"))
    monkeypatch.setattr(engine, "_follow_activity", lambda active: calls.append(f"active {active}"))

    def within() -> None:
        engine.leaves_changed()
        engine.activity_changed(False)
        calls.append("role")

    engine._do(within)
    assert calls == ["role", "leaves", "active False"]


def test_restored_records_are_copied_by_their_coordinator() -> None:
    net = Net(PubSubConfig(), engine=PartitionedEngine)
    kept = SharedRecord(RecordKind.RETAINED, "a", None, (7, 7), False, body=b"kept")
    before: Callable[[PartitionedEngine], None] = lambda core: core.restore([kept], [])  # noqa: E731
    net.add(5, before=before)
    subscriber = net.add(1 << 127)
    net.run(5.0)
    done = subscriber.subscribe("a")
    net.run(5.0)
    assert done == ["a"]
    assert subscriber.kept == {"a": b"kept"}


def test_with_a_shell_nothing_is_sent_before_the_commit(net: Net) -> None:
    member = first_of(net)
    member.core.acknowledges_later = True
    member.core.subscribe("a", lambda _: None)
    assert not net.queue
    assert member.core.owes
    member.core.acknowledge()
    assert net.queue
    assert not member.core.owes


def test_a_question_for_a_coordinator_is_answered_by_the_nearest(net: Net) -> None:
    asker = Peer(Id(77), "asker", 1, 1)
    member = coordinator_of(net, 9)
    net.queue.clear()
    member.core.receive(asker, encode_control(Where(9, asker)))
    ((_, receiver, payload),) = net.queue
    answer = decode(payload)
    assert receiver == asker
    assert isinstance(answer, Here)
    assert 9 in partitions_in(answer.runs)


def test_every_item_has_a_handler(net: Net) -> None:
    handled = set(first_of(net).core._item_handlers)
    assert handled == set(Item.__args__)
