"""Messages of the ring as bytes: MessagePack, ids as 16 bytes.

Owns the encoding, and turns every way in which decoding can fail into a ProtocolError. Knows nothing of links.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Message, Parcel, Peer, Relay
from ringmq.overlay.errors import ProtocolError

T = TypeVar("T")

_MAX_REASON_CHARS: Final = 120
"""Largest part of the decoder's explanation that is kept: it may quote bytes of the other side."""


def _pack_id(value: object) -> bytes:
    if isinstance(value, Id):
        return value.packed()
    raise TypeError(f"cannot encode {type(value).__name__}")


def _unpack_id(kind: type, value: object) -> Id:
    if kind is Id and isinstance(value, bytes):
        return Id.unpack(value)
    raise ValueError("an id must be 16 bytes")


class Codec(Generic[T]):
    """Values of one msgspec type to MessagePack and back."""

    __slots__ = ("_decode", "encode")

    def __init__(self, of: Any) -> None:
        self.encode = msgspec.msgpack.Encoder(enc_hook=_pack_id).encode
        self._decode = msgspec.msgpack.Decoder(of, dec_hook=_unpack_id).decode

    def decode(self, body: bytes) -> T:
        """Raises ProtocolError with one short line for anything that `encode` would not write."""
        try:
            value: T = self._decode(body)
        except (ValueError, TypeError, RecursionError, OverflowError, MemoryError) as error:
            # msgspec's errors, UTF-8 errors and the errors of our hook are ValueErrors.
            raise ProtocolError(one_line(f"unreadable: {error}")) from None
        return value


def one_line(text: str) -> str:
    """Make a text of another peer fit for a log line."""
    return "".join(c if c.isprintable() else "?" for c in text[:_MAX_REASON_CHARS])


_messages: Final = Codec[Message](Message)
encode = _messages.encode
decode = _messages.decode


def wrap(origin: Peer, target: Peer, message: Message) -> Relay:
    """A message for a peer that is reached through another one."""
    if isinstance(message, Parcel):
        return Relay(origin, target, 0, True, message.payload)
    return Relay(origin, target, 0, False, encode(message))


def unwrap(relay: Relay) -> Message:
    """Raises ProtocolError as `decode` does, and for a relay within a relay."""
    if relay.parcel:
        return Parcel(relay.body)
    message = decode(relay.body)
    if isinstance(message, Relay):
        raise ProtocolError("a relay within a relay")
    return message
