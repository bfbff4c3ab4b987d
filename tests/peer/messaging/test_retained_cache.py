"""What is retained, seen from who subscribes: everybody gets a message once, as retained or as live."""

from __future__ import annotations

from ringmq.overlay.core.ids import Id
from ringmq.peer.engines.coordinated.messages import Kind, Record
from ringmq.peer.messaging.context import State
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.retained_cache import Keeping, stamp_of

ORIGIN = Id(9)


def live(stamp: int, body: bytes = b"live") -> Publication:
    return Publication(1, stamp, 1, "a/b", body, True, stamp, clears=not body)


def record(stamp: int, body: bytes = b"kept", topic: str = "a/b") -> Record:
    return Record(Kind.RETAINED, topic, None, stamp_of(stamp, ORIGIN), not body, body=body)


def kept(state: State) -> dict[str, bytes]:
    found: dict[str, bytes] = state.clients.kept  # type: ignore[attr-defined]
    return found


def test_the_last_one_is_kept_in_whatever_order_they_come(state: State) -> None:
    keeping = Keeping(state)
    keeping.live(ORIGIN, live(5))
    keeping.fetched(record(4))
    assert kept(state) == {"a/b": b"live"}
    keeping.fetched(record(6))
    assert kept(state) == {"a/b": b"kept"}
    keeping.live(ORIGIN, live(7, b""))
    assert kept(state) == {"a/b": b""}
    assert len(keeping) == 1


def test_a_copy_of_what_was_fetched_is_held_back(state: State) -> None:
    keeping = Keeping(state)
    assert not keeping.repeats(ORIGIN, live(5))
    keeping.fetched(record(5))
    assert keeping.repeats(ORIGIN, live(5))
    assert keeping.repeats(ORIGIN, live(4))
    assert not keeping.repeats(ORIGIN, live(6))
    assert not keeping.repeats(Id(8), live(4)), "of other publishers only time will tell"


def test_a_copy_of_what_came_live_is_no_news(state: State) -> None:
    keeping = Keeping(state)
    keeping.live(ORIGIN, live(5))
    keeping.fetched(record(5))
    assert not keeping.repeats(ORIGIN, live(5))
    assert kept(state) == {"a/b": b"live"}


def test_what_nobody_wants_is_forgotten(state: State) -> None:
    keeping = Keeping(state)
    keeping.fetched(record(5))
    keeping.fetched(record(5, topic="a/c"))
    keeping.forget("a/+", lambda topic: topic == "a/c")
    assert kept(state) == {"a/b": b"", "a/c": b"kept"}
    assert len(keeping) == 1


def test_the_clock_follows_what_is_seen(state: State) -> None:
    Keeping(state).fetched(record(500))
    assert state.tick_clock(3) == 501
