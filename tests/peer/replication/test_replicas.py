"""All places of a peer: keys are watched once, and as long as they are needed."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import key_of
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Kind, Record
from ringmq.peer.messaging.body import PLAIN_HEAD, encode_body
from ringmq.peer.messaging.config import LAN
from ringmq.peer.messaging.context import State
from ringmq.peer.replication.replica import NOTHING, Holding
from ringmq.peer.replication.replicas import REVIEW_S, REVIEWED_AT_ONCE, SPARE, Holdings
from tests.peer.conftest import Net


def test_places_of_one_key_share_its_watch(state: State) -> None:
    holdings, key = Holdings(state), key_of("a")
    topic, below = holdings.open("a"), holdings.open("a/#")
    assert holdings.open("a") is topic
    assert (len(holdings), set(holdings)) == (2, {topic, below})
    assert state.overlay.watched == {key: state.config.shadows + 1 + SPARE}  # type: ignore[attr-defined]
    holdings.close(topic)
    assert state.overlay.watched  # type: ignore[attr-defined]
    holdings.close(below)
    assert not state.overlay.watched  # type: ignore[attr-defined]
    assert holdings.get("a") is None


def test_who_is_to_do_what(state: State) -> None:
    holdings = Holdings(state)
    reviewed: list[Holding] = []
    holdings.review = reviewed.append
    holding = holdings.open("a")
    others = tuple(Peer(type(state.me.id)(point), "h", 1, 0) for point in (1, 2, 3))
    assert holdings.first(holding)
    assert holdings.shadows(holding) == ()
    holdings.owners_changed(holding.key, (others[0], state.me, *others[1:]))
    assert reviewed == [holding]
    assert not holdings.first(holding)
    assert holdings.belongs(holding)
    assert holdings.shadows(holding) == (state.me, others[1])
    holdings.owners_changed(holding.key, (*others, state.me))
    assert not holdings.belongs(holding)


def test_one_look_ahead_at_a_time(state: State) -> None:
    holdings = Holdings(state)
    looks: list[Holding] = []
    holdings.look = looks.append
    holding = holdings.open("a")
    holdings.look_soon(holding, 0.1)
    state.agenda.run(10.0)
    assert looks == [holding]
    holdings.look_soon(holding, 0.1)
    holdings.close(holding)
    state.clock.now = 20.0
    state.agenda.run(20.0)
    assert looks == [holding], "what is not held any more is not looked at"


def test_the_sooner_look_counts(state: State) -> None:
    holdings = Holdings(state)
    looks: list[float] = []
    holdings.look = lambda holding: looks.append(state.clock.now)
    holding = holdings.open("a")
    state.agenda.run(state.config.look_s)
    looks.clear()
    for delay_s in (30.0, 1.0, 5.0):
        holdings.look_soon(holding, delay_s)
    for now in (0.5, 1.0, 5.0, 30.0):
        state.clock.now = now
        state.agenda.run(now)
    assert looks == [1.0]


def kept(topic: str, kind: Kind = Kind.RETAINED) -> Record:
    return Record(kind, topic, None, (9, 0), False, body=PLAIN_HEAD)


def test_what_was_kept_comes_back_in_its_turn(state: State) -> None:
    state.config = replace(LAN, restored_at_once=2)
    holdings = Holdings(state)
    reviewed: list[str] = []
    holdings.review = lambda holding: reviewed.append(holding.place)
    holdings.restore({name: [kept(name)] for name in "abcde"})
    assert (len(holdings), holdings.resting, state.hybrid_clock) == (0, 5, 9)
    assert holdings.rests("a")
    assert holdings.wake()
    assert (sorted(reviewed), len(holdings), holdings.resting) == (["d", "e"], 2, 3)
    found = holdings.get("a")
    assert found is not None, "who asks for it does not wait"
    assert list(found.book) == [kept("a")]
    assert list(holdings.open("b").book) == [kept("b")]
    assert not holdings.wake()
    assert sorted(reviewed) == ["c", "d", "e"]
    assert holdings.get("f") is None
    assert not holdings.wake()


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


def test_the_disk_keeps_what_is_held_and_no_more(state: State) -> None:
    disk = state.disk = Listening()
    holdings = Holdings(state)
    holdings.rest(kept("a"))
    assert disk.kept == [kept("a")]
    holdings.restore({"a": [kept("a")], "b/#": [kept("b/c", Kind.NOTE)]})
    for place in ("a", "b/#", "c"):
        holdings.close(holdings.open(place))
    assert disk.left == ["a", "b/#"]


def test_many_are_reviewed_one_after_the_other(state: State) -> None:
    holdings = Holdings(state)
    reviewed: list[Holding] = []
    holdings.review = reviewed.append
    many = [holdings.open(str(number)) for number in range(3 * REVIEWED_AT_ONCE)]
    for holding in many:
        holdings.owners_changed(holding.key, (state.me,))
    assert len(reviewed) == REVIEWED_AT_ONCE
    waiting = [holding for holding in many if holding not in reviewed]
    assert holdings.get(waiting[0].place) is waiting[0]
    assert reviewed[-1] is waiting[0], "what somebody asks for is reviewed before"
    holdings.close(waiting[1])
    for _ in range(3):
        state.clock.now += REVIEW_S
        state.agenda.run(state.clock.now)
    assert len(reviewed) == len(many) - 1
    assert set(reviewed) == set(many) - {waiting[1]}
    holdings.review_all()
    state.clock.now += 10 * REVIEW_S
    for _ in range(3):
        state.agenda.run(state.clock.now)
        state.clock.now += REVIEW_S
    assert len(reviewed) == 2 * (len(many) - 1)


def test_time_goes_on_for_what_rests(state: State) -> None:
    holdings = Holdings(state)
    state.clock.now = 10.0
    body = encode_body(Message("a", b"x", expires_at=100), 0.0)
    holdings.restore({"a": [Record(Kind.RETAINED, "a", None, (9, 0), False, body=body)]})
    state.clock.now = 50.0
    assert holdings.open("a").ends_at == 110.0


def test_looks_do_not_pile_up(state: State) -> None:
    holdings = Holdings(state)
    looked: list[float] = []
    holdings.look = lambda holding: looked.append(state.clock.now)
    holding = holdings.open("a")
    for _ in range(100):
        holdings.look_soon(holding, 30.0)
        holdings.look_soon(holding, 1.0)
        state.clock.now += 1.0
        state.agenda.run(state.clock.now)
    assert len(looked) == 100
    assert len(state.agenda) <= 2
    holdings.look_soon(holding, 30.0)
    state.clock.now += 29.0
    state.agenda.run(state.clock.now)
    assert len(looked) == 100, "the look that was planned before does not come for that too early"
    state.clock.now += 1.0
    state.agenda.run(state.clock.now)
    assert len(looked) == 101


def test_what_is_at_rest_is_not_looked_at(net: Net) -> None:
    """A topic costs no timers, nor time, while nothing happens to it."""
    net.others("a/b")[0].publish("a/b", retain=True)
    net.run(2 * net.config.idle_s + net.config.tomb_s + 10.0)
    looked: list[str] = []
    for holder in net.holders("a/b"):
        holding = holder.core.holdings.get("a/b")
        assert holding is not None
        assert (holding.look_at, holding.looks, len(holding.book)) == (inf, (), 1)
        assert holding.publishers is holding.gone_at is holding.waiters is NOTHING
        look = holder.core.holdings.look
        holder.core.holdings.look = lambda holding, look=look: (looked.append(holding.place), look(holding))  # type: ignore[misc]
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
    assert [len(member.core.holdings.get("a/b").book) for member in net.holders("a/b")] == [1] * 3  # type: ignore[union-attr]
    reader.core.unsubscribe("a/b")
    net.run(net.config.tomb_s + net.config.note_s)
    assert not any(len(member.core.holdings) for member in net.members.values())
