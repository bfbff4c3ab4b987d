"""Bytes between a socket and amqtt: only whole and valid packets, no faster than they are worked off."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from ringmq.mqtt_front.amqtt.connection import READS_AT_ONCE, AmqttConnection
from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Subscribe,
    Subscription,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.counters import FrontCounters

V311, V5 = Version.V311, Version.V5


class Wire(asyncio.Transport):
    """A socket that takes down what happens to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "ssl_object": None})
        self.sent = b""
        self.unsent_bytes = 0
        self.end = ""

    def write(self, data: object) -> None:
        self.sent += cast("bytes", data)

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def close(self) -> None:
        self.end = self.end or "closed"

    def abort(self) -> None:
        self.end = "aborted"

    def is_closing(self) -> bool:
        return bool(self.end)

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Linked:
    """A line with a wire at its one end."""

    def __init__(self, **config: int) -> None:
        self.wire = Wire()
        self.counters = FrontCounters()
        self.opened: list[AmqttConnection] = []
        self.line = AmqttConnection(FrontConfig(**config), self.counters, self.opened.append)  # type: ignore[arg-type]
        self.line.connection_made(self.wire)

    def feed(self, *packets: Packet, version: Version = V311) -> None:
        self.line.data_received(b"".join([encode(version, packet) for packet in packets]))

    async def inbox(self) -> bytes:
        """All that amqtt can read; the connection is ended for it."""
        self.line.feed_eof()
        return await self.line.read()


@pytest.fixture
async def linked() -> Linked:
    return Linked()


def connect(version: Version = V311) -> Connect:
    return Connect(version, "c", True, 0)


async def test_connect_is_not_passed_to_amqtt(linked: Linked) -> None:
    assert linked.opened == [linked.line]
    linked.feed(connect(), Publish("a", b"x"))
    assert await linked.line.connect == connect()
    assert await linked.inbox() == encode(V311, Publish("a", b"x"))


async def test_a_packet_is_passed_on_whole(linked: Linked) -> None:
    linked.feed(connect())
    data = encode(V311, Subscribe(1, (Subscription("a/#", 1),))) + encode(
        V311, Publish("a", b"y" * 300, 1, packet_id=2)
    )
    for at in range(len(data)):
        linked.line.data_received(data[at : at + 1])
    assert await linked.inbox() == data


async def test_read_returns_the_requested_bytes(linked: Linked) -> None:
    linked.feed(connect(), Pingreq())
    assert await linked.line.read(1) == b"\xc0"
    assert await linked.line.read(1) == b"\0"


@pytest.mark.parametrize(
    "data",
    [
        b"\x30\x05\0\x03a/#",
        b"\x30\x05\0\x03a\xff\xff",
        b"\x82\x02\0\x01",
        b"\x30\xff\xff\xff\xff\x7f",
        b"\xf0\0",
        encode(V311, connect()),
        encode(V311, Pingresp()),
        encode(V311, Connack(False, Reason.SUCCESS)),
        encode(V311, Publish("a", b"x" * 200)),
    ],
    ids=["wildcard", "not-utf8", "no-filter", "length", "reserved", "connect", "pingresp", "connack", "too-large"],
)
async def test_invalid_packet_closes_the_connection(data: bytes) -> None:
    linked = Linked(max_packet_bytes=150)
    linked.feed(connect(), Pingreq())
    linked.line.data_received(data)
    linked.feed(Publish("late", b""))
    assert (linked.wire.end, linked.counters.protocol_errors) == ("closed", 1)
    assert await linked.inbox() == encode(V311, Pingreq())


async def test_the_first_packet_is_a_connect(linked: Linked) -> None:
    linked.feed(Pingreq())
    assert await linked.line.connect is None
    assert (linked.wire.end, linked.wire.sent) == ("closed", b"")


@pytest.mark.parametrize("version", [Version.V31, V5])
async def test_other_versions_are_refused_in_their_own_words(linked: Linked, version: Version) -> None:
    linked.feed(connect(version), version=version)
    assert linked.wire.sent == encode(version, Connack(False, Reason.UNSUPPORTED_PROTOCOL_VERSION))
    assert (await linked.line.connect, linked.wire.end, linked.counters.refused) == (None, "closed", 1)


async def test_a_version_of_the_future_is_refused(linked: Linked) -> None:
    linked.line.data_received(b"\x10\x0d\0\x04MQTT\x09\x02\0\0\0\x01c")
    assert linked.wire.sent == encode(V311, Connack(False, Reason.UNSUPPORTED_PROTOCOL_VERSION))
    assert linked.wire.end == "closed"


async def test_after_a_disconnect_nothing_more_is_taken(linked: Linked) -> None:
    linked.feed(connect(), Disconnect(Reason.SUCCESS), Publish("late", b""))
    linked.feed(Publish("later", b""))
    assert linked.line.said_goodbye
    assert await linked.inbox() == encode(V311, Disconnect(Reason.SUCCESS))


async def test_continuous_reader_yields_to_other_tasks(linked: Linked) -> None:
    linked.feed(connect(), Publish("a", b"x" * 1000))
    others = asyncio.Event()
    asyncio.get_running_loop().call_soon(others.set)
    reads = 0
    while not others.is_set():
        await linked.line.read(1)
        reads += 1
    assert 0 < reads <= READS_AT_ONCE


async def test_too_many_waiting_stop_the_reading() -> None:
    linked = Linked(receive_maximum=10)
    linked.feed(connect(), Pingreq())
    linked.line.pace(10)
    assert linked.line.paused
    reading = asyncio.ensure_future(linked.line.read(2))
    linked.line.pace(6)
    await asyncio.sleep(0)
    assert not reading.done()
    linked.line.pace(5)
    assert await reading == encode(V311, Pingreq())


async def test_a_paused_line_sees_its_end() -> None:
    linked = Linked(receive_maximum=10)
    linked.line.pace(10)
    linked.line.connection_lost(None)
    assert await linked.line.read() == b""
    linked.line.pace(10)
    assert not linked.line.paused


async def test_client_that_does_not_read_is_cut_off() -> None:
    linked = Linked(max_buffer_bytes=1000)
    linked.line.write(b"a")
    linked.wire.unsent_bytes = 2001
    linked.line.write(b"b")
    await linked.line.drain()
    linked.line.write(b"c")
    assert (linked.wire.sent, linked.wire.end, linked.counters.publish_dropped) == (b"a", "aborted", 1)


async def test_lost_connection_writes_nothing(linked: Linked) -> None:
    linked.line.connection_lost(None)
    linked.line.refuse(V311, Reason.NOT_AUTHORIZED)
    await linked.line.close()
    assert (await linked.line.connect, linked.wire.sent, linked.counters.refused) == (None, b"", 0)


async def test_where_a_client_is(linked: Linked) -> None:
    assert linked.line.get_peer_info() == ("127.0.0.1", 5)
    assert linked.line.get_ssl_info() is None
