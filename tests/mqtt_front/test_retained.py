"""Retained messages: the last of each topic, bounded, without the expired ones."""

from __future__ import annotations

from mqtt_front.message import Message
from mqtt_front.retained import Retained


def message(topic: str, payload: bytes = b"x", expires_at: float | None = None) -> Message:
    return Message(topic, payload, 0, True, expires_at=expires_at)


def topics(retained: Retained, topic_filter: str, now: float = 0.0) -> set[str]:
    return {found.topic for found in retained.matching(topic_filter, now)}


# 3.1.1 [MQTT-3.3.1-7] · 5.0 [MQTT-3.3.1-5]
def test_the_last_one_of_a_topic_is_kept() -> None:
    retained = Retained(10)
    for payload in (b"1", b"2"):
        assert retained.set(message("a", payload))
    assert [found.payload for found in retained.matching("a", 0.0)] == [b"2"]
    assert len(retained) == 1
    assert [found.payload for found in retained] == [b"2"]


# 3.1.1 [MQTT-3.3.1-11] · 5.0 [MQTT-3.3.1-7]
def test_an_empty_one_takes_it_away_and_is_not_kept() -> None:
    retained = Retained(10)
    retained.set(message("a"))
    assert retained.set(message("a", b""))
    assert retained.set(message("never/there", b""))
    assert len(retained) == 0


def test_those_that_a_filter_matches() -> None:
    retained = Retained(10)
    for topic in ("a", "a/b", "a/b/c", "b", "$SYS/x"):
        retained.set(message(topic))
    assert topics(retained, "a/#") == {"a", "a/b", "a/b/c"}
    assert topics(retained, "+") == {"a", "b"}
    assert topics(retained, "#") == {"a", "a/b", "a/b/c", "b"}
    assert topics(retained, "$SYS/#") == {"$SYS/x"}


def test_a_further_topic_has_no_room() -> None:
    retained = Retained(2)
    assert retained.set(message("a"))
    assert retained.set(message("b"))
    assert not retained.set(message("c"))
    assert retained.set(message("a", b"new"))
    assert topics(retained, "#") == {"a", "b"}
    retained.set(message("a", b""))
    assert retained.set(message("c"))


# 5.0 [MQTT-3.3.2-5]
def test_expired_ones_go_when_looked_at() -> None:
    retained = Retained(10)
    retained.set(message("a", expires_at=5.0))
    retained.set(message("b"))
    assert topics(retained, "#", now=4.9) == {"a", "b"}
    assert topics(retained, "#", now=5.0) == {"b"}
    assert len(retained) == 1
