"""Messages: when they expire, and what is left of their time."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.message import Message


def test_without_an_expiry_a_message_stays() -> None:
    message = Message("t", b"x")
    assert not message.expired(1e12)
    assert message.remaining_s(1e12) is None


# 5.0 [MQTT-3.3.2-6]
@pytest.mark.parametrize(
    ("now", "expired", "remaining_s"),
    [(10.0, False, 5), (12.0, False, 3), (14.9, False, 0), (15.0, True, 0), (99.0, True, 0)],
)
def test_the_time_left(now: float, expired: bool, remaining_s: int) -> None:
    message = Message("t", b"x", expires_at=15.0)
    assert message.expired(now) is expired
    assert message.remaining_s(now) == remaining_s
