"""Plain clients of a peer, of any version of MQTT."""

from __future__ import annotations

import socket

from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Packet,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from ringmq.peer.settings.addresses import parse_address


class PlainClient:
    """Connects, subscribes, publishes, and reads what comes."""

    def __init__(self, address: str, name: str, version: Version = Version.V5, expiry_s: int = 0) -> None:
        self.version = version
        self.wire = socket.create_connection(parse_address(address), timeout=10)
        self.reader = PacketReader()
        self.packets: list[Packet] = []
        properties = Properties(session_expiry_s=expiry_s) if version is Version.V5 else Properties()
        self.send(Connect(version, name, not expiry_s, 60, properties=properties))
        assert isinstance(self.read(), Connack)

    def send(self, packet: Packet) -> None:
        self.wire.sendall(encode(self.version, packet))

    def read(self) -> Packet | None:
        """The next packet; None: the server has closed the connection."""
        while not self.packets:
            data = self.wire.recv(1 << 16)
            if not data:
                return None
            self.packets += [decode(self.version, first, body) for first, body in self.reader.feed(data)]
        return self.packets.pop(0)

    def subscribe(self, *filters: str) -> None:
        self.send(Subscribe(1, tuple(Subscription(name, 1) for name in filters)))
        assert isinstance(self.read(), Suback)

    def retain(self, topic: str, payload: bytes) -> None:
        """Returns when the server has acknowledged it."""
        self.send(Publish(topic, payload, 1, True, packet_id=1))
        self.read()

    def close(self) -> None:
        self.wire.close()
