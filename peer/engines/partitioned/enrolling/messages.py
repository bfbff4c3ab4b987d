"""Messages about client ids and the sessions that move with them. Items of streams, with the tags of
`peer/engines/partitioned/messages.py`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Count, Peer
from ringmq.peer.replication.record import Name, Number

MOST_FORMER = 4
"""Homes before the present one of a client id, that have not been asked to give it up. Of more, the last ones count."""
MAX_PARTS = 1 << 20
"""Parts of one item; the size of a frame is the tighter bound."""


class Enrol(msgspec.Struct, frozen=True, array_like=True, tag=29, gc=False):
    """A home has a connection or a session with this client id, answered by `Enrolled` unless `gone`.

    `token`: of the connection, chosen by the home. `number`: of the enrolment, if the coordinator of the client id has
    given it one: then the home repeats what may be unknown there, and is answered only if it is wrong. `restored`: the
    session is from an earlier process of the home. `gone`: the home has neither connection nor session any more.
    """

    client_id: Name
    token: Count
    user: str | None = None
    number: Number = (0, 0)
    kept: bool = False
    """Whether the session outlives the connection."""
    restored: bool = False
    gone: bool = False
    alone: bool = False
    """The homes before have given up the client."""


class Verdict(IntEnum):
    GRANTED = 0
    FOREIGN = 1
    """The client id belongs to another user."""
    SUPERSEDED = 2
    """Another home has had a connection with this client id after the restored session."""
    FULL = 3
    """There is no room for a further client id in the partition."""


class Enrolled(msgspec.Struct, frozen=True, array_like=True, tag=30, gc=False):
    """The coordinator of a client id and its shadows know the home that has asked. `former`: the homes before it, the
    last one first, which must be asked to give up the client."""

    client_id: Name
    token: Count
    verdict: Verdict
    number: Number = (0, 0)
    former: Annotated[tuple[Peer, ...], Meta(max_length=MOST_FORMER)] = ()


class Superseded(msgspec.Struct, frozen=True, array_like=True, tag=31, gc=False):
    """A client has connected at another home after the enrolment of the receiver: its connection must end."""

    client_id: Name
    number: Number


class Yield(msgspec.Struct, frozen=True, array_like=True, tag=32, gc=False):
    """A client of the receiver connects at the sender, which has this number: end the connection, then answer
    `Yielded`. `clean`: the client wants no session from before."""

    client_id: Name
    number: Number
    user: str | None
    clean: bool


class Yielded(msgspec.Struct, frozen=True, array_like=True, tag=33, gc=False):
    """The sender has no connection of this client any more. `moving`: its session follows in pieces."""

    client_id: Name
    number: Number
    moving: bool = False


class Filter(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subscription of a session."""

    filter: Name
    qos: Annotated[int, Meta(ge=0, le=2)]
    no_local: bool = False
    as_published: bool = False
    identifier: Count | None = None


class Cargo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message of a session. `received`: its client has it, and has not released it."""

    topic: Name
    body: bytes
    qos: Annotated[int, Meta(ge=1, le=2)]
    retain: bool = False
    ids: Annotated[tuple[Count, ...], Meta(max_length=MAX_PARTS)] = ()
    packet_id: Annotated[int, Meta(ge=0, le=65535)] = 0
    received: bool = False
    origin: tuple[Id, Count, Count] | None = None
    """Publisher, boot and sequence number of its publication, if it came while the session was leaving."""


class Part(IntEnum):
    HEAD = 0
    """More of what is needed before the client is served follows."""
    HEAD_END = 1
    QUEUE = 2
    LAST = 3
    """All subscriptions are in force at the receiver, and what comes there is next."""
    END = 4
    """The sender has nothing more of the session."""


class Moved(msgspec.Struct, frozen=True, array_like=True, tag=34, gc=False):
    """A piece of a session. `last_id`: the last packet identifier that was used."""

    client_id: Name
    number: Number
    index: Count
    part: Part = Part.HEAD
    filters: Annotated[tuple[Filter, ...], Meta(max_length=MAX_PARTS)] = ()
    inflight: Annotated[tuple[Cargo, ...], Meta(max_length=MAX_PARTS)] = ()
    incoming: Annotated[tuple[Annotated[int, Meta(ge=1, le=65535)], ...], Meta(max_length=MAX_PARTS)] = ()
    last_id: Annotated[int, Meta(ge=0, le=65535)] = 0
    queued: Annotated[tuple[Cargo, ...], Meta(max_length=MAX_PARTS)] = ()


class InForce(msgspec.Struct, frozen=True, array_like=True, tag=35, gc=False):
    """All subscriptions of a session are in force at its new home, the sender."""

    client_id: Name
    number: Number


class Taken(msgspec.Struct, frozen=True, array_like=True, tag=37, gc=False):
    """The sender has this piece of a session on its disk."""

    client_id: Name
    number: Number
    index: Count


class Returned(msgspec.Struct, frozen=True, array_like=True, tag=36, gc=False):
    """The sender has not served the client: the receiver keeps the session."""

    client_id: Name
    number: Number
