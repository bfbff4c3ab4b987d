"""Messages between the roles of peers: Table 2.1 of the MQTT2EdgePeer thesis, by partition and over leases.

=========================  ==========================================================================================
of the thesis              here
=========================  ==========================================================================================
Sub, UnSub                 `Register` with entries that are there or gone; answered by `Registered`
SubReq                     `Hold`, for partitions; `Renew` keeps the lease
SubRep, ReSub              `Routes` with begun partitions, in answer to a Hold or from a successor; `Renewed`
NewSub, NewUnSub           `Routes` with changes; confirmed by the acknowledgement of their batch
UpSub                      `State`, when asked by `StateRequest` or on leaving
Pub, PubCW, PubCCW         `messaging.publication.Publication`; copies with a part are passed on
=========================  ==========================================================================================

Not from the thesis are the messages for shadows (`Append`, `Holders`), for the leases of homes (`Present`) and for
retained messages (`Retain`, `Find`). All of them are items of streams, but for `Where` and `Here`, which are routed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag
from typing import Annotated

import msgspec
from msgspec import Meta

from ringmq.overlay.core.messages import Count, Peer
from ringmq.peer.engines.partitioned.enrolling.messages import (
    Enrol,
    Enrolled,
    InForce,
    Moved,
    Returned,
    Superseded,
    Taken,
    Yield,
    Yielded,
)
from ringmq.peer.replication.record import Epoch, Name, Number, RecordKind
from ringmq.peer.replication.space import PARTITIONS

MAX_ITEMS = 1 << 20
"""Parts of one item; the size of a frame is the tighter bound."""

Partition = Annotated[int, Meta(ge=0, lt=PARTITIONS)]
Ranges = Annotated[tuple[tuple[Partition, Partition], ...], Meta(max_length=PARTITIONS)]
Peers = Annotated[tuple[Peer, ...], Meta(max_length=MAX_ITEMS)]
Digest = Annotated[int, Meta(ge=0)]
Columns = bytes
"""An array of integers, little-endian."""


def _check_ranges(ranges: Iterable[tuple[int, int]]) -> None:
    """Raises ValueError for ranges that overlap much: each partition of each range is visited, without a pause."""
    if sum([max(0, last - first + 1) for first, last in ranges]) > PARTITIONS:
        raise ValueError("ranges have more partitions than there are")


class EntryFlag(IntFlag):
    LASTING = 1
    """A session on the disk of its home has the filter with QoS 1 or 2. The entry outlives the process of its home, and
    is on the disks of all copies. Other entries are passing."""
    LAPSED = 2
    """The entry has ended because its home was silent for the length of its lease. With LASTING, the record stays."""
    WIDE = 4
    """No client has this filter: the home registers it in place of many filters that it matches. It is passing."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A filter of the home that sends it. `gone`: no client there wants it any more."""

    filter: Name
    number: Number
    gone: bool
    flags: Count = 0


Entries = Annotated[tuple[Entry, ...], Meta(max_length=MAX_ITEMS)]


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record on its way. `home` is an index into the table of homes of the message, -1 for none."""

    partition: Partition
    kind: RecordKind
    name: Name
    home: Annotated[int, Meta(ge=-1)]
    number: Number
    gone: bool
    confirmed: bool = False
    flags: Count = 0
    body: bytes = b""


Rows = Annotated[tuple[Row, ...], Meta(max_length=MAX_ITEMS)]


# Tags are on the wire: a new message takes the next free number, wherever its class stands.
class Register(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A home sends entries to the coordinator of their partitions."""

    entries: Entries


class Registered(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Entries of the receiver with these numbers are in force everywhere; have ended, so that a filter in use needs a
    higher number; are refused, as a partition is full. `retained`: messages retained for granted filters without
    wildcards.

    The count identifies the entry. In `ended` the boot is the highest that the coordinator knows of this filter and
    home, if it is higher than that of the entry: an earlier process may have had a faster clock.
    """

    in_force: Annotated[tuple[Number, ...], Meta(max_length=MAX_ITEMS)]
    ended: Annotated[tuple[Number, ...], Meta(max_length=MAX_ITEMS)]
    refused: Annotated[tuple[Number, ...], Meta(max_length=MAX_ITEMS)]
    retained: Rows = ()
    incomplete: bool = False
    """The coordinator met no copy of its predecessor: publishers may not know of entries in force."""


class Present(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The home lives: the lease of its entries in these partitions is renewed, if both have the same ones.

    `count` and `digest` are over the entries that the home has registered there and not taken back. With `all`, it has
    none in other partitions of the receiver.
    """

    runs: Ranges
    count: Count
    digest: Digest
    all: bool = False
    asked_at: float = 0.0
    """A time of the home's clock."""


class Presented(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """The answer. Unless `same`, `digests` has what the coordinator has of the home: (partition, count, digest) for
    each partition with entries of it; with `all`, also of others than `runs`. `elsewhere`: runs that the sender does
    not coordinate."""

    same: bool
    runs: Ranges
    digests: Annotated[tuple[tuple[Partition, Count, Digest], ...], Meta(max_length=PARTITIONS)]
    elsewhere: Ranges = ()
    asked_at: float = 0.0
    """The time in the question."""


class Registry(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """All entries of the home in one partition: it has no other with a number up to `up_to`."""

    partition: Partition
    up_to: Number
    entries: Entries


class Elsewhere(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The sender does not coordinate these partitions: what was asked of it there must be asked of another peer.
    `actor`: the peer that acts for the sender, which is the nearest."""

    runs: Ranges
    actor: Peer | None = None


class Hold(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """A publisher's peer wants the routes of these partitions, or of all that the receiver coordinates."""

    runs: Ranges
    all: bool


class Release(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """A holder needs these partitions no more. With `all`, it does not want all any more, but what `runs` names."""

    runs: Ranges
    all: bool


class Begun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Partitions in one term of their coordinator. The columns of the message have all routes of them."""

    first: Partition
    last: Partition
    epoch: Count
    complete: bool = True
    whole: bool = True
    """In a copy: whether the coordinator itself has all records in force."""


class Grouped(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The name of a shared filter, at one row of the columns."""

    row: Count
    filter: Name


class Routes(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """Routes from a coordinator to a holder: first `ended`, then `begun`, then the rows in their order.

    A row is one of `partitions` (16 bits), `fingerprints` (64), `shapes` (16: index into `patterns`), `homes` (32:
    index into `peers`) and `changes` (8: see RouteChange).
    """

    ended: Ranges
    begun: Annotated[tuple[Begun, ...], Meta(max_length=PARTITIONS)]
    peers: Peers
    patterns: Annotated[tuple[bytes, ...], Meta(max_length=1 << 16)]
    partitions: Columns
    fingerprints: Columns
    shapes: Columns
    homes: Columns
    changes: Columns
    groups: Annotated[tuple[Grouped, ...], Meta(max_length=MAX_ITEMS)] = ()
    term: Count = 0
    """With a beginning: a number of the holder at the coordinator. With another one, nothing from before is kept up to
    date: the coordinator had forgotten the holder, or had lost its stream. 0: as before."""

    def __post_init__(self) -> None:
        _check_ranges([(begun.first, begun.last) for begun in self.begun])


class Renew(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """A holder asks to trust the routes that it has from the receiver. `asked_at` is a time of the holder's clock."""

    asked_at: float


class Renewed(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """All changes are in the stream before this. `known` False: the receiver is no holder there (any more)."""

    asked_at: float
    known: bool
    clock: Count
    """The highest number of a retained message known there, so that the publisher's next is higher."""
    lag_s: Annotated[float, Meta(ge=0)] = 0.0
    """The shadows have confirmed the epochs of the sender this long before the renewal came, or later. The lease begins
    that much before `asked_at`."""


class Retain(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """The coordinator of the topic stores this message for later subscribers."""

    row: Row


class Retained(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """A retained message is safe at the coordinator and its shadows. `refused`: the partition is full."""

    topic: Name
    number: Number
    clock: Count
    refused: bool = False


class Find(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """A home asks for the retained messages of these partitions that match one of its filters."""

    ident: Count
    filters: Annotated[tuple[Name, ...], Meta(max_length=MAX_ITEMS)]
    runs: Ranges


class Found(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    """Some of these messages. `runs`: partitions of which all have been sent by now; `elsewhere`: partitions that the
    sender does not coordinate."""

    ident: Count
    rows: Rows
    runs: Ranges
    elsewhere: Ranges = ()


class Append(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """A coordinator sends a shadow the partitions that it begins to copy (`begun`, with all their records among the
    rows), and changed records."""

    begun: Annotated[tuple[Begun, ...], Meta(max_length=PARTITIONS)]
    homes: Peers
    rows: Rows

    def __post_init__(self) -> None:
        _check_ranges([(begun.first, begun.last) for begun in self.begun])


class Deposed(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """A shadow obeys a higher epoch of these partitions, or a publisher has routes of a higher one; nothing of the
    receiver's was stored there."""

    epochs: Annotated[tuple[tuple[Partition, Partition, Epoch], ...], Meta(max_length=PARTITIONS)]

    def __post_init__(self) -> None:
        _check_ranges([(first, last) for first, last, _ in self.epochs])


class Extra(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """Records of a shadow that overrule, or are missing among, those of its coordinator."""

    homes: Peers
    rows: Rows


class StateRequest(msgspec.Struct, frozen=True, array_like=True, tag=19, gc=False):
    """The next coordinator of these partitions asks their other owners for their records.

    `digests` are those of its own partitions with records: what is equal need not be sent.
    """

    ident: Count
    runs: Ranges
    digests: Annotated[tuple[tuple[Partition, Digest], ...], Meta(max_length=PARTITIONS)]
    silent: Peer | None = None
    """The peer nearest to the partitions, which leaves the sender without answers: the sender acts in its place."""


class State(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """Records of partitions, for their next coordinator.

    `epochs`: the sender obeys no lower epoch there any more. `refused`: the sender coordinates these, and is nearer to
    them. `holders`: publishers that may hold routes of them. `whole`: partitions of which the sender has had all
    records in force. `partial`: those of which it may lack some. As far as it knows, nobody has coordinated the others.
    """

    ident: Count
    epochs: Annotated[tuple[tuple[Partition, Partition, Count], ...], Meta(max_length=PARTITIONS)]
    homes: Peers
    rows: Rows
    holders: Peers
    refused: Ranges = ()
    more: bool = False
    """Another piece follows."""
    whole: Ranges = ()
    partial: Ranges = ()

    def __post_init__(self) -> None:
        _check_ranges([(first, last) for first, last, _ in self.epochs])


class Handover(msgspec.Struct, frozen=True, array_like=True, tag=21, gc=False):
    """All records of partitions that the sender is no owner of any more, answered by `HandedOver`."""

    runs: Ranges
    homes: Peers
    rows: Rows


class HandedOver(msgspec.Struct, frozen=True, array_like=True, tag=26, gc=False):
    """The records of these partitions are safe at the sender and its shadows. The receiver is none of them."""

    runs: Ranges


class TakeOver(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """Reminds the peer nearest to the keys of these partitions that it must coordinate them. `back`: the sender has
    acted for it, and does so no more."""

    runs: Ranges
    back: bool = False


class Holders(msgspec.Struct, frozen=True, array_like=True, tag=23, gc=False):
    """Publishers that the sender is about to send its first routes to, or that hold none any more. The possible
    successors know them before the publishers have a list to trust."""

    added: Peers
    gone: Peers
    all: bool = False
    """`added` are all of them."""


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=24, gc=False):
    """A coordinator has a shadow confirm that it obeys these epochs, answered by the acknowledgement. A shadow that
    obeys a higher one answers `Deposed` first."""

    epochs: Annotated[tuple[tuple[Partition, Partition, Count], ...], Meta(max_length=PARTITIONS)]


class Acting(msgspec.Struct, frozen=True, array_like=True, tag=25, gc=False):
    """The sender coordinates these partitions, whoever is nearest to their keys."""

    runs: Ranges


class Recall(msgspec.Struct, frozen=True, array_like=True, tag=27, gc=False):
    """The sender coordinates these partitions, and may lack entries in force: the home must present its own, and
    correct what differs, before it answers `Recalled`."""

    ident: Count
    runs: Ranges


class Recalled(msgspec.Struct, frozen=True, array_like=True, tag=28, gc=False):
    """All entries of the sender that a `Recall` asked for lie before this."""

    ident: Count


Item = (
    Register
    | Registered
    | Present
    | Presented
    | Registry
    | Elsewhere
    | Hold
    | Release
    | Routes
    | Renew
    | Renewed
    | Retain
    | Retained
    | Find
    | Found
    | Append
    | Deposed
    | Extra
    | StateRequest
    | State
    | Handover
    | HandedOver
    | TakeOver
    | Holders
    | Claim
    | Acting
    | Recall
    | Recalled
    | Enrol
    | Enrolled
    | Superseded
    | Yield
    | Yielded
    | Moved
    | InForce
    | Taken
    | Returned
)


class RouteChange(IntFlag):
    """The last column of a route."""

    GONE = 1
    EXPIRED = 2
    """It has lapsed: the home was silent for the length of its lease. Set with GONE alone."""


class Where(msgspec.Struct, frozen=True, array_like=True, tag=24, gc=False):
    """Routed to the key of a partition: the origin wants to know its coordinator.

    `again`: the origin has no answer within `doubt_s`. It sends the question to some peers that it knows (1), which
    route it on (2): the first hop of the origin may be the silent coordinator itself.
    """

    partition: Partition
    origin: Peer
    again: Count = 0


class Here(msgspec.Struct, frozen=True, array_like=True, tag=25, gc=False):
    """The sender is nearest to the keys of these partitions. `next`: its neighbours on the ring, which act for it when
    it is silent. `peer`: this one is nearest, and not the sender, which has forwarded the question."""

    runs: Ranges
    next: Annotated[tuple[Peer, ...], Meta(max_length=2)] = ()
    peer: Peer | None = None


class Silent(msgspec.Struct, frozen=True, array_like=True, tag=27, gc=False):
    """The coordinator of a partition leaves the origin without an answer. Sent to the peer that is next nearest."""

    peer: Peer
    partition: Partition
    origin: Peer


class Check(msgspec.Struct, frozen=True, array_like=True, tag=28, gc=False):
    """Does the receiver answer at all?"""

    number: Count


class Alive(msgspec.Struct, frozen=True, array_like=True, tag=29, gc=False):
    """The answer to a `Check` with this number."""

    number: Count
