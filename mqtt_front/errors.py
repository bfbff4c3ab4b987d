"""The errors of the front: one root, errors of clients' and servers' bytes, and misuse of the codec and of clients."""

from __future__ import annotations

from enum import Enum, auto

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


class UpgradeRefusedError(FrontError):
    """For a client: the server does not answer the opening of a WebSocket as it must."""


class Trouble(Enum):
    """Why a client has no connection, for whoever can give advice."""

    UNKNOWN_HOST = auto()
    NOBODY_LISTENS = auto()
    UNREACHABLE = auto()
    SILENT = auto()
    """The server accepted the connection, or not even that, and says nothing."""
    UNTRUSTED = auto()
    """The certificate of the server is not valid, or its CA is unknown."""
    OTHER_NAME = auto()
    """The certificate of the server is that of another host."""
    NO_TLS = auto()
    """The server does not speak TLS, or ends its handshake."""
    CERTIFICATE_REFUSED = auto()
    """The server wants a certificate of the client, or another one."""
    NO_WEBSOCKET = auto()
    NO_MQTT = auto()
    REFUSED = auto()
    """The server refused the CONNECT."""
    LOST = auto()
    ENDED = auto()
    """The server said that it ends the connection."""


class NoConnectionError(FrontError):
    """For a client: there is no connection, or no more. The text names the server."""

    def __init__(self, trouble: Trouble, text: str, reason: Reason | None = None) -> None:
        super().__init__(text)
        self.trouble = trouble
        self.reason = reason
        """The server's word, if it gave one."""
