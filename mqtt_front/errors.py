"""The errors of the front: one root, errors of clients' and servers' bytes, and misuse of the codec and of clients."""

from __future__ import annotations

from ringmq.mqtt_front.codec.reasons import Reason


class FrontError(Exception):
    """The root of everything the front raises on purpose."""


class EncodeError(FrontError):
    """Our own mistake: a value that has no form on the wire, such as a string of over 65,535 bytes."""


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


class UnsupportedVersionError(PacketError):
    """A CONNECT of MQTT, but of a level we do not speak: it can be answered, in the form nearest to that level."""

    def __init__(self, level: int) -> None:
        super().__init__(Reason.UNSUPPORTED_PROTOCOL_VERSION, f"protocol level {level} is not supported")
        self.level = level


class ServerBreachError(FrontError):
    """For a client: the server broke the protocol or fell silent. The connection is over; in 5.0 with this reason."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class CallError(FrontError):
    """For a client: a call that its connection cannot obey now, or an argument that MQTT does not allow."""
