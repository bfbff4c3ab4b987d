"""What was sent, what of it is demanded of whom, and what counts as a fault."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ringmq.experiments.load import numbered_traffic
from ringmq.experiments.load.client import talking
from ringmq.experiments.load.numbered_traffic import Receiver, Sent, Traffic, judge
from ringmq.experiments.load.tally import Faults
from ringmq.experiments.processes.servers import Server
from ringmq.mqtt_front.codec.packets import Publish


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_traffic, "DELIVER_S", 0.01)
    monkeypatch.setattr(numbered_traffic, "LINGER_S", 0.0)


def sent(number: int, qos: int = 0, acknowledged: bool = True, topic: int = 0, at: float = 1e12) -> Sent:
    answer = None
    if qos:
        answer = asyncio.get_running_loop().create_future()
        if acknowledged:
            answer.set_result(None)
    return Sent(0, topic, qos, number, at, answer)


def receiver(*got: Sent, topic: int = 0) -> Receiver:
    one = Receiver("somebody", [topic])
    one.subscribed()
    for message in got:
        one(Publish("t", message.payload))
    return one


async def judged(some: Receiver, messages: list[Sent], lossless_0: bool = True) -> tuple[dict[str, int], int]:
    faults = Faults()
    lost = await judge([some], messages, lossless_0, faults)
    return faults.counts, lost


async def test_all_came_once() -> None:
    messages = [sent(0), sent(1, qos=1), sent(2), sent(3, qos=1)]
    assert await judged(receiver(*messages), messages) == ({}, 0)


async def test_a_loss_is_a_fault() -> None:
    messages = [sent(0), sent(1, qos=1)]
    assert await judged(receiver(), messages) == ({"missed with QoS 0": 1, "missed with QoS 1": 1}, 0)


async def test_trees_may_lose_what_has_no_quality() -> None:
    messages = [sent(0), sent(1, qos=1)]
    assert await judged(receiver(), messages, lossless_0=False) == ({"missed with QoS 1": 1}, 1)


async def test_what_was_not_acknowledged_may_be_lost() -> None:
    assert await judged(receiver(), [sent(0, qos=1, acknowledged=False)]) == ({}, 0)


async def test_what_is_not_for_a_receiver_is_not_demanded() -> None:
    messages = [sent(0, topic=1), sent(1, at=0.0)]
    assert await judged(receiver(topic=0), messages) == ({}, 0)
    assert await judged(Receiver("without SUBACK", [0]), [sent(0)]) == ({}, 0)


async def test_what_comes_twice_or_late_is_a_fault() -> None:
    first, second = sent(0), sent(1)
    assert await judged(receiver(first, second, second), [first, second]) == ({"twice": 1}, 0)
    assert await judged(receiver(second, first), [first, second]) == ({"out of order": 1}, 0)


async def test_qualities_and_topics_have_orders_of_their_own() -> None:
    messages = [sent(0), sent(1, qos=1), sent(2, topic=1)]
    assert receiver(*reversed(messages)).overtaken == 0


async def test_messages_flow_at_a_rate_to_all_topics(ringmq_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    receivers = [Receiver("exact", [0]), Receiver("wildcard", [0, 1])]
    async with (
        talking(ringmq_server.address, "traffic-a", receivers[0]) as exact,
        talking(ringmq_server.address, "traffic-b", receivers[1]) as wildcard,
        talking(ringmq_server.address, "traffic-c") as publisher,
        talking(ringmq_server.address, "traffic-d") as other,
    ):
        await exact.subscribed("traffic/0", qos=1)
        await wildcard.subscribed("traffic/#", qos=1)
        for one in receivers:
            one.subscribed()
        flow = Traffic([publisher, other], ["traffic/0", "traffic/1"], 1000.0)
        flowing = asyncio.create_task(flow.run())
        assert await receivers[1].until([b"0 0 0 0", b"1 1 1 15"], 10.0) == set()
        flow.stop()
        await flowing
        assert await flow.unacknowledged(10.0) == []
        kinds = {(one.publisher, one.topic, one.qos) for one in flow.sent}
        assert len(kinds) == 8
        monkeypatch.setattr(numbered_traffic, "DELIVER_S", 10.0)
        faults = Faults()
        assert await judge(receivers, flow.sent, True, faults) == 0
        assert not faults
        assert receivers[0].times.total() == sum(one.topic == 0 for one in flow.sent)
        assert receivers[1].times.total() == len(flow.sent)


async def test_what_nobody_acknowledges_is_told() -> None:
    class Silent:
        def publish_1(self, topic: str, payload: bytes) -> asyncio.Future[None]:
            return asyncio.get_running_loop().create_future()

    flow = Traffic([], ["a"], 1.0)
    one = flow.send(7, cast(Any, Silent()), 0, 1)
    assert await flow.unacknowledged(0.01) == [one]
    assert str(one) == "message 0 of publisher 7 to topic 0 with QoS 1"
