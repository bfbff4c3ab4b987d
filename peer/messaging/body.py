"""A message of the front as bytes that cross the ring, with properties and payload as the client sent them.

Topic, QoS and retain flag of a publication stand in its header. The body repeats the QoS, since a retained message is
stored as its body alone.
"""

from __future__ import annotations

import struct
from typing import Final

from ringmq.mqtt_front.message import Message, WillMessage
from ringmq.mqtt_front.sessions.pending_wills import TOKEN_BYTES
from ringmq.overlay.errors import ProtocolError

_HEAD: Final = struct.Struct(">BBII")
_EXPIRES: Final = 0x01
_WILL: Final = 0x02
"""A will with QoS 1 or 2: its token follows the head."""
_REMAINING: Final = slice(2, 6)

NO_PROPERTIES: Final = _HEAD.pack(0, 0, 0, 0)
"""The head of a body with QoS 0, without properties and without an expiry."""


def encode_body(message: Message, now: float) -> bytes:
    """The expiry is sent as remaining seconds, as the clocks of peers need not agree."""
    remaining_s = message.remaining_s(now)
    flags, token = 0 if remaining_s is None else _EXPIRES, b""
    if isinstance(message, WillMessage):
        flags, token = flags | _WILL, message.token
    head = _HEAD.pack(message.qos, flags, remaining_s or 0, len(message.properties))
    return b"".join((head, token, message.properties, message.payload))


def payload_bytes(body: bytes) -> int:
    """The length of the payload; 0 if these bytes are no body."""
    if len(body) < _HEAD.size:
        return 0
    size: int = _HEAD.unpack_from(body)[3]
    return max(0, len(body) - _head_bytes(body) - size)


def _head_bytes(body: bytes) -> int:
    return _HEAD.size + (TOKEN_BYTES if body[1] & _WILL else 0)


def remaining_of(body: bytes) -> int | None:
    """Seconds until the message expires, counted from the encoding of its body; None: never."""
    if len(body) < _HEAD.size or not body[1] & _EXPIRES:
        return None
    return int.from_bytes(body[_REMAINING], "big")


def aged(body: bytes, remaining_s: int) -> bytes:
    """The body of the same message with another remaining time. It must have an expiry."""
    return b"".join((body[: _REMAINING.start], remaining_s.to_bytes(4, "big"), body[_REMAINING.stop :]))


def decode_body(topic: str, body: bytes, qos: int | None, retain: bool, now: float) -> Message:
    """The message, without its publisher. With `qos` None it has the QoS it was published with.

    Raises ProtocolError for bytes that `encode_body` did not make.
    """
    if len(body) < _HEAD.size:
        raise ProtocolError("the body of a message ends early")
    published_qos, flags, remaining_s, size = _HEAD.unpack_from(body)
    head_bytes = _head_bytes(body)
    start = head_bytes + size
    if start > len(body) or published_qos > 2:
        raise ProtocolError("the body of a message is none")
    expires_at = now + remaining_s if flags & _EXPIRES else None
    properties = body[head_bytes:start]
    of_message = (topic, body[start:], published_qos if qos is None else qos, retain, properties, expires_at)
    if flags & _WILL:
        return WillMessage(*of_message, token=body[_HEAD.size : head_bytes])
    return Message(*of_message)
