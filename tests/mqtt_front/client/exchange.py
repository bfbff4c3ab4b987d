"""A client's connection in memory, and a server that a test plays packet by packet."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringmq.mqtt_front.client.connection import ClientConnection
from ringmq.mqtt_front.client.events import (
    ClientEvent,
)
from ringmq.mqtt_front.client.session_state import SessionState
from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    NO_PROPERTIES,
    Connack,
    Connect,
    Packet,
    Properties,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason

V3, V5 = Version.V311, Version.V5
VERSIONS = pytest.mark.parametrize("version", Version)
RESUMED = Connack(session_present=True, reason=Reason.SUCCESS)
FRESH = Connack(session_present=False, reason=Reason.SUCCESS)


class Exchange:
    """A client's connection, and a server that the test plays packet by packet."""

    def __init__(
        self,
        version: Version = V5,
        connack: Connack | None = FRESH,
        state: SessionState | None = None,
        properties: Properties = NO_PROPERTIES,
        automatic: bool = True,
        keep_alive_s: int = 0,
    ) -> None:
        self.version = version
        connect = Connect(version, "c", state is None, keep_alive_s, properties=properties)
        self.client = ClientConnection(connect, state, automatic=automatic)
        self._server = PacketReader()
        self.opening: list[ClientEvent] = []
        assert isinstance(self.sent()[0], Connect)
        if connack is not None:
            self.opening = self.serve(connack)

    def serve(self, *packets: Packet) -> list[ClientEvent]:
        self.client.feed(b"".join(encode(self.version, packet) for packet in packets))
        return self.client.events_received()

    def sent(self, now: float = 0.0) -> list[Packet]:
        data = self.client.data_to_send(now)
        return [decode(self.version, first, body) for first, body in self._server.feed(data)]


def limited(**values: int) -> Connack:
    return replace(FRESH, properties=Properties(**values))  # type: ignore[arg-type]
