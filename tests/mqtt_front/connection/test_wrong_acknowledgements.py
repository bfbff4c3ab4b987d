"""Acknowledgements that do not fit their message close the connection, and the session keeps the message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import Client, World

V5 = Version.V5
FAILED = Reason.UNSPECIFIED_ERROR


def subscriber(world: World, version: Version, client_id: str = "s") -> Client:
    """One whose session outlives its connection."""
    return world.connect(client_id, version, clean=False, **({"session_expiry_s": 600} if version is V5 else {}))


# 3.1.1 [MQTT-4.8.0-1] [MQTT-4.3.2-1] [MQTT-4.3.3-1] · 5.0 [MQTT-4.13.1-1] [MQTT-4.3.2-3] [MQTT-4.3.3-4]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    ("qos", "wrong"),
    [
        pytest.param(2, Puback(1), id="PUBACK for QoS 2"),
        pytest.param(1, Pubrec(1), id="PUBREC for QoS 1"),
        pytest.param(1, Pubcomp(1), id="PUBCOMP for QoS 1"),
        pytest.param(2, Pubcomp(1), id="PUBCOMP before PUBREL"),
    ],
)
def test_an_acknowledgement_of_the_wrong_kind_closes_and_loses_nothing(
    world: World, version: Version, qos: int, wrong: Packet
) -> None:
    client, publisher = subscriber(world, version), world.connect("p")
    client.subscribe("t", qos=2)
    publisher.publish("t", b"kept", qos)
    assert client.message().packet_id == 1
    # What follows in the same bytes is not processed: the right acknowledgement comes too late.
    client.feed(encode(version, wrong) + encode(version, Puback(1) if qos == 1 else Pubrec(1)))
    answer = client.take()
    assert client.closed
    if version is V5:
        (goodbye,) = answer
        assert isinstance(goodbye, Disconnect)
        assert goodbye.reason is Reason.PROTOCOL_ERROR
    else:
        assert answer == []
    publisher.publish("t", b"later", qos)
    connack, *messages = subscriber_again(world, version)
    assert isinstance(connack, Connack)
    assert [(m.payload, m.dup) for m in messages if isinstance(m, Publish)] == [(b"kept", True), (b"later", False)]


def subscriber_again(world: World, version: Version) -> list[Packet]:
    """All that comes after a CONNECT of the same client."""
    again = world.client(version)
    again.connect("s", clean=False, **({"session_expiry_s": 600} if version is V5 else {}))
    return again.take()


def test_a_refusal_of_a_message_with_qos_1_by_pubrec_closes(world: World) -> None:
    client, publisher = subscriber(world, V5), world.connect("p")
    client.subscribe("t", qos=1)
    publisher.publish("t", b"kept", 1)
    client.message()
    client.send(Pubrec(1, FAILED))
    assert client.closed_with(Reason.PROTOCOL_ERROR)
    assert len(world.session("s").inflight) == 1


# 3.1.1 [MQTT-4.6.0-2] · 5.0 [MQTT-4.6.0-2]
@pytest.mark.parametrize("version", Version)
def test_pubacks_of_different_messages_come_in_any_order(world: World, version: Version) -> None:
    client, publisher = subscriber(world, version), world.connect("p")
    client.subscribe("t", qos=1)
    for _ in range(4):
        publisher.publish("t", b"x", 1)
    ids = [message.packet_id for message in client.messages()]
    for packet_id in (ids[2], ids[0], ids[3], ids[1]):
        client.send(Puback(packet_id))
    assert client.take() == []
    assert not client.closed
    assert not world.session("s").inflight


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("fast", [True, False])
def test_unknown_identifiers_are_answered(world: World, version: Version, fast: bool) -> None:
    client = world.connect("c", version) if fast else subscriber(world, version)
    client.send(Puback(9), Pubcomp(9), Pubrec(9), Pubrel(9))
    unknown = Reason.PACKET_IDENTIFIER_NOT_FOUND if version is V5 else Reason.SUCCESS
    assert client.take() == [Pubrel(9, unknown), Pubcomp(9, unknown)]
    assert not client.closed


@pytest.mark.parametrize("version", Version)
def test_repeated_acknowledgements_are_answered(world: World, version: Version) -> None:
    client, publisher = subscriber(world, version), world.connect("p")
    client.subscribe("t", qos=2)
    publisher.publish("t", b"x", 2)
    packet_id = client.message().packet_id
    client.send(Pubrec(packet_id), Pubrec(packet_id))
    assert client.take() == [Pubrel(packet_id), Pubrel(packet_id)]
    client.send(Pubcomp(packet_id), Pubcomp(packet_id))
    assert client.take() == []
    assert not client.closed
    assert not world.session("s").inflight
