"""The roles' messages as bytes: control by msgspec, a publication as a packed header and the bytes as they came.

The first byte tells them apart. Every way in which decoding can fail becomes a ProtocolError.
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
from ringmq.peer.engines.coordinated.messages import Control
from ringmq.peer.messaging.fast_path import HEAD, PUBLICATION, UNSHARED

CONTROL: Final = b"C"
MANY: Final = b"M"
"""Several control messages, each with its length before it."""
MANY_BYTES: Final = 1 << 14
"""No more is put together, so that a frame holds it with room to spare; one message may be longer by itself."""

RETAIN: Final = 0x04
SHARED: Final = 0x10
RELAYED: Final = 0x20
CLEARS: Final = 0x40
TRACED: Final = 0x80

MAX_DISPATCHING: Final = 32
"""Characters in the name of a dispatching."""
MAX_HOPS: Final = 255
"""That a trace counts; more are taken for so many."""
MAX_NUMBER: Final = (1 << 63) - 1
"""Of what names a recorded message, and in its trace: a record has room for no more."""

_TWO: Final = struct.Struct(">QQ")
_TRACE: Final = struct.Struct(">QB")
_LENGTH: Final = struct.Struct(">I")

_control: Final = Codec[Control](Control)
_encode_control = _control.encode


class Leaf(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subscriber peer in the part of another: who it is, and the numbers its message bears."""

    peer: Peer
    number: Count
    base: Count

    @property
    def id(self) -> int:
        return self.peer.id


class Relay(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a message comes from, when not from its sender; and to whom its receiver passes it on."""

    origin: Peer
    name: Annotated[str, Meta(max_length=MAX_DISPATCHING)]
    """Of the dispatching that made the tree."""
    fanout: Annotated[int, Meta(ge=1)]
    part: tuple[Leaf, ...]


_shared: Final = Codec[tuple[str, ...]](tuple[str, ...])
_relay: Final = Codec[Relay](Relay)


class Trace(msgspec.Struct, gc=False):
    """Of a message that is recorded. The first two cross the links; the others are of the peer that has it now."""

    sent_ns: int
    """When its origin had it from its client, since 1970."""
    hops: int = 0
    """Links that it has crossed."""
    sender: Id = Id(0)
    received_ns: int = 0
    clients: int = 0
    """That were given it here."""
    sends: int = 0
    """Peers that it was sent to from here."""
    duplicate: bool = False
    """It had come before, and was given to nobody."""


class Publication(msgspec.Struct, gc=False):
    """One message between peers. (origin, `boot`, `seq`) names it for ever."""

    boot: int
    seq: int
    qos: int
    topic: str
    body: bytes
    retain: bool = False
    stamp: int = 0
    """Of a retained message: its place in time."""
    number: int = 0
    """QoS 1 and 2: its place among all those from this publisher to this peer."""
    base: int = 0
    """The publisher waits for no number below it."""
    unshared: bool = True
    """Whether it is for the subscriptions that are not shared."""
    shared: tuple[str, ...] = ()
    """The shared filters of which this peer is to serve one member."""
    relay: Relay | None = None
    clears: bool = False
    """Retained, without a payload: from now on nothing is."""
    trace: Trace | None = None
    """Set if its origin has chosen it to be recorded."""

    def onward(self) -> Publication:
        """As it is sent on: a recorded one has crossed a link more."""
        if self.trace is None:
            return self
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
    """All that differs among the receivers of a message."""
    one = publication
    flags = one.qos | (RETAIN if one.retain else 0) | (UNSHARED if one.unshared else 0) | (CLEARS if one.clears else 0)
    parts = []
    if one.qos:
        parts.append(_TWO.pack(one.number, one.base))
    if one.shared:
        flags |= SHARED
        parts.append(_counted(_shared.encode(one.shared)))
    if one.relay is not None:
        flags |= RELAYED
        parts.append(_counted(_relay.encode(one.relay)))
    if one.trace is not None:
        flags |= TRACED
        parts.append(_TRACE.pack(one.trace.sent_ns, one.trace.hops))
    size = len(one.topic) if one.topic.isascii() else len(one.topic.encode())
    return b"".join((HEAD.pack(PUBLICATION[0], flags, size, one.boot, one.seq), *parts))


def tail_of(publication: Publication) -> bytes:
    """All that does not."""
    one = publication
    stamp = one.stamp.to_bytes(8, "big") if one.retain else b""
    return b"".join((stamp, one.topic.encode(), one.body))


def _counted(part: bytes) -> bytes:
    return _LENGTH.pack(len(part)) + part


def put_together(messages: Iterable[bytes]) -> Iterator[bytes]:
    """What `encode_control` has made, in the same order, in as few payloads as hold it."""
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
    """The payloads in one, which may be the only one. Raises ProtocolError for what was not put together here."""
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
    """Raises ProtocolError with one short line for anything that was not encoded here."""
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
        if max(trace.sent_ns, boot, seq) > MAX_NUMBER:
            raise ValueError("a number that no record has room for")
    if flags & RETAIN:
        stamp, at = int.from_bytes(payload[at : at + 8], "big"), at + 8
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
