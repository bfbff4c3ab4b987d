"""Partitions go with the ring: to newcomers, from the dead, and together again after a split."""

from __future__ import annotations

from collections import deque
from itertools import permutations
from random import Random

import pytest

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Append, Deposed, Register, Registry, StateRequest, TakeOver
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.messaging.body import encode_body, remaining_of
from ringmq.peer.messaging.config import LAN
from ringmq.peer.messaging.messages import Control
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.replication import copying, takeover
from ringmq.peer.replication.partition_store import WHOLE
from ringmq.peer.replication.record import Epoch, RecordKind, SharedRecord
from ringmq.peer.replication.space import key_of_partition
from ringmq.peer.streams import streams
from ringmq.peer.streams.stream_messages import Batch, BatchAck
from tests.peer.conftest import Member, Net, parts_of

PARTITION = partition_of("a")
KEY = key_of_partition(PARTITION)


def live(member: Member) -> set[tuple[str, Id | None]]:
    """The names of the partition of `a` that are not gone at a member, with their homes."""
    records = member.core.replicas.records(PARTITION).values()
    return {(record.name, record.home and record.home.id) for record in records if not record.gone}


def is_settled(net: Net) -> bool:
    """Whether the owners alone have records of the partition, all the same, and the nearest of them coordinates it."""
    owners = net.owning("a")
    having = {member.me.id for member in net.members.values() if live(member)}
    acting = [member.me.id for member in net.members.values() if member.core.acts(PARTITION)]
    equal = len({frozenset(live(member)) for member in owners}) == 1
    return having <= {member.me.id for member in owners} and acting == [owners[0].me.id] and equal


def has(message: Publication | Control, kind: type) -> bool:
    return any(isinstance(part, kind) for part in parts_of(message))


def test_a_newcomer_takes_over_with_all_acknowledged_entries(net: Net) -> None:
    home = net.others("a")[0]
    done = home.subscribe("a")
    net.run(0.5)
    assert done == ["a"]
    before = net.owning("a")
    newcomer = net.add(KEY + 1)
    net.run(3.0)
    assert net.owning("a")[0] is newcomer
    assert is_settled(net)
    assert live(newcomer) == {("a", home.me.id)}
    assert not before[-1].core.replicas.records(PARTITION), "a peer that owns it no more forgets it"
    assert before[-1].core.counters.handed_over >= 1


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_shadow_takes_over(net: Net, deaths: int) -> None:
    home, publisher, late = net.others("a", "#")[:3]
    home.subscribe("a")
    publisher.publish("a")
    net.run(0.5)
    net.crash(*net.owning("a")[:deaths])
    done = late.subscribe("a")
    net.run(0.5)
    assert done == ["a"]
    publisher.publish("a", b"after")
    net.run(0.5)
    assert ("a", b"after") in home.got
    assert ("a", b"after") in late.got


@pytest.mark.parametrize("pieces", [0, 1])
def test_a_successor_without_a_whole_copy_says_so(net: Net, monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    """The coordinator and a shadow die, then the other shadow, which has sent no copy yet or a part of one. What
    publishers hold is the only evidence until the home has registered again, which takes a while here."""
    monkeypatch.setattr(copying, "PIECE_BYTES", 1)
    monkeypatch.setattr(streams, "BATCH_ITEMS", 1)
    far = (KEY + SPACE // 2) % SPACE
    for step in range(4):
        net.add((far + step) % SPACE)
    owners = net.owners(KEY, len(net.members))
    publisher, late, home = [net.members[peer.id] for peer in owners[-3:]]
    home.subscribe(*[f"a/{number}" for number in range(10_000) if partition_of(f"a/{number}") == PARTITION], "a")
    net.run(0.5)
    publisher.publish("a", b"before")
    net.run(0.5)
    first, second, third, fourth = [net.members[peer.id] for peer in owners[:4]]
    lost = False

    def is_late(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        nonlocal lost
        if sender == third.me and has(message, Append):
            enough = len(live(fourth)) >= pieces
            lost |= enough and receiver == fourth.me
            return enough or receiver != fourth.me
        return sender == home.me and (has(message, Register) or has(message, Registry))

    net.lost = is_late
    net.crash(first, second)
    while not lost:
        net.run(0.001)
    net.queue = deque([sent for sent in net.queue if sent[0] != third.me])
    net.crash(third)
    net.run(1.0)
    assert fourth.core.acts(PARTITION)
    assert len(live(fourth)) == pieces
    publisher.publish("a", b"after")
    net.run(0.5)
    assert ("a", b"after") in home.got
    net.lost = lambda sender, receiver, message: False
    net.run(LAN.entry_s)
    late.publish("a", b"late")
    net.run(0.5)
    assert ("a", b"late") in home.got
    assert is_settled(net)
    assert {member.core.replicas.whole[PARTITION] for member in net.owning("a")} == {WHOLE}, "nobody doubts any more"


def test_many_records_are_taken_over_in_turns(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """A takeover of a hundred thousand must not hold up everybody else, or make this peer look silent."""
    monkeypatch.setattr(takeover, "RECORDS_A_TURN", 20)
    begun: list[int] = []
    begin = takeover.Takeover._begin

    def noting(self: takeover.Takeover, gathering: takeover.Gathering, partitions: list[int]) -> None:
        records = [len(self._store.records(partition)) for partition in partitions]
        begun.append(sum(records))
        assert sum(records) <= 20 or len([count for count in records if count]) == 1
        begin(self, gathering, partitions)

    home = net.others("a")[0]
    names = [f"t/{number}" for number in range(300)]
    done = home.subscribe(*names)
    net.run(1.0)
    assert sorted(done) == sorted(names)
    monkeypatch.setattr(takeover.Takeover, "_begin", noting)
    coordinator = max(net.members.values(), key=lambda member: member is not home and member.core.partitions()[0])
    net.crash(coordinator)
    net.run(3.0)
    assert len(begun) > 3
    for partition in {partition_of(name) for name in names}:
        assert sum(member.core.acts(partition) for member in net.members.values()) == 1


def test_the_newest_of_several_newcomers_coordinates(net: Net) -> None:
    home = net.others("a")[0]
    home.subscribe("a")
    net.run(0.5)
    for step in (9, 7, 5, 3):
        net.add((KEY + step) % SPACE)
    net.run(5.0)
    assert is_settled(net)
    assert live(net.owning("a")[0]) == {("a", home.me.id)}


def test_no_epoch_begins_before_all_shadows_have_answered(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    silent = net.owning("a")[1].me
    net.lost = lambda sender, receiver, message: receiver == silent and has(message, StateRequest)
    newcomer = net.add(KEY + 1)
    net.run(3.0)
    assert not newcomer.core.acts(PARTITION)
    net.crash(net.members[silent.id])
    net.run(3.0)
    assert newcomer.core.acts(PARTITION)
    assert is_settled(net)


def test_an_answer_that_was_lost_with_its_stream_is_repeated(net: Net) -> None:
    """The peer that asked cannot know that the stream of the other one has ended."""
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    silent = net.owning("a")[1].me
    newcomer_id = Id(KEY + 1)
    net.lost = lambda sender, receiver, message: (
        sender == silent and receiver.id == newcomer_id and isinstance(message, Batch)
    )
    newcomer = net.add(newcomer_id)
    net.run(net.config.give_up_s + 3.0)
    assert net.members[silent.id].core.streams.counters.given_up == 1
    assert not newcomer.core.acts(PARTITION)
    net.lost = lambda sender, receiver, message: False
    net.run(5.0)
    assert newcomer.core.acts(PARTITION)
    assert is_settled(net)


def test_an_inactive_owner_is_reminded_more_and_more_seldom(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    newcomer = net.add(KEY + 1)
    newcomer.active = False
    newcomer.core.activity_changed(False)
    net.seen.clear()
    net.run(60.0)
    reminders = sum(has(message, TakeOver) for _, receiver, message in net.seen if receiver == newcomer.me)
    assert 1 <= reminders <= 8 * (net.config.shadows + 1)


def test_a_message_leaves_the_disk_once_other_disks_have_it(lasting: Net) -> None:
    lasting.others("a")[0].publish("a", b"kept", retain=True)
    lasting.run(1.0)
    pushed_out = lasting.owning("a")[-1]
    newcomer = lasting.add(KEY + 1)
    store, newcomer.store = newcomer.store, None
    lasting.run(3.0)
    assert pushed_out.store is not None
    assert [record.name for record in pushed_out.store.load().records] == ["a"], "the newcomer's disk has not got it"
    newcomer.store = store
    lasting.run(10.0)
    assert pushed_out.store.load().records == []
    assert not pushed_out.core.replicas.records(PARTITION)
    assert store is not None
    assert [record.name for record in store.load().records] == ["a"]


def test_a_peer_that_comes_back_hands_over_partitions_that_others_own_now(lasting: Net) -> None:
    lasting.others("a")[0].publish("a", b"kept", retain=True)
    lasting.run(1.0)
    owners = lasting.owning("a")
    lasting.crash(*owners)
    for step in (1, 2, 3):
        lasting.add((KEY + step) % SPACE)
    lasting.run(1.0)
    (back,) = lasting.restart(owners[1])
    lasting.run(10.0)
    assert not back.core.replicas.records(PARTITION)
    assert back.store is not None
    assert back.store.load().records == []
    reader = lasting.others("a")[-1]
    reader.subscribe("a", "+")
    lasting.run(1.0)
    assert reader.kept == {"a": b"kept"}


def test_a_new_coordinator_learns_of_a_clearing_from_an_owner_that_knows(net: Net) -> None:
    """A stale message that somebody brings must not come back."""
    publisher, reader = net.others("a", "#")[:2]
    publisher.publish("a", b"", retain=True)
    net.run(3 * net.config.tomb_s)
    assert not net.owning("a")[0].core.replicas.records(PARTITION)
    net.add(KEY)
    stale = SharedRecord(RecordKind.RETAINED, "a", None, (0, 1), False, body=b"stale")
    reader.core.replicas.take(PARTITION, stale, net.now)
    reader.core.coordinator.takeover.wake()
    net.run(40.0)
    assert not any(live(member) for member in net.members.values())
    reader.subscribe("a")
    net.run(1.0)
    assert not reader.kept.get("a")
    assert net.owning("a")[0].core.cleared.number_of("a") is not None


def test_owners_that_come_later_know_when_a_message_expires(net: Net) -> None:
    publisher, reader = net.others("a")[:2]
    publisher.publish("a", encode_body(Message("a", b"x", expires_at=100), 0.0), retain=True)
    net.run(50.0)
    for peer_id in [member.me.id for member in net.owning("a")[:2]]:
        for step in (-1, 1):
            net.add((peer_id + step) % SPACE)
    net.run(5.0)
    reader.subscribe("a")
    net.run(1.0)
    assert remaining_of(reader.kept["a"]) in (43, 44, 45)
    net.run(50.0)
    assert all(live(member) == {("a", reader.me.id)} for member in net.owning("a"))


def test_entries_of_a_dead_coordinator_lapse_at_its_successor(net: Net) -> None:
    coordinator, _, third = net.owning("a")
    coordinator.subscribe("a")
    net.run(60.0)
    third.publish("a")
    net.run(1.0)
    net.crash(coordinator)
    third.publish("a")
    net.run(net.config.entry_s + 5.0)
    assert len(third.reasons) == 2, "the second is acknowledged too"


def test_shadows_are_equal_whatever_was_lost(net: Net) -> None:
    random = Random(7)
    net.lost = lambda sender, receiver, message: isinstance(message, Batch | BatchAck) and random.random() < 0.4
    members = list(net.members.values())
    for member in members:
        member.subscribe("a")
    net.run(10.0)
    members[0].core.unsubscribe("a")
    net.run(10.0)
    net.lost = lambda sender, receiver, message: False
    net.run(net.config.entry_s)
    assert is_settled(net)
    assert len(live(net.owning("a")[0])) == len(members) - 1


def test_a_record_that_only_a_shadow_has_goes_to_the_coordinator(net: Net) -> None:
    coordinator, shadow = net.owning("a")[:2]
    stranger = Peer(Id(77), "h", 1, 0)
    shadow.core.replicas.take(PARTITION, SharedRecord(RecordKind.ENTRY, "a", stranger, (0, 1), False), net.now)
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    assert ("a", stranger.id) in live(coordinator)
    assert is_settled(net)


def test_a_deposed_coordinator_grants_nothing_before_it_begins_again(net: Net) -> None:
    home, late = net.others("a")[:2]
    home.subscribe("a")
    net.run(0.5)
    coordinator, shadow = net.owning("a")[:2]
    shadow.core.replicas.epochs[PARTITION] = Epoch(9, shadow.me.id)
    done = late.subscribe("a")
    net.run(5.0)
    assert done == ["a"]
    assert coordinator.core.counters.superseded >= 1
    assert coordinator.core.replicas.epoch(PARTITION) > Epoch(9, shadow.me.id)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_split_that_heals_costs_no_message_of_the_own_side(order: tuple[int, ...]) -> None:
    """While apart, each side lets the entries of the other lapse; the next coordinator must not spread that."""
    net = Net(LAN)
    publisher, subscriber, alone = [net.add((KEY + 10 * place) % SPACE) for place in order]
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
    assert publisher.reasons == [Reason.SUCCESS] * len(wanted)
    publisher.publish("a", b"last")
    net.run(1.0)
    assert alone.got[-1] == ("a", b"last")


def test_a_coordinator_begins_above_a_higher_epoch_at_once_if_nobody_acts_in_it(net: Net) -> None:
    publisher = net.others("a")[0]
    publisher.publish("a")
    net.run(1.0)
    first, second = net.owning("a")[:2]
    # In another part of the ring, the second has acted with a higher epoch, which the publisher knows.
    higher = Epoch(first.core.replicas.epoch(PARTITION).number + 3, second.me.id)
    first.core.coordinator.copying.deposed(publisher.me, Deposed(((PARTITION, PARTITION, higher),)))
    net.run(LAN.look_s / 4)
    assert first.core.acts(PARTITION)
    assert first.core.replicas.epoch(PARTITION) > higher


def test_a_successor_that_meets_no_copy_says_so_if_the_other_owners_are_dead_or_silent(net: Net) -> None:
    member = net.owning("a")[0]
    coordinator = member.core.coordinator
    neighbourhood, shadows = coordinator._neighbourhood, LAN.shadows
    coordinator.takeover._departures.follow(coordinator.takeover._departures._counted + shadows)
    for silent, lacking in ((frozenset[Id](), False), (frozenset({net.owning("a")[1].me.id}), True)):
        neighbourhood.silent = silent
        coordinator.takeover._doubt_copies([PARTITION], {PARTITION})
        assert coordinator.holders.is_incomplete(PARTITION) is lacking


def test_peers_that_each_believe_that_the_next_acts_do_not_wait_for_each_other(net: Net) -> None:
    # Nobody has records of the partition, of which its copies would remind the nearest peer.
    publisher = net.others("a")[0]
    publisher.publish("a")
    net.run(1.0)
    first, second, third = net.owning("a")
    # After a split: the nearest peer was deposed by the second, and the second by the third, which never began.
    for member, actor in ((second, third), (first, second)):
        store = member.core.replicas
        store.epochs[PARTITION] = Epoch(store.epoch(PARTITION).number + 1, actor.me.id)
        member.core.coordinator.takeover._yield((PARTITION,), actor.me)
    first.core.coordinator.takeover.deposed([PARTITION])
    assert not any(member.core.acts(PARTITION) for member in net.members.values())
    net.run(3 * LAN.look_s)
    assert is_settled(net)
    publisher.publish("a", qos=1)
    net.run(1.0)
    assert publisher.reasons == [Reason.NO_MATCHING_SUBSCRIBERS] * 2


def test_an_end_on_one_side_of_a_split_is_an_end_on_both() -> None:
    net = Net(LAN)
    publisher, subscriber, alone = [net.add((KEY + 10 * place) % SPACE) for place in range(3)]
    subscriber.subscribe("a")
    net.run(5.0)
    net.split([subscriber, publisher], [alone])
    subscriber.core.unsubscribe("a")
    net.run(1.0)
    net.split()
    net.run(20.0)
    assert not any(live(member) for member in (publisher, subscriber, alone))
