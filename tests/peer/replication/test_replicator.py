"""Shadows become copies, whatever gets lost on the way, and tell the coordinator what it does not know."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import SPACE
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Append, AppendAck, Control, Epoch, Kind, Record
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.config import LAN
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.partitions import key_of_place
from ringmq.peer.messaging.publication import Publication, encode_control
from ringmq.peer.replication.replicas import ReplicaTable
from ringmq.peer.replication.replicator import Replication
from ringmq.peer.replication.tombstones import Tombstones
from tests.peer.conftest import Net


def _equal(net: Net, place: str) -> bool:
    replicas = [member.core.replicas.get(place) for member in net.holders(place)]
    present = {replica.present() for replica in replicas if replica is not None}
    return len(present) == 1 and None not in replicas


def test_shadows_are_equal_whatever_is_lost(net: Net) -> None:
    random = Random(7)

    def lost(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return isinstance(message, (Append, AppendAck)) and random.random() < 0.4

    net.lost = lost
    members = list(net.members.values())
    for member in members:
        member.subscribe("a")
    net.run(3.0)
    members[0].core.unsubscribe("a")
    net.run(10.0)
    assert _equal(net, "a")
    replica = net.holders("a")[0].core.replicas.get("a")
    assert replica is not None
    assert sum(not record.gone for record in replica.book) == len(members) - 1


def test_only_what_changed_is_copied(net: Net) -> None:
    members = list(net.members.values())
    for member in members:
        member.subscribe("a")
        net.run(0.1)
    copies = [message for _, _, message in net.seen if isinstance(message, Append)]
    assert copies
    assert max(len(copy.records) for copy in copies) <= 3


def test_what_only_a_shadow_holds_goes_to_the_coordinator(net: Net) -> None:
    coordinator, shadow = net.holders("a")[:2]
    stranger = Peer(type(shadow.me.id)(77), "h", 1, 0)
    replica = shadow.core.replicas.open("a")
    replica.take(Record(Kind.ENTRY, "a", stranger, (0, 1), False), 0.0, net.config)
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    mine = coordinator.core.replicas.get("a")
    assert mine is not None
    assert mine.book.get((Kind.ENTRY, "a", 77)) is not None
    assert _equal(net, "a")


def test_a_reign_that_is_over_brings_nothing_into_force(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    coordinator, shadow = net.holders("a")[:2]
    replica = shadow.core.replicas.get("a")
    assert replica is not None
    replica.epoch = Epoch(9, shadow.me.id)
    late = net.others("a")[1].subscribe("a")
    net.run(2.0)
    assert late == ["a"]
    assert coordinator.core.counters.superseded == 1
    mine = coordinator.core.replicas.get("a")
    assert mine is not None
    assert mine.epoch > Epoch(9, shadow.me.id)


def test_a_shadow_that_missed_something_says_so(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    coordinator, shadow = net.holders("a")[:2]
    replica = coordinator.core.replicas.get("a")
    assert replica is not None
    position = replica.book.position
    net.queue.append(
        (coordinator.me, shadow.me, encode_control(Append("a", replica.epoch, position + 5, position + 6, ())))
    )
    net.run()
    answer = [message for _, _, message in net.seen if isinstance(message, AppendAck)][-1]
    assert answer.missing or answer.position == position
    net.run(1.0)
    assert _equal(net, "a")


def test_a_shadow_that_knows_of_a_clearing_says_so(net: Net) -> None:
    publisher = net.others("a", "a/#", "#")[0]
    publisher.publish("a", b"", retain=True)
    net.run(net.config.idle_s + 2 * net.config.tomb_s)
    coordinator, shadow = net.holders("a")[:2]
    stale = Record(Kind.RETAINED, "a", None, (0, 1), False, body=b"stale")
    known = shadow.core.cleared.of("a")
    for one in (coordinator, shadow):
        one.subscribe("a")
    net.run(1.0)
    replica = coordinator.core.replicas.get("a")
    assert replica is not None
    for one in net.members.values():
        if one is not shadow:
            one.core.cleared.heard(stale)  # these have forgotten it
    replica.book.forget((Kind.RETAINED, "a", 0))
    replica.take(stale, net.now, net.config)
    publisher.subscribe("a")
    net.run(1.0)
    assert replica.book.get(stale.key) == known
    assert _equal(net, "a")


def test_a_copy_is_taken_when_it_is_on_the_disk(lasting: Net) -> None:
    lasting.others("a")[0].publish("a", b"x", retain=True)
    lasting.run(1.0)
    for holder in lasting.holders("a"):
        assert holder.store is not None
        assert [record.body for record in holder.store.load().places["a"]] == [b"x"]
    shadow = lasting.holders("a")[1]
    store, shadow.store = shadow.store, None

    def copied() -> int:
        """How often it has said so since the last call."""
        answers = [message for sender, _, message in lasting.seen if sender == shadow.me]
        lasting.seen.clear()
        return sum(isinstance(message, AppendAck) and message.place == "a" for message in answers)

    copied()
    lasting.others("a")[1].subscribe("a")
    lasting.run(0.1)
    assert copied() > 0, "of what the disk does not keep it is not waited for"
    lasting.others("a")[0].publish("a", b"y", retain=True)
    lasting.run(0.1)
    assert copied() == 0
    shadow.store = store
    lasting.run(0.1)
    assert copied() > 0


def test_what_was_cleared_is_the_news_of_who_brings_it(state: MessagingContext) -> None:
    cleared = Tombstones(state)
    replicas = ReplicaTable(state, lambda replica: None, lambda replica: None)
    replication = Replication(state, replicas, cleared, lambda replica: None, lambda replica, record: None)
    gone = Record(Kind.RETAINED, "a", None, (5, 5), True)
    cleared.heard(gone)
    replica = replicas.open("a")
    stale = Record(Kind.RETAINED, "a", None, (5, 4), False, body=b"stale")
    assert replication.take(replica, stale)
    assert list(replica.book) == [gone], "so that the others are told of it"
    assert not replication.take(replica, stale)
    later = Record(Kind.RETAINED, "a", None, (5, 6), False, body=b"later")
    assert replication.take(replica, later)
    assert cleared.of("a") is None
    assert state.hybrid_clock == 5


def test_a_copy_of_what_is_there_is_not_written_again(lasting: Net) -> None:
    body = encode_body(Message("a", b"x", expires_at=100), 0.0)
    lasting.others("a")[0].publish("a", body, retain=True)
    lasting.run(50.0)
    shadow = lasting.holders("a")[1]
    assert shadow.store is not None
    before = shadow.store.load().places["a"]
    lasting.add(key_of_place("a") + 1)
    lasting.run(10.0)
    replica = shadow.core.replicas.get("a")
    assert replica is not None
    assert replica.ends_at == 100.0
    assert [record.body for record in replica.book if record.kind is Kind.RETAINED] == [body], "it is as it came"
    assert [record.number for record in before] == [record.number for record in shadow.store.load().places["a"]]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_split_that_heals_costs_nobody_a_message_of_his_own_side(order: tuple[int, ...]) -> None:
    """While apart, each side has let the leases of the other lapse; whoever coordinates then must not spread that."""
    net = Net(LAN)
    publisher, subscriber, alone = [net.add((key_of_place("a") + 10 * place) % SPACE) for place in order]
    subscriber.subscribe("a")
    alone.subscribe("a")
    net.run(30.0)
    net.split([publisher, subscriber], [alone])
    wanted = []
    for number in range(160):
        if number == 60:
            net.split()
        wanted.append(("a", b"%d" % number))
        publisher.publish(*wanted[-1])
        net.run(1.0 if number < 60 else 0.1)
    net.run(60.0)
    assert subscriber.got == wanted
    assert len(publisher.reasons) == len(wanted)
    publisher.publish("a", b"last")
    net.run(1.0)
    assert alone.got[-1] == ("a", b"last")


def test_what_was_unsubscribed_on_one_side_is_over_on_both() -> None:
    net = Net(LAN)
    publisher, subscriber, alone = [net.add((key_of_place("a") + 10 * place) % SPACE) for place in range(3)]
    subscriber.subscribe("a")
    net.run(5.0)
    net.split([subscriber, publisher], [alone])
    subscriber.core.unsubscribe("a")
    net.run(1.0)
    net.split()
    net.run(20.0)
    for member in (publisher, subscriber, alone):
        replica = member.core.replicas.get("a")
        assert replica is None or not [
            record for record in replica.book if record.kind is Kind.ENTRY and not record.gone
        ]


def test_whose_lease_holds_is_the_coordinators_to_say(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(1.0)
    coordinator, shadow, _ = net.holders("a")
    here, there = coordinator.core.replicas.get("a"), shadow.core.replicas.get("a")
    assert here is not None
    assert there is not None
    (entry,) = [record for record in here.book if record.kind is Kind.ENTRY]
    lapsed = entry.ended()
    copied = AppendAck("a", here.epoch, here.book.position, False, (lapsed,))
    coordinator.core.receive(shadow.me, encode_control(copied))
    assert here.book.get(entry.key) == entry, "a shadow that has let it lapse does not end it"
    there.take(lapsed, net.now, net.config)
    net.seen.clear()
    following = Epoch(here.epoch.number + 1, coordinator.me.id)
    shadow.core.receive(coordinator.me, encode_control(Append("a", following, 0, 9, tuple(here.book))))
    assert there.book.get(entry.key) == entry, "and follows the one that has not"
    net.run()
    answers = [message for sender, _, message in net.seen if isinstance(message, AppendAck) and sender == shadow.me]
    assert [answer.extra for answer in answers if answer.epoch == following] == [()]
