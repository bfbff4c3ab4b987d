"""When a client has gone, all that was there for it alone goes at once: nothing waits for a look at the garbage."""

from __future__ import annotations

import asyncio

import pytest

from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import Connect, Publish, Subscribe, Subscription, Version
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.listeners import Listen
from tests.mqtt_front.front_bench import Bench, by_counts_alone, until
from tests.mqtt_front.server.test_websocket import REQUEST, frame

V5 = Version.V5
GREETING = encode(V5, Connect(V5, "c", True, 0))
SUBSCRIBE = encode(V5, Subscribe(1, (Subscription("#", 2),)))

ENDS = {
    "as it is": b"",
    "with a wrong packet": b"\0\0",
    "with half a packet": b"\x30\x7f",
    "while it is behind": b"\xc0\0" * 20_000,
    "with a message that is on its way": encode(V5, Publish("x", b"y", 2, packet_id=7)),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("websocket", [False, True])
async def test_a_client_that_has_gone_leaves_nothing(bench: Bench, websocket: bool, end: str) -> None:
    front = await bench.start()
    for number in range(50):
        front.broker.publish(Message(f"r/{number}", b"x", 1, retain=True), None)
    address = await front.listen(Listen(host="127.0.0.1", port=0, websocket=websocket))
    data = GREETING + SUBSCRIBE
    with by_counts_alone() as ours:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(REQUEST + frame(data) if websocket else data)
        await until(lambda: front.broker.counters.publish_sent >= 50)
        await until(lambda: bool(front.broker.sessions["c"].inflight))
        assert len(ours()) >= 4
        last = ENDS[end]
        writer.write(b"".join([frame(last[at : at + 120]) for at in range(0, len(last), 120)]) if websocket else last)
        await asyncio.wait_for(writer.drain(), 10)
        writer.close()
        await until(lambda: not front.clients)
        await until(lambda: not front.broker.dirty)
        del reader, writer
        await until(lambda: not ours())
