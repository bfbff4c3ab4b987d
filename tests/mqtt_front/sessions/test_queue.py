"""The queue of a session: its bounds, its bytes, and what leaves it by itself."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.queue import Delivery, MessageQueue


def delivery(size: int = 1, expires_at: float | None = None) -> Delivery:
    return Delivery(Message("t", b"x" * size, 1, expires_at=expires_at), 1, False, ())


def test_bounds_of_number_and_of_bytes() -> None:
    queue = MessageQueue()
    for size, most, most_bytes, room in ((5, 1, 4, True), (5, 0, 9, False)):
        assert queue.has_room_for(delivery(size).message, most, most_bytes) is room
    queue.append(delivery(4))
    assert queue.has_room_for(delivery(4).message, 2, 8)
    assert not queue.has_room_for(delivery(5).message, 2, 8)
    assert not queue.has_room_for(delivery(1).message, 1, 8)


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 9), st.none() | st.integers(1, 9)))), st.integers(0, 10))
def test_bytes_and_expiry_are_those_of_what_is_there(steps: list[tuple[int, float | None] | None], now: int) -> None:
    queue = MessageQueue()
    for step in steps:
        if step is not None:
            queue.append(delivery(*step))
        elif queue:
            queue.popleft()
    before = list(queue)
    expired = queue.take_expired(float(now))
    assert expired == [one for one in before if one.message.expired(now)]
    assert list(queue) == [one for one in before if not one.message.expired(now)]
    assert queue.payload_bytes == sum(len(one.message.payload) for one in queue)
    assert queue.expiry <= min((one.message.expires_at or inf for one in queue), default=inf)
    assert queue.take_expired(float(now)) == []
