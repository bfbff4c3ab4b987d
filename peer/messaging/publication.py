"""Messages of engines as bytes: control messages by msgspec, a publication as a packed header and its body.

The first byte distinguishes them. Every failure to decode raises ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ringmq.overlay.core.codec import Codec
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Count, Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.messaging.fast_path import HEAD, PUBLICATION, UNSHARED
from ringmq.peer.messaging.messages import Control

CONTROL: Final = b"C"
MANY: Final = b"M"
"""Several control messages, each with its length before it."""
MANY_BYTES: Final = 1 << 14
"""Bytes of control messages in one payload, far below the size of a frame; a single message may be longer."""

RETAIN: Final = 0x04
SHARED: Final = 0x10
RELAYED: Final = 0x20
CLEARS: Final = 0x40
TRACED: Final = 0x80

MAX_DISPATCHING: Final = 32
"""Characters in the name of a dispatching algorithm."""
MAX_HOPS: Final = 255
"""The most hops that a trace can count."""
NUMBER_BITS: Final = 63
"""Bits of the highest number: control messages that answer a publication, log records and SQLite have room for no more.
Numbers count up from 1 and boots are times in ms, so no honest one comes near it."""

_TWO: Final = struct.Struct(">QQ")
_TRACE: Final = struct.Struct(">QB")
_LENGTH: Final = struct.Struct(">I")

_control: Final = Codec[Control](Control)
_encode_control = _control.encode


# gc=False: these structs form no cycles, and the garbage collector would otherwise visit each of them.
class Leaf(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A receiver in a tree, with the send window's number and base for it."""

    peer: Peer
    number: Count
    base: Count

    @property
    def id(self) -> int:
        return self.peer.id


class Relay(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The way of a message through a tree: its publisher, and the peers that its receiver must pass it on to."""

    origin: Peer
    name: Annotated[str, Meta(max_length=MAX_DISPATCHING)]
    """The dispatching algorithm that made the tree."""
    fanout: Annotated[int, Meta(ge=1)]
    part: tuple[Leaf, ...]


_shared: Final = Codec[tuple[str, ...]](tuple[str, ...])
_relay: Final = Codec[Relay](Relay)


class Trace(msgspec.Struct, gc=False):
    """The trace of a recorded message. Links carry the first two fields; the others belong to the present peer."""

    sent_ns: int
    """When its publisher's peer received it from the client, in nanoseconds since 1970."""
    hops: int = 0
    """Links that it has crossed."""
    sender: Id = Id(0)
    received_ns: int = 0
    clients: int = 0
    """Clients here that received it."""
    sends: int = 0
    """Peers that it was sent to from here."""
    duplicate: bool = False
    """It had come before, and was not delivered."""

    def received(self, sender: Id, at_ns: int) -> None:
        """It came from this peer, which is the present peer if a client here published it."""
        self.sender, self.received_ns = sender, at_ns


class Publication(msgspec.Struct, gc=False):
    """One message between peers. Publisher, `boot` and `seq` identify it for ever."""

    boot: int
    seq: int
    qos: int
    topic: str
    body: bytes
    retain: bool = False
    stamp: int = 0
    """The time of a retained message, by a hybrid logical clock."""
    number: int = 0
    """QoS 1 and 2: its number among all publications from this publisher to this peer."""
    base: int = 0
    """The publisher waits for no lower number."""
    unshared: bool = True
    """Whether it is for the subscriptions that are not shared."""
    shared: tuple[str, ...] = ()
    """Shared filters: this peer delivers to one member of each."""
    relay: Relay | None = None
    clears: bool = False
    """It is retained and has no payload: it removes the retained message."""
    trace: Trace | None = None
    """Set if its publisher's peer has chosen it to be recorded."""

    def onward(self) -> Publication:
        """The publication to send to the next peer: a trace counts one more link."""
        if self.trace is None:
            return self
        # A new trace: the present peer still counts its clients and sends in its own.
        return replace(self, trace=Trace(self.trace.sent_ns, min(self.trace.hops + 1, MAX_HOPS)))


def addressed(publication: Publication, unshared: bool, shared: tuple[str, ...]) -> Publication:
    """A copy for one receiver: for its unshared subscriptions or not, and for these shared filters."""
    return Publication(
        publication.boot, publication.seq, publication.qos, publication.topic, publication.body, publication.retain,
        publication.stamp, unshared=unshared, shared=shared, clears=publication.clears, trace=publication.trace,
    )  # fmt: skip


def encode_control(message: Control) -> bytes:
    return CONTROL + _encode_control(message)


def encode(publication: Publication) -> bytes:
    return head_of(publication) + tail_of(publication)


def head_of(publication: Publication) -> bytes:
    """The header: the part that differs between receivers."""
    flags = (
        publication.qos
        | (RETAIN if publication.retain else 0)
        | (UNSHARED if publication.unshared else 0)
        | (CLEARS if publication.clears else 0)
    )
    parts = []
    if publication.qos:
        parts.append(_TWO.pack(publication.number, publication.base))
    if publication.shared:
        flags |= SHARED
        parts.append(_counted(_shared.encode(publication.shared)))
    if publication.relay is not None:
        flags |= RELAYED
        parts.append(_counted(_relay.encode(publication.relay)))
    if publication.trace is not None:
        flags |= TRACED
        parts.append(_TRACE.pack(publication.trace.sent_ns, publication.trace.hops))
    # `isascii` reads a flag of the string, so most topics are not encoded for their length.
    size = len(publication.topic) if publication.topic.isascii() else len(publication.topic.encode())
    return b"".join((HEAD.pack(PUBLICATION[0], flags, size, publication.boot, publication.seq), *parts))


def tail_of(publication: Publication) -> bytes:
    """The part that is the same for all receivers: it is encoded once."""
    stamp = publication.stamp.to_bytes(8, "big") if publication.retain else b""
    return b"".join((stamp, publication.topic.encode(), publication.body))


def _counted(part: bytes) -> bytes:
    return _LENGTH.pack(len(part)) + part


def put_together(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Join control messages in order, in as few payloads as possible."""
    parts: list[bytes] = []
    size = 0
    for message in messages:
        if parts and size + len(message) > MANY_BYTES:
            yield _together(parts)
            parts, size = [], 0
        parts.append(message)
        size += len(message)
    if parts:
        yield _together(parts)


def _together(messages: list[bytes]) -> bytes:
    if len(messages) == 1:
        return messages[0]
    return MANY + b"".join([_LENGTH.pack(len(message)) + message for message in messages])


def taken_apart(payload: bytes) -> Iterator[bytes]:
    """The messages in one payload. Raises ProtocolError if `put_together` did not make it."""
    if payload[:1] != MANY:
        yield payload
        return
    at = len(MANY)
    while at < len(payload):
        try:
            part, at = _part(payload, at)
        except (ValueError, struct.error):
            raise ProtocolError("it ends within one of several messages") from None
        yield part


def decode(payload: bytes) -> Publication | Control:
    """Raises ProtocolError, with one short line, for bytes that were not encoded here."""
    if payload[:1] == CONTROL:
        return _control.decode(payload[1:])
    if payload[:1] != PUBLICATION:
        raise ProtocolError("a payload of no known kind")
    try:
        return _publication(payload)
    except (ValueError, struct.error) as error:
        raise ProtocolError(f"unreadable publication: {error}"[:120]) from None


def _publication(payload: bytes) -> Publication:
    _, flags, size, boot, seq = HEAD.unpack_from(payload)
    at = HEAD.size
    number = base = stamp = 0
    shared: tuple[str, ...] = ()
    relay = trace = None
    qos = flags & 3
    # Both bits set are no QoS (MQTT 5.0 §3.3.1.2).
    if qos == 3:
        raise ValueError("QoS 3")
    if qos:
        number, base = _TWO.unpack_from(payload, at)
        at += _TWO.size
    if flags & SHARED:
        part, at = _part(payload, at)
        shared = _shared.decode(part)
    if flags & RELAYED:
        part, at = _part(payload, at)
        relay = _relay.decode(part)
    if flags & TRACED:
        trace = Trace(*_TRACE.unpack_from(payload, at))
        at += _TRACE.size
        if trace.sent_ns >> NUMBER_BITS:
            raise ValueError("a time that no record has room for")
    if flags & RETAIN:
        stamp, at = int.from_bytes(payload[at : at + 8], "big"), at + 8
    if (boot | seq | number | base | stamp) >> NUMBER_BITS:
        raise ValueError(f"a number of more than {NUMBER_BITS} bits")
    if at + size > len(payload):
        raise ValueError("it ends early")
    topic = payload[at : at + size].decode()
    retain, unshared, clears = bool(flags & RETAIN), bool(flags & UNSHARED), bool(flags & CLEARS)
    body = payload[at + size :]
    return Publication(boot, seq, qos, topic, body, retain, stamp, number, base, unshared, shared, relay, clears, trace)


def _part(payload: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(payload, at)
    start = at + _LENGTH.size
    if start + length > len(payload):
        raise ValueError("it ends early")
    return payload[start : start + length], start + length
