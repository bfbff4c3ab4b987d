"""Random and mutated packets to open connections: each leads to an answer or to a clean close with the right reason.

Twenty thousand; RINGMQ_FUZZED_PACKETS=1000000 makes it a million, which takes some minutes (add --timeout=0).
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from ringmq.mqtt_front.codec.codec import decode
from ringmq.mqtt_front.codec.decode import read_publish
from ringmq.mqtt_front.codec.fields import write_varint
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Connack, Disconnect, Kind, Version
from ringmq.mqtt_front.codec.properties import split_publish_properties
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.errors import PacketError
from tests.mqtt_front.codec.test_codec import mutated, samples

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import Client, World

V5 = Version.V5
FUZZED = int(os.environ.get("RINGMQ_FUZZED_PACKETS", "20000"))

OF_THE_SESSION = {
    Reason.PROTOCOL_ERROR,
    Reason.TOPIC_ALIAS_INVALID,
    Reason.RECEIVE_MAXIMUM_EXCEEDED,
    Reason.TOPIC_NAME_INVALID,
    Reason.TOPIC_FILTER_INVALID,
    Reason.PACKET_TOO_LARGE,
}
"""Why a packet may lead to a close although it can be read."""


def judged(version: Version, stream: bytes) -> Reason | None:
    """What is wrong with the first wrong packet, by the codec alone."""
    reader = PacketReader(10_000)
    reader.shortest_lengths = version is V5
    try:
        for first, body in reader.feed(stream):
            if first >> 4 == Kind.CONNECT:
                return Reason.PROTOCOL_ERROR  # a second CONNECT, whatever is in it
            if first >> 4 == Kind.PUBLISH:
                section = read_publish(version, first, body)[2]
                split_publish_properties(section)
            else:
                decode(version, first, body)
    except PacketError as error:
        return error.reason
    return None


def a_client(world: World, version: Version, number: int) -> Client:
    """With a session that is not kept, and some messages to come."""
    client = world.client(version)
    client.connect(f"c{number % 50}")
    client.take()
    client.subscribe("#", qos=2)
    client.take()
    return client


def end_of(client: Client) -> Reason | None:
    """What the DISCONNECT says, the last that came; None for none."""
    packets = client.take()
    assert not any(isinstance(packet, (Disconnect, Connack)) for packet in packets[:-1])
    last = packets[-1] if packets else None
    return last.reason if isinstance(last, Disconnect) else None


def half_a_packet(client: Client) -> bool:
    """Whether it has begun one, so that what follows would be the rest of that."""
    return not client.connection.reader.idle


def streams(rng: random.Random) -> tuple[Version, bytes]:
    version, raw = rng.choice(SAMPLES)
    if rng.random() < 0.25:
        body = rng.randbytes(rng.randrange(40))
        return rng.choice(list(Version)), rng.randbytes(1) + write_varint(len(body)) + body
    stream = mutated(rng, raw)
    if len(raw) < 129 and rng.random() < 0.7:  # with a length that is right, so that the body is read
        stream = stream[:1] + write_varint(max(len(stream) - 2, 0)) + stream[2:]
    return rng.choice((version, version, *Version)), stream


SAMPLES = samples()


def test_packets_lead_to_an_answer_or_to_a_clean_close(make_world: type[World]) -> None:
    rng = random.Random(0x0605)
    world = make_world(FrontConfig(max_packet_bytes=10_000, max_queued=10, max_retained=10, max_inflight=10))
    clients: dict[Version, Client] = {}
    closed = said = 0
    for number in range(FUZZED):
        version, stream = streams(rng)
        client = clients.get(version)
        if client is None or client.closed or half_a_packet(client):
            if client is not None:
                client.drop()
            client = clients[version] = a_client(world, version, number)
        wrong = judged(version, stream)
        client.feed(stream)
        assert client.closed or wrong is None, (version, stream, wrong)
        if client.closed:
            closed += 1
            reason = end_of(client)
            if version is not V5:
                assert reason is None
            elif reason is not None:
                said += 1
                assert reason is wrong or reason in OF_THE_SESSION, (stream, wrong, reason)
            else:
                assert stream[0] >> 4 == Kind.DISCONNECT, "it goes without a word only after one of its own"
        elif number % 16 == 0:
            client.take()
    assert FUZZED * 0.05 < closed < FUZZED * 0.95, "nearly all or nearly none are good: this looks at nothing"
    assert said > FUZZED * 0.01
    assert len(world.broker.sessions) <= 3
    quiet = world.connect("quiet")
    quiet.publish("t", qos=2)
    assert quiet.take(), "the broker still serves"
