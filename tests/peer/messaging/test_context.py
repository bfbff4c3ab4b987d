"""What the roles share."""

from __future__ import annotations

import pytest

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Where
from ringmq.peer.messaging.context import Counters, MessagingContext
from ringmq.peer.messaging.messages import Held
from ringmq.peer.messaging.publication import decode, taken_apart
from ringmq.peer.replication.record import SharedRecord


def test_messages_of_a_peer_to_itself_are_not_sent(state: MessagingContext) -> None:
    state.send(state.me, Held(1, 1, ()))
    assert list(state.local) == [(state.me, Held(1, 1, ()))]


def test_stamps_of_retained_messages_never_go_back(state: MessagingContext) -> None:
    def stamp(wall_us: int) -> int:
        state.clock_us = lambda: wall_us
        return state.stamp()

    assert [stamp(at) for at in (5, 5, 3, 100)] == [5, 6, 7, 100]
    state.observe(1000)
    assert stamp(200) == 1001
    state.observe(500)
    assert state.hybrid_clock == 1001


def test_calls_are_made_at_their_time_and_periodically(state: MessagingContext) -> None:
    done: list[str] = []
    state.after(2.0, lambda: done.append("later"))
    state.after(1.0, lambda: done.append("sooner"))
    assert state.timers.next_at == 1.0
    state.timers.run(5.0)
    assert done == ["sooner", "later"]


def test_counters_by_name() -> None:
    assert Counters(dropped=3).as_dict()["dropped"] == 3


class Slow:
    """A disk that is told of changes and not yet committed."""

    pending = True

    def keep(self, topic: str, record: SharedRecord) -> None: ...
    def leave(self, topic: str) -> None: ...
    def forget(self, age_s: float) -> None: ...


def test_promises_are_kept_after_the_commit(state: MessagingContext) -> None:
    kept: list[str] = []
    state.when_safe(lambda: kept.append("a"))
    assert kept == ["a"], "nothing is written, so nothing is waited for"
    assert not state.promised
    disk = state.disk = Slow()
    state.when_safe(lambda: kept.append("b"))
    state.when_safe(lambda: kept.append("c"))
    disk.pending = False
    assert state.promised
    assert kept == ["a"]
    state.keep_promises()
    assert not state.promised
    assert kept == ["a", "b", "c"]


def test_messages_of_one_iteration_share_a_payload(state: MessagingContext) -> None:
    one, two = Peer(Id(9), "h", 1, 1), Peer(Id(10), "h", 1, 1)
    sent: list[tuple[Peer, bytes]] = []
    state.overlay.send = lambda peer, payload: sent.append((peer, payload)) or True  # type: ignore[method-assign]
    for peer, number in ((one, 1), (two, 2), (one, 3)):
        state.send(peer, Held(1, number, ()))
    assert state.posts
    assert sent == []
    state.flush()
    assert not state.posts
    told = [(peer, [decode(part) for part in taken_apart(payload)]) for peer, payload in sent]
    assert told == [(one, [Held(1, 1, ()), Held(1, 3, ())]), (two, [Held(1, 2, ())])]


def test_question_goes_directly_to_a_known_owner(state: MessagingContext) -> None:
    asked: list[Peer | None] = [Peer(Id(9), "h", 1, 1), state.me, None]
    routed: list[Id] = []
    sent: list[Peer] = []
    overlay = state.overlay
    overlay.owner = lambda key: asked[key]  # type: ignore[method-assign]
    overlay.send = lambda peer, payload: sent.append(peer) or True  # type: ignore[method-assign]
    overlay.route = lambda key, payload: routed.append(key) or True  # type: ignore[method-assign]
    for key in range(3):
        state.route(Id(key), Where(7, state.me))
    state.flush()
    assert sent == [asked[0]]
    assert [message for _, message in state.local] == [Where(7, state.me)]
    assert routed == [2]


def test_wait_for_an_answer_follows_the_time_of_answers(state: MessagingContext) -> None:
    usual_s = state.config.ask_s
    assert state.ask_s == usual_s
    for _ in range(100):
        state.answered(usual_s)
    assert state.ask_s == pytest.approx(3 * usual_s, rel=0.01)
    for _ in range(100):
        state.answered(60.0)
    assert state.ask_s == 5 * usual_s, "a coordinator may have died meanwhile"
    for _ in range(100):
        state.answered(usual_s / 10)
    assert state.ask_s == usual_s
