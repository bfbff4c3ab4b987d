"""Messages between peers: every message of the ring, and the bounds on each of its fields.

Immutable values. `overlay.core.codec` turns them into bytes, and the ring core acts on them.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.overlay.core.ids import DIGITS, Id

MAX_HOPS: Final = 64
"""A message that went further is in a loop: Pastry needs 5 hops at 10^5 peers, DIGITS at the very worst."""
MAX_LEAVES: Final = 64
"""Twice the leaf set: no honest message has more."""
MAX_ROWS: Final = 16 * DIGITS
MAX_HOST: Final = 255
MAX_RELAYS: Final = 3
"""Peers that pass on a message for two others. More than one, as the way of a helper may be a detour itself."""
MAX_LATE_MS: Final = 60_000
MAX_QUESTION_BYTES: Final = 4096
MAX_ANSWER_BYTES: Final = 1 << 18

Host = Annotated[str, Meta(min_length=1, max_length=MAX_HOST, pattern=r"^[0-9A-Za-z:][0-9A-Za-z.:_%-]*$")]
"""A name or an address of either kind. Strangers choose it, and it is dialled, logged and shown."""
Port = Annotated[int, Meta(ge=1, le=65535)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Milliseconds = Annotated[int, Meta(ge=0, le=MAX_LATE_MS)]
Hops = Annotated[int, Meta(ge=0, le=MAX_HOPS)]
Relays = Annotated[int, Meta(ge=0, le=MAX_RELAYS)]
RowNumber = Annotated[int, Meta(ge=0, lt=DIGITS)]


class Peer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The address of a peer. `boot` is SWIM's incarnation number: it grows with each start of the process, so that old
    addresses lose."""

    id: Id
    host: Host
    port: Port
    boot: Count

    def __str__(self) -> str:
        return f"{self.id.short()}@{self.host}:{self.port}"


Leaves = Annotated[tuple[Peer, ...], Meta(max_length=MAX_LEAVES)]
Rows = Annotated[tuple[Peer, ...], Meta(max_length=MAX_ROWS)]


# Tags are on the wire: a new message takes the next free number. `gc=False`, as immutable values of numbers, strings
# and tuples form no cycles: the garbage collector need not visit them.
class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """For the counterclockwise neighbour: I live, and I hold you for my neighbour."""


class Probe(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Put me into your leaf set if I belong there, and send me yours; this is mine."""

    leaves: Leaves


class ProbeAck(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """My leaf set, now that I know you.

    `granted` confirms a joining peer that the gap it was granted is still reserved for it.
    """

    leaves: Leaves
    granted: bool


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Are you there? Unlike a `Probe`, it does not change leaf sets."""


class Pong(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """I am."""


class PingRequest(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """I do not hear `target`: ask it for me (SWIM's indirect probe)."""

    target: Peer


class PingResult(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """Result of a `PingRequest`: the target answered me, or I cannot reach it either."""

    target: Peer
    alive: bool


class Dead(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """`peer` was found dead. Sent to the dead peer as well: if it lives, it refutes by probing its leaf set.

    `leaves` is the finder's leaf set: it has the peer that replaces the lost member.
    """

    peer: Peer
    leaves: Leaves


class Doubt(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """You have these in your leaf set; I hold them for dead: look for yourself."""

    peers: Leaves


class Late(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """I am short of processor time: wait so much longer for me before you hold me for dead."""

    more_ms: Milliseconds


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """I stop now. `leaves` is my leaf set: it has the peer that replaces me."""

    leaves: Leaves


class Admit(msgspec.Struct, frozen=True, array_like=True, tag=19, gc=False):
    """For the active peer that precedes a joining peer, which alone may grant the gap.

    `back` is set by a peer that is not active itself: the gap belongs to the next active one counterclockwise of it.
    """

    joiner: Peer
    rows: Rows
    hops: Hops
    back: bool


class Grant(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """For a joining peer: the gap behind me is yours for a while; these are its surroundings."""

    leaves: Leaves
    rows: Rows


class Joined(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """For the granter: my whole leaf set has acknowledged me; serve the next joining peer."""


class RowRequest(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """Send me row `row` of your routing table."""

    row: RowNumber


class Row(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """One row of my routing table."""

    row: RowNumber
    peers: Rows


class Here(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """I am a new peer; add me to your routing table if the slot has space."""


class RouteAck(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    """I have received that routed message and forward it."""

    origin: Id
    boot: Count
    seq: Count


class Receipt(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """For the origin: message number `seq` of its incarnation `boot` was delivered here."""

    boot: Count
    seq: Count


class Parcel(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """Bytes of the application for a peer whose address is known: one hop, no acknowledgement."""

    payload: bytes


class Relay(msgspec.Struct, frozen=True, array_like=True, tag=21, gc=False):
    """For `target`, which does not hear `origin`: pass it on.

    `body` is a message of the ring, or with `parcel` bytes of the application.
    """

    origin: Peer
    target: Peer
    relays: Relays
    parcel: bool
    body: bytes


class Question(msgspec.Struct, frozen=True, array_like=True, tag=40, gc=False):
    """A question of the application about the receiver alone. Each `Answer` to it repeats its number."""

    number: Count
    body: Annotated[bytes, Meta(max_length=MAX_QUESTION_BYTES)]


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=41, gc=False):
    """A page of the answer to a `Question`; `last` closes it.

    `leaves` is the leaf set of the sender, in the first page: whoever asks the whole ring finds further peers by it.
    """

    number: Count
    last: bool
    leaves: Leaves
    body: Annotated[bytes, Meta(max_length=MAX_ANSWER_BYTES)]


class Join(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """The body of a join request; each hop adds the rows of its table that fit the origin."""

    rows: Rows


class Seek(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The body of a search for one's own place in what may be another ring."""


class Route(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """A message on its way to the owner of `key`. (`origin.id`, `origin.boot`, `seq`) identifies it for ever."""

    origin: Peer
    seq: Count
    key: Id
    hops: Hops
    body: bytes | Join | Seek


Message = (
    Heartbeat
    | Probe
    | ProbeAck
    | Ping
    | Pong
    | PingRequest
    | PingResult
    | Dead
    | Doubt
    | Late
    | Leaving
    | Admit
    | Grant
    | Joined
    | RowRequest
    | Row
    | Here
    | RouteAck
    | Receipt
    | Parcel
    | Relay
    | Route
    | Question
    | Answer
)
