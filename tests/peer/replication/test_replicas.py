"""All places of a peer: keys are watched once, and as long as they are needed."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import key_of
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Kind, Record
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.config import LAN
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.fast_path import FAST_HEAD
from ringmq.peer.replication.replica import NOTHING, Replica
from ringmq.peer.replication.replicas import REVIEW_S, REVIEWED_AT_ONCE, SPARE, ReplicaTable
from tests.peer.conftest import Net
from tests.peer.replication.resting import resting


def _ignore(replica: Replica) -> None: ...


def test_places_of_one_key_share_its_watch(state: MessagingContext) -> None:
    replicas, key = ReplicaTable(state, _ignore, _ignore), key_of("a")
    topic, below = replicas.open("a"), replicas.open("a/#")
    assert replicas.open("a") is topic
    assert (len(replicas), set(replicas)) == (2, {topic, below})
    assert state.overlay.watched == {key: state.config.shadows + 1 + SPARE}  # type: ignore[attr-defined]
    replicas.close(topic)
    assert state.overlay.watched  # type: ignore[attr-defined]
    replicas.close(below)
    assert not state.overlay.watched  # type: ignore[attr-defined]
    assert replicas.get("a") is None


def test_who_is_to_do_what(state: MessagingContext) -> None:
    reviewed: list[Replica] = []
    replicas = ReplicaTable(state, reviewed.append, _ignore)
    replica = replicas.open("a")
    others = tuple(Peer(type(state.me.id)(point), "h", 1, 0) for point in (1, 2, 3))
    assert replicas.first(replica)
    assert replicas.shadows(replica) == ()
    replicas.owners_changed(replica.key, (others[0], state.me, *others[1:]))
    assert reviewed == [replica]
    assert not replicas.first(replica)
    assert replicas.belongs(replica)
    assert replicas.shadows(replica) == (state.me, others[1])
    replicas.owners_changed(replica.key, (*others, state.me))
    assert not replicas.belongs(replica)


def test_one_look_ahead_at_a_time(state: MessagingContext) -> None:
    looks: list[Replica] = []
    replicas = ReplicaTable(state, _ignore, looks.append)
    replica = replicas.open("a")
    replicas.look_soon(replica, 0.1)
    state.timers.run(10.0)
    assert looks == [replica]
    replicas.look_soon(replica, 0.1)
    replicas.close(replica)
    state.clock.now = 20.0
    state.timers.run(20.0)
    assert looks == [replica], "what is not held any more is not looked at"


def test_the_sooner_look_counts(state: MessagingContext) -> None:
    looks: list[float] = []
    replicas = ReplicaTable(state, _ignore, lambda replica: looks.append(state.clock.now))
    replica = replicas.open("a")
    state.timers.run(state.config.look_s)
    looks.clear()
    for delay_s in (30.0, 1.0, 5.0):
        replicas.look_soon(replica, delay_s)
    for now in (0.5, 1.0, 5.0, 30.0):
        state.clock.now = now
        state.timers.run(now)
    assert looks == [1.0]


def kept(topic: str, kind: Kind = Kind.RETAINED) -> Record:
    return Record(kind, topic, None, (9, 0), False, body=FAST_HEAD)


def test_what_was_kept_comes_back_in_its_turn(state: MessagingContext) -> None:
    state.config = replace(LAN, restored_at_once=2)
    reviewed: list[str] = []
    replicas = ReplicaTable(state, lambda replica: reviewed.append(replica.place), _ignore)
    replicas.restore({name: [kept(name)] for name in "abcde"})
    assert (len(replicas), resting(replicas), state.hybrid_clock) == (0, 5, 9)
    assert replicas.rests("a")
    assert replicas.wake()
    assert (sorted(reviewed), len(replicas), resting(replicas)) == (["d", "e"], 2, 3)
    found = replicas.get("a")
    assert found is not None, "who asks for it does not wait"
    assert list(found.book) == [kept("a")]
    assert list(replicas.open("b").book) == [kept("b")]
    assert not replicas.wake()
    assert sorted(reviewed) == ["c", "d", "e"]
    assert replicas.get("f") is None
    assert not replicas.wake()


class Listening:
    """A disk that notes which places were left."""

    pending = False

    def __init__(self) -> None:
        self.kept: list[Record] = []
        self.left: list[str] = []

    def keep(self, place: str, record: Record) -> None:
        self.kept.append(record)

    def leave(self, place: str) -> None:
        self.left.append(place)

    def forget(self, age_s: float) -> None: ...


def test_the_disk_keeps_what_is_held_and_no_more(state: MessagingContext) -> None:
    disk = state.disk = Listening()
    replicas = ReplicaTable(state, _ignore, _ignore)
    replicas.rest(kept("a"))
    assert disk.kept == [kept("a")]
    replicas.restore({"a": [kept("a")], "b/#": [kept("b/c", Kind.NOTE)]})
    for place in ("a", "b/#", "c"):
        replicas.close(replicas.open(place))
    assert disk.left == ["a", "b/#"]


def test_many_are_reviewed_one_after_the_other(state: MessagingContext) -> None:
    reviewed: list[Replica] = []
    replicas = ReplicaTable(state, reviewed.append, _ignore)
    many = [replicas.open(str(number)) for number in range(3 * REVIEWED_AT_ONCE)]
    for replica in many:
        replicas.owners_changed(replica.key, (state.me,))
    assert len(reviewed) == REVIEWED_AT_ONCE
    waiting = [replica for replica in many if replica not in reviewed]
    assert replicas.get(waiting[0].place) is waiting[0]
    assert reviewed[-1] is waiting[0], "what somebody asks for is reviewed before"
    replicas.close(waiting[1])
    for _ in range(3):
        state.clock.now += REVIEW_S
        state.timers.run(state.clock.now)
    assert len(reviewed) == len(many) - 1
    assert set(reviewed) == set(many) - {waiting[1]}
    replicas.review_all()
    state.clock.now += 10 * REVIEW_S
    for _ in range(3):
        state.timers.run(state.clock.now)
        state.clock.now += REVIEW_S
    assert len(reviewed) == 2 * (len(many) - 1)


def test_time_goes_on_for_what_rests(state: MessagingContext) -> None:
    replicas = ReplicaTable(state, _ignore, _ignore)
    state.clock.now = 10.0
    body = encode_body(Message("a", b"x", expires_at=100), 0.0)
    replicas.restore({"a": [Record(Kind.RETAINED, "a", None, (9, 0), False, body=body)]})
    state.clock.now = 50.0
    assert replicas.open("a").ends_at == 110.0


def test_looks_do_not_pile_up(state: MessagingContext) -> None:
    looked: list[float] = []
    replicas = ReplicaTable(state, _ignore, lambda replica: looked.append(state.clock.now))
    replica = replicas.open("a")
    for _ in range(100):
        replicas.look_soon(replica, 30.0)
        replicas.look_soon(replica, 1.0)
        state.clock.now += 1.0
        state.timers.run(state.clock.now)
    assert len(looked) == 100
    assert len(state.timers) <= 2
    replicas.look_soon(replica, 30.0)
    state.clock.now += 29.0
    state.timers.run(state.clock.now)
    assert len(looked) == 100, "the look that was planned before does not come for that too early"
    state.clock.now += 1.0
    state.timers.run(state.clock.now)
    assert len(looked) == 101


def test_what_is_at_rest_is_not_looked_at(net: Net) -> None:
    """A topic costs no timers, nor time, while nothing happens to it."""
    net.others("a/b")[0].publish("a/b", retain=True)
    net.run(2 * net.config.idle_s + net.config.tomb_s + 10.0)
    looked: list[str] = []
    for holder in net.holders("a/b"):
        replica = holder.core.replicas.get("a/b")
        assert replica is not None
        assert (replica.look_at, replica.looks, len(replica.book)) == (inf, (), 1)
        assert replica.publishers is replica.gone_at is replica.waiters is NOTHING
        look = holder.core.replicas._look_at
        holder.core.replicas._look_at = lambda replica, look=look: (looked.append(replica.place), look(replica))  # type: ignore[misc]
    net.run(100.0)
    assert "a/b" not in looked
    net.crash(net.holders("a/b")[0])
    net.run(5.0)
    reader = net.others("a/b", "a/#")[0]
    reader.subscribe("a/b")
    net.run(1.0)
    assert reader.kept == {"a/b": b"x"}
    net.holders("a/b")[0].publish("a/b", b"", retain=True)
    net.run(2 * net.config.idle_s + 2 * net.config.tomb_s + 10.0)
    assert [len(member.core.replicas.get("a/b").book) for member in net.holders("a/b")] == [1] * 3  # type: ignore[union-attr]
    reader.core.unsubscribe("a/b")
    net.run(net.config.tomb_s + net.config.note_s)
    assert not any(len(member.core.replicas) for member in net.members.values())
