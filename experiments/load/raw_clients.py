"""Raw MQTT clients: connected sockets whose CONNACK and SUBACK have been read, for callers that write bytes."""

from __future__ import annotations

import socket
from typing import Final

from ringmq.experiments.load.patterns import connect_packet, subscribe_packet
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Kind

ANSWER_S: Final = 20.0

Address = tuple[str, int]


class BenchError(Exception):
    """A benchmark cannot continue; the text has the reason."""


def connected(address: Address, client_id: str) -> socket.socket:
    """Connect a client and await its CONNACK. Raises BenchError."""
    try:
        client = socket.create_connection(address, timeout=ANSWER_S)
    except OSError as error:
        raise BenchError(f"cannot connect to {address[0]}:{address[1]}: {error.strerror or error}") from None
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.sendall(connect_packet(client_id))
    body = expect(client, Kind.CONNACK)
    if body[1]:
        raise BenchError(f"a CONNECT was refused with {body[1]}")
    return client


def subscribe(client: socket.socket, *filters: str, qos: int = 0) -> None:
    """Subscribe and await the SUBACK. Raises BenchError."""
    client.sendall(subscribe_packet(*filters, qos=qos))
    if max(expect(client, Kind.SUBACK)[2:]) > qos:
        raise BenchError("a SUBSCRIBE was refused")


def expect(client: socket.socket, kind: Kind) -> bytes:
    """The body of the next packet, which must be of this kind. Raises BenchError."""
    reader = PacketReader()
    try:
        while data := client.recv(65536):
            for first, body in reader.feed(data):
                if first >> 4 != kind:
                    raise BenchError(f"the server sent packet type {first >> 4} instead of a {kind.name}")
                return bytes(body)
    except OSError as error:
        raise BenchError(f"no {kind.name} came: {error.strerror or error}") from None
    raise BenchError(f"the server closed instead of sending a {kind.name}")
