"""A message of the front as the bytes that cross the ring: the properties and the payload as they came.

Topic, QoS and the retain flag of a publication stand in its header; they are here again for what is retained.
"""

from __future__ import annotations

import struct
from typing import Final

from ringmq.mqtt_front.message import Message
from ringmq.overlay.errors import ProtocolError

_HEAD: Final = struct.Struct(">BBII")
_EXPIRES: Final = 0x01
_REMAINING: Final = slice(2, 6)

PLAIN_HEAD: Final = _HEAD.pack(0, 0, 0, 0)
"""Before the payload of a message with QoS 0, without properties, that does not expire."""


def encode_body(message: Message, now: float) -> bytes:
    """What remains of its time goes along; clocks need not agree."""
    remaining_s = message.remaining_s(now)
    flags = 0 if remaining_s is None else _EXPIRES
    head = _HEAD.pack(message.qos, flags, remaining_s or 0, len(message.properties))
    return b"".join((head, message.properties, message.payload))


def payload_bytes(body: bytes) -> int:
    """How long the payload is; 0 for what is no body."""
    if len(body) < _HEAD.size:
        return 0
    size: int = _HEAD.unpack_from(body)[3]
    return max(0, len(body) - _HEAD.size - size)


def remaining_of(body: bytes) -> int | None:
    """In how many seconds the message expires, counted from when its body was made; None: never."""
    if len(body) < _HEAD.size or not body[1] & _EXPIRES:
        return None
    return int.from_bytes(body[_REMAINING], "big")


def aged(body: bytes, remaining_s: int) -> bytes:
    """The same message, which expires, later."""
    return b"".join((body[: _REMAINING.start], remaining_s.to_bytes(4, "big"), body[_REMAINING.stop :]))


def decode_body(topic: str, body: bytes, qos: int | None, retain: bool, now: float) -> Message:
    """The message, from whom nobody need know. Without `qos` it has that of its publication.

    Raises ProtocolError for bytes that were not encoded here.
    """
    if len(body) < _HEAD.size:
        raise ProtocolError("the body of a message ends early")
    published_qos, flags, remaining_s, size = _HEAD.unpack_from(body)
    start = _HEAD.size + size
    if start > len(body) or published_qos > 2:
        raise ProtocolError("the body of a message is none")
    expires_at = now + remaining_s if flags & _EXPIRES else None
    properties = body[_HEAD.size : start]
    return Message(topic, body[start:], published_qos if qos is None else qos, retain, properties, expires_at)
