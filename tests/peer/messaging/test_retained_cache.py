"""What is retained, seen from who subscribes: everybody gets a message once, as retained or as live."""

from __future__ import annotations

from ringmq.overlay.core.ids import Id
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.retained_cache import RetainedCache, stamp_of
from ringmq.peer.replication.record import RecordKind, SharedRecord

ORIGIN = Id(9)


def live(stamp: int, body: bytes = b"live") -> Publication:
    return Publication(1, stamp, 1, "a/b", body, True, stamp, clears=not body)


def record(stamp: int, body: bytes = b"kept", topic: str = "a/b") -> SharedRecord:
    return SharedRecord(RecordKind.RETAINED, topic, None, stamp_of(stamp, ORIGIN), not body, body=body)


def kept(state: MessagingContext) -> dict[str, bytes]:
    found: dict[str, bytes] = state.clients.kept  # type: ignore[attr-defined]
    return found


def test_latest_retained_message_is_kept_in_any_order_of_arrival(state: MessagingContext) -> None:
    retained_cache = RetainedCache(state)
    retained_cache.live(ORIGIN, live(5))
    retained_cache.fetched(record(4))
    assert kept(state) == {"a/b": b"live"}
    retained_cache.fetched(record(6))
    assert kept(state) == {"a/b": b"kept"}
    retained_cache.live(ORIGIN, live(7, b""))
    assert kept(state) == {"a/b": b""}
    assert len(retained_cache) == 1


def test_live_copy_of_a_fetched_message_is_dropped(state: MessagingContext) -> None:
    retained_cache = RetainedCache(state)
    assert not retained_cache.repeats(ORIGIN, live(5))
    retained_cache.fetched(record(5))
    assert retained_cache.repeats(ORIGIN, live(5))
    assert retained_cache.repeats(ORIGIN, live(4))
    assert not retained_cache.repeats(ORIGIN, live(6))
    assert not retained_cache.repeats(Id(8), live(4)), "of other publishers only time will tell"


def test_fetched_copy_of_a_live_message_changes_nothing(state: MessagingContext) -> None:
    retained_cache = RetainedCache(state)
    retained_cache.live(ORIGIN, live(5))
    retained_cache.fetched(record(5))
    assert not retained_cache.repeats(ORIGIN, live(5))
    assert kept(state) == {"a/b": b"live"}


def test_retained_message_without_a_filter_is_forgotten(state: MessagingContext) -> None:
    retained_cache = RetainedCache(state)
    retained_cache.fetched(record(5))
    retained_cache.fetched(record(5, topic="a/c"))
    retained_cache.forget("a/+", lambda topic: topic == "a/c")
    assert kept(state) == {"a/b": b"", "a/c": b"kept"}
    assert len(retained_cache) == 1


def test_hybrid_clock_follows_the_stamps_it_sees(state: MessagingContext) -> None:
    RetainedCache(state).fetched(record(500))
    assert state.stamp() == 501
