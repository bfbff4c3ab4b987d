"""What the journal is told, by whom, and of which sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.codec.packets import Properties, Subscription, Version, Will
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.journal import NO_JOURNAL, NoJournal

if TYPE_CHECKING:
    from ringmq.mqtt_front.sessions.session import Session
    from tests.mqtt_front.conftest import World


class Diary(NoJournal):
    """Of sessions and what is retained; of deliveries, test_session has one."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def session(self, session: Session) -> None:
        will = "with a will" if session.will else "without"
        self.lines.append(f"{session.client_id} for {session.expiry_s} s, until {session.expires_at}, {will}")

    def ended(self, session: Session) -> None:
        self.lines.append(f"{session.client_id} ended")

    def subscribed(self, session: Session, subscription: Subscription, identifier: int | None) -> None:
        self.lines.append(f"{session.client_id} + {subscription.filter} {subscription.qos} {identifier}")

    def unsubscribed(self, session: Session, topic_filter: str) -> None:
        self.lines.append(f"{session.client_id} - {topic_filter}")

    def retained(self, message: Message) -> None:
        self.lines.append(f"{message.topic} = {message.payload!r}")


@pytest.fixture
def diary(world: World) -> Diary:
    world.broker.journal = diary = Diary()
    return diary


def test_the_life_of_a_session(world: World, diary: Diary) -> None:
    client = world.connect("c", session_expiry_s=60, will=Will("w", b"gone", 0, False))
    client.subscribe(Subscription("a", 1), Subscription("#", 2), ids=(7,))
    client.unsubscribe("a", "b")
    client.leave()
    world.pass_time(60)
    assert diary.lines == [
        "c for 60 s, until None, with a will",
        *("c + a 1 7", "c + # 2 7", "c - a"),
        *("c for 60 s, until 60.0, without", "c ended"),
    ]


def test_nothing_of_a_session_that_ends_with_its_connection(world: World, diary: Diary) -> None:
    client = world.connect("c", Version.V311)
    client.subscribe("a", qos=2)
    client.publish("a", b"x", 2)
    client.take()
    client.unsubscribe("a")
    client.drop()
    assert diary.lines == []


def test_nothing_more_of_one_that_is_to_end_now(world: World, diary: Diary) -> None:
    world.connect("c", session_expiry_s=60).drop()
    client = world.connect("c", clean=False)
    client.subscribe("a", qos=2)
    assert diary.lines[-1] == "c ended"
    assert world.session("c").journal is NO_JOURNAL
    client.drop()
    assert diary.lines[-1] == "c ended"


def test_an_expiry_that_is_taken_back_at_the_end(world: World, diary: Diary) -> None:
    client = world.connect("c", session_expiry_s=60)
    client.leave(session_expiry_s=0)
    assert diary.lines[-1] == "c ended"


def test_a_will_that_waited_is_had_no_more_once_it_is_published(world: World, diary: Diary) -> None:
    client = world.connect("c", session_expiry_s=60, will=Will("w", b"gone", 0, True, Properties(will_delay_s=10)))
    client.drop()
    world.pass_time(10)
    assert diary.lines[1:] == [
        "c for 60 s, until 60.0, with a will",
        "c for 60 s, until 60.0, without",
        "w = b'gone'",
    ]


def test_what_is_retained_and_what_is_not(world: World, diary: Diary) -> None:
    client = world.connect("c")
    for payload, retain in ((b"1", True), (b"2", False), (b"", True)):
        client.publish("a", payload, retain=retain)
    assert diary.lines == ["a = b'1'", "a = b''"]
