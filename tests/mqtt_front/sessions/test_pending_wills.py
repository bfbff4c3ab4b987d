"""Wills on their way: kept until all receivers have them, and delivered once with QoS 2."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.cluster import UNDELIVERED
from ringmq.mqtt_front.codec.packets import Will
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message, WillMessage
from ringmq.mqtt_front.sessions import pending_wills
from ringmq.mqtt_front.sessions.journal import NO_JOURNAL, NoJournal
from ringmq.mqtt_front.sessions.pending_wills import RETRIED_S, RETRY_S, TOKEN_BYTES, PendingWills

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import SlowPorts, World


class WillDiary(NoJournal):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def will_begins(self, will: WillMessage) -> None:
        self.lines.append(f"{will.topic} begins")

    def will_ended(self, token: bytes) -> None:
        self.lines.append(f"{token[-1]} ended")

    def will_delivered(self, token: bytes) -> None:
        self.lines.append(f"{token[-1]} delivered")

    def will_forgotten(self, token: bytes) -> None:
        self.lines.append(f"{token[-1]} forgotten")


def will_with(number: int, qos: int = 2) -> WillMessage:
    return WillMessage("will", b"gone", qos, token=bytes([number]) * TOKEN_BYTES)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_will_is_pending_until_all_receivers_have_it(
    make_world: type[World], slow_ports: SlowPorts, kept: bool, qos: int
) -> None:
    world = make_world(cluster=slow_ports)
    world.broker.journal = diary = WillDiary()
    settled: list[bool] = []
    world.broker.wills.on_settled = lambda: settled.append(True)
    for topic in ("a", "b"):
        will = Will(topic, b"gone", qos, False)
        world.connect(topic, will=will, session_expiry_s=600 if kept else 0).drop()
    assert diary.lines == ["a begins", "b begins"]
    assert len(world.broker.wills.pending) == 2
    slow_ports.settle(1)
    assert not settled
    slow_ports.settle(0, Reason.QUOTA_EXCEEDED)
    assert settled == [True]
    assert diary.lines == ["a begins", "b begins", "2 ended", "1 ended"]
    first, second = [message for message, _ in slow_ports.messages]
    assert isinstance(first, WillMessage)
    assert isinstance(second, WillMessage)
    assert first.token != second.token


def test_a_will_that_could_not_be_delivered_is_published_again(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    world.broker.journal = diary = WillDiary()
    world.connect("c", will=Will("a", b"gone", 2, False), session_expiry_s=600).drop()
    for attempt in range(3):
        slow_ports.settle(attempt, UNDELIVERED)
        assert world.broker.wills.pending
        assert world.broker.deadline() == world.now + RETRY_S
        world.pass_time(RETRY_S)
    tokens = {message.token for message, _ in slow_ports.messages if isinstance(message, WillMessage)}
    assert (len(slow_ports.messages), len(tokens)) == (4, 1), "receivers know it again"
    assert diary.lines == ["a begins"]
    slow_ports.settle(3)
    assert diary.lines == ["a begins", "1 ended"]
    assert not world.broker.wills.pending


def test_a_will_that_nobody_takes_for_an_hour_is_given_up(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    world.connect("c", will=Will("a", b"gone", 1, False), session_expiry_s=600).drop()
    slow_ports.settle(0, UNDELIVERED)
    world.pass_time(RETRIED_S + 1)
    slow_ports.settle(1, UNDELIVERED)
    assert not world.broker.wills.pending
    assert world.broker.wills.again_at == inf


def test_a_will_with_qos_0_is_not(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    world.broker.journal = diary = WillDiary()
    world.connect("c", will=Will("a", b"gone", 0, False)).drop()
    assert slow_ports.dones == [None]
    assert diary.lines == []
    assert not world.broker.wills.pending


def test_a_will_of_an_earlier_process_is_published_to_others_alone(
    make_world: type[World], slow_ports: SlowPorts
) -> None:
    world = make_world(cluster=slow_ports)
    watcher = world.connect("watcher")
    watcher.send_subscribe("will", qos=1)
    world.broker.journal = diary = WillDiary()
    world.broker.publish_again(will_with(7))
    watcher.take()
    assert [message for message, _ in slow_ports.messages] == [will_with(7)]
    assert not world.session("watcher").inflight
    slow_ports.settle(0)
    assert diary.lines == ["7 ended"]


def test_an_expired_will_of_an_earlier_process_is_not_published(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    world.broker.journal = diary = WillDiary()
    world.broker.publish_again(WillMessage("will", b"", 1, expires_at=world.now, token=b"\7" * TOKEN_BYTES))
    assert slow_ports.messages == []
    assert diary.lines == ["7 ended"]


def test_a_will_with_qos_2_is_delivered_once() -> None:
    wills, diary = PendingWills(), WillDiary()
    assert not wills.is_repeated(will_with(1), diary)
    assert wills.is_repeated(will_with(1), diary)
    assert not wills.is_repeated(will_with(2), diary)
    assert diary.lines == ["1 delivered", "2 delivered"]


@pytest.mark.parametrize("message", [will_with(1, qos=1), Message("t", b"", 2)])
def test_other_messages_are_delivered_each_time(message: Message) -> None:
    wills, diary = PendingWills(), WillDiary()
    assert not wills.is_repeated(message, diary)
    assert not wills.is_repeated(message, diary)
    assert diary.lines == []


def test_the_oldest_of_many_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_wills, "MOST_DELIVERED", 2)
    wills, diary = PendingWills(), WillDiary()
    wills.restore([will_with(1).token, will_with(2).token])
    assert wills.is_repeated(will_with(1), diary)
    assert not wills.is_repeated(will_with(3), diary)
    assert diary.lines == ["3 delivered", "1 forgotten"]
    assert not wills.is_repeated(will_with(1), NO_JOURNAL)
