"""Numbered messages: the deliveries that each receiver must get, and the faults."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ringmq.experiments.load import numbered_traffic
from ringmq.experiments.load.client import connected_client
from ringmq.experiments.load.numbered_traffic import NumberedMessage, NumberedReceiver, NumberedTraffic, judge
from ringmq.experiments.load.tally import Faults
from ringmq.experiments.processes.servers import Server
from ringmq.mqtt_front.codec.packets import Publish


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_traffic, "DELIVER_S", 0.01)
    monkeypatch.setattr(numbered_traffic, "LINGER_S", 0.0)


def sent(number: int, qos: int = 0, acknowledged: bool = True, topic: int = 0, at: float = 1e12) -> NumberedMessage:
    answer = None
    if qos:
        answer = asyncio.get_running_loop().create_future()
        if acknowledged:
            answer.set_result(None)
    return NumberedMessage(0, topic, qos, number, at, answer)


def receiver(*got: NumberedMessage, topic: int = 0) -> NumberedReceiver:
    made = NumberedReceiver("receiver", [topic])
    made.subscribed()
    for message in got:
        made(Publish("t", message.payload))
    return made


async def judged(
    of: NumberedReceiver, messages: list[NumberedMessage], lossless_0: bool = True
) -> tuple[dict[str, int], int]:
    faults = Faults()
    lost = await judge([of], messages, lossless_0, faults)
    return faults.counts, lost


async def test_messages_that_came_once_are_no_fault() -> None:
    messages = [sent(0), sent(1, qos=1), sent(2), sent(3, qos=1)]
    assert await judged(receiver(*messages), messages) == ({}, 0)


async def test_missed_message_is_a_fault() -> None:
    messages = [sent(0), sent(1, qos=1)]
    assert await judged(receiver(), messages) == ({"missed with QoS 0": 1, "missed with QoS 1": 1}, 0)


async def test_trees_may_lose_messages_with_qos_0() -> None:
    messages = [sent(0), sent(1, qos=1)]
    assert await judged(receiver(), messages, lossless_0=False) == ({"missed with QoS 1": 1}, 1)


async def test_unacknowledged_message_may_be_lost() -> None:
    assert await judged(receiver(), [sent(0, qos=1, acknowledged=False)]) == ({}, 0)


async def test_receiver_need_not_get_other_topics_or_earlier_messages() -> None:
    messages = [sent(0, topic=1), sent(1, at=0.0)]
    assert await judged(receiver(topic=0), messages) == ({}, 0)
    assert await judged(NumberedReceiver("without SUBACK", [0]), [sent(0)]) == ({}, 0)


async def test_duplicate_or_overtaken_message_is_a_fault() -> None:
    first, second = sent(0), sent(1)
    assert await judged(receiver(first, second, second), [first, second]) == ({"twice": 1}, 0)
    assert await judged(receiver(second, first), [first, second]) == ({"out of order": 1}, 0)


async def test_each_qos_and_topic_has_its_own_order() -> None:
    messages = [sent(0), sent(1, qos=1), sent(2, topic=1)]
    assert receiver(*reversed(messages)).overtaken == 0


async def test_messages_go_to_all_topics_at_the_rate(ringmq_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    receivers = [NumberedReceiver("exact", [0]), NumberedReceiver("wildcard", [0, 1])]
    async with (
        connected_client(ringmq_server.address, "traffic-a", receivers[0]) as exact,
        connected_client(ringmq_server.address, "traffic-b", receivers[1]) as wildcard,
        connected_client(ringmq_server.address, "traffic-c") as publisher,
        connected_client(ringmq_server.address, "traffic-d") as other,
    ):
        await exact.subscribe_and_wait("traffic/0", qos=1)
        await wildcard.subscribe_and_wait("traffic/#", qos=1)
        for subscribed in receivers:
            subscribed.subscribed()
        flow = NumberedTraffic([publisher, other], ["traffic/0", "traffic/1"], 1000.0)
        flowing = asyncio.create_task(flow.run())
        assert await receivers[1].until([b"0 0 0 0", b"1 1 1 15"], 10.0) == set()
        flow.stop()
        await flowing
        assert await flow.unacknowledged(10.0) == []
        kinds = {(message.publisher, message.topic, message.qos) for message in flow.sent}
        assert len(kinds) == 8
        monkeypatch.setattr(numbered_traffic, "DELIVER_S", 10.0)
        faults = Faults()
        assert await judge(receivers, flow.sent, True, faults) == 0
        assert not faults
        assert receivers[0].times.total() == sum(message.topic == 0 for message in flow.sent)
        assert receivers[1].times.total() == len(flow.sent)


async def test_unacknowledged_messages_are_returned() -> None:
    class Silent:
        def publish_qos1(self, topic: str, payload: bytes, retain: bool = False) -> asyncio.Future[None]:
            return asyncio.get_running_loop().create_future()

    flow = NumberedTraffic([], ["a"], 1.0)
    message = flow.send(7, cast(Any, Silent()), 0, 1)
    assert await flow.unacknowledged(0.01) == [message]
    assert str(message) == "message 0 of publisher 7 to topic 0 with QoS 1"
