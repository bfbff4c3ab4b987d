"""The errors of the front: one root, and what a client's bytes can do wrong."""

from __future__ import annotations

from mqtt_front.reasons import Reason


class FrontError(Exception):
    """The root of everything the front raises on purpose."""


class PacketError(FrontError):
    """The client broke the protocol: its connection is closed, in 5.0 with this reason."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class MalformedPacketError(PacketError):
    """Bytes that cannot be read as a packet (5.0 §1.2 "Malformed Packet")."""

    def __init__(self, text: str) -> None:
        super().__init__(Reason.MALFORMED_PACKET, text)


class ProtocolBreachError(PacketError):
    """A packet that can be read but may not be sent like this (5.0 §1.2 "Protocol Error")."""

    def __init__(self, text: str) -> None:
        super().__init__(Reason.PROTOCOL_ERROR, text)
