"""What is noted of retained messages that came live, and that it is bounded."""

from __future__ import annotations

from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.given_live import MOST_TOPICS, GivenLive
from ringmq.mqtt_front.sessions.retained import Retained

KEPT = Retained(MOST_TOPICS * 2, 1 << 30)


def made(topic: str, payload: bytes = b"x") -> Message:
    return Message(topic, payload, retain=True)


def test_a_message_is_known_by_what_it_is_and_when_it_came() -> None:
    live = GivenLive(KEPT, 1000)
    before = live.mark
    message = made("t")
    assert not live.has(message, before)
    live.note(message)
    assert live.has(message, before)
    assert not live.has(message, live.mark)
    assert not live.has(made("t"), before)
    assert not live.has(made("u"), before)


def test_of_a_topic_the_last_is_noted_and_the_one_that_is_kept() -> None:
    retained = Retained(10, 1000)
    live = GivenLive(retained, 1000)
    first, newer, older, newest = (made("t", payload) for payload in (b"1", b"3", b"2", b"4"))
    live.note(first)
    retained.set(newer)
    live.note(newer)
    live.note(older)  # of another publisher
    assert [live.has(one, 0) for one in (first, newer, older)] == [False, True, True]
    live.note(newest)
    retained.set(newest)
    assert [live.has(one, 0) for one in (newer, older, newest)] == [True, False, True]


def test_what_only_clears_a_topic_is_not_noted() -> None:
    live = GivenLive(KEPT, 1000)
    live.note(made("t", b""))
    assert live.mark == 0


def test_only_so_many_topics_are_noted() -> None:
    live = GivenLive(KEPT, 1 << 30)
    messages = [made(str(number)) for number in range(MOST_TOPICS + 1)]
    for message in messages:
        live.note(message)
    assert [live.has(message, 0) for message in (messages[0], *messages[-2:])] == [True, True, False]
    again = made("0")
    live.note(again)
    assert live.has(again, 0)


def test_only_so_many_bytes_are_held_on_to() -> None:
    live = GivenLive(Retained(10, 1000), 100)
    for _ in range(5):
        replacing = made("t", b"x" * 50)
        live.note(replacing)
        assert live.has(replacing, 0)
    other, beyond = made("u", b"x" * 50), made("v")
    live.note(other)
    live.note(beyond)
    assert [live.has(one, 0) for one in (replacing, other, beyond)] == [True, True, False]
