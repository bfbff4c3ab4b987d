"""What the roles say to each other: Table 2.1 of the MQTT2EdgePeer thesis, over leases.

=========================  ==========================================================================================
of the thesis              here
=========================  ==========================================================================================
Sub, UnSub                 `Sub` with an entry that is there or gone; answered by `SubAck`
SubReq                     `SubReq`; renews the lease of the publisher too
SubRep, ReSub              `List` in answer to a SubReq: the changes since what the publisher has, or all anew; or
                           `Renewed`, when there are none
NewSub, NewUnSub           `List` unasked, with the changes; answered by `Known`
UpSub                      `StateReply`, when asked by `StateRequest` or on leaving
Pub, PubCW, PubCCW         `wire.Publication`; those with a part are passed on, in whichever direction
=========================  ==========================================================================================

Copies to the shadows (`Append`), what keeps retained messages (`Retain`, `Note`, `Fetch`), and the acknowledgements of
publications (`Held`) are ours.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Count, Peer

MAX_NAME = 65_537
"""A topic of the longest, and the place below it: two characters more."""
MAX_ITEMS = 1 << 20
"""Of one list; the frame's size bounds it before."""

Name = Annotated[str, Meta(max_length=MAX_NAME)]
Names = Annotated[tuple[Name, ...], Meta(max_length=MAX_ITEMS)]
Number = tuple[Count, Count]


class Kind(IntEnum):
    """What a record is about."""

    ENTRY = 0
    """A subscriber peer wants a filter; numbered by that peer: (its boot, count)."""
    PUBLISHER = 1
    """A publisher peer was given the list; numbered by coordinators."""
    RETAINED = 2
    """The retained message of the topic; numbered by (time, publisher)."""
    NOTE = 3
    """A topic below this wildcard place has a retained message; numbered as that message, or as what ended it."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that a coordinator and its shadows hold of a place."""

    kind: Kind
    name: Name
    peer: Peer | None
    number: Number
    gone: bool
    confirmed: bool = False
    """Of an entry: SUBACK may have gone out for it. Of a retained message: it is on its way to all subscribers with
    QoS 1 or 2, and none of them can miss it. Of a note that is gone: the coordinator of the topic has said so."""
    body: bytes = b""

    @property
    def key(self) -> tuple[int, str, int]:
        return self.kind, self.name, 0 if self.peer is None else self.peer.id

    def rank(self) -> tuple[Number, bool, bool]:
        """The higher one wins. Of equal numbers: a lease that ran out, but a publisher that is there."""
        return self.number, self.gone if self.kind is Kind.ENTRY else not self.gone, self.confirmed

    def ended(self) -> Record:
        """The same, gone. Coordinators number what is not the subscribers' to number."""
        first, second = self.number
        number = self.number if self.kind is Kind.ENTRY else (first + 1, second)
        return Record(self.kind, self.name, self.peer, number, True)


Records = Annotated[tuple[Record, ...], Meta(max_length=MAX_ITEMS)]


class Epoch(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """The time of one coordinator of a place. A higher one ends all lower ones."""

    number: Count
    coordinator: Id


class Sub(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """To the coordinator: these are my entries. The first time `wants` asks for what is retained."""

    entries: Records
    wants: bool


class Granted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry is in force; or it is not, since `number` is gone, and a higher one must be asked for."""

    filter: Name
    number: Number
    gone: bool
    topics: Names
    """For a wildcard filter, if that was wanted: the topics below the place that have something retained."""
    retained: Record | None


class SubAck(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    items: Annotated[tuple[Granted, ...], Meta(max_length=MAX_ITEMS)]


class Elsewhere(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """I do not coordinate these places: ask the ring."""

    places: Names


class Wanted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A list, and what of it the publisher has."""

    place: Name
    epoch: Epoch | None
    position: Count


class SubReq(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """A publisher asks for lists, or renews its leases. `asked_at`, on its own clock, comes back with the answer."""

    items: Annotated[tuple[Wanted, ...], Meta(max_length=MAX_ITEMS)]
    asked_at: float


class List(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """The entries changed after position `since`, all if it is 0, up to `position`. Asked for: a lease as well."""

    place: Name
    epoch: Epoch
    since: Count
    position: Count
    entries: Records
    asked_at: float | None
    clock: Count
    """The highest number of a retained message known there, so that the publisher's next is higher."""


class Renewed(msgspec.Struct, frozen=True, array_like=True, tag=21, gc=False):
    """To a publisher: nothing has changed on these lists; the leases are renewed."""

    items: Annotated[tuple[Wanted, ...], Meta(max_length=MAX_ITEMS)]
    asked_at: float


class Known(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """To the coordinator: I publish by this list now, and what I published by an older one is where it should be."""

    place: Name
    epoch: Epoch
    position: Count


class Drop(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """To the coordinator: I use these lists no longer."""

    places: Names


class Append(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """To a shadow: the records changed after `since`, all if it is 0."""

    place: Name
    epoch: Epoch
    since: Count
    position: Count
    records: Records


class AppendAck(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """To the coordinator: I hold all up to `position` of your reign; or `epoch` is higher, and yours is over.

    `missing`: that is less than you took for granted. `extra` is what the coordinator did not have.
    """

    place: Name
    epoch: Epoch
    position: Count
    missing: bool
    extra: Records


class StateRequest(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """To the others nearest to the key: I am to coordinate this place. What do you hold of it?"""

    place: Name


class StateReply(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """What somebody holds of a place; `leaving`: and wants to forget, once it is `HandoffAck`."""

    place: Name
    number: Count
    """Of a reign that is over: the next must be higher."""
    records: Records
    leaving: bool


class HandoffAck(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    place: Name


class TakeOver(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """To the peer nearest to the key: this place is yours now."""

    place: Name


class Retain(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """To the coordinator of a topic: keep this message for those who subscribe later."""

    record: Record


class Retained(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    topic: Name
    number: Number
    clock: Count


class Note(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """To the coordinator of a wildcard place: these topics below it have retained messages, or have them no longer."""

    place: Name
    notes: Records


class Noted(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """This is known there now: what was told, or something newer."""

    place: Name
    notes: Records


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """To the coordinator of a topic: what is retained there?"""

    topic: Name


class Fetched(msgspec.Struct, frozen=True, array_like=True, tag=19, gc=False):
    topic: Name
    record: Record | None


class Unserved(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that was for these groups, of which no client is here any more."""

    number: Count
    groups: Names


class Held(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """To a publisher: of the life `boot` of yours I hold every message up to `up_to`, and these beyond. Of those up to
    it, others are to serve the groups that I have not."""

    boot: Count
    up_to: Count
    beyond: Annotated[tuple[Count, ...], Meta(max_length=MAX_ITEMS)]
    unserved: Annotated[tuple[Unserved, ...], Meta(max_length=MAX_ITEMS)] = ()


Control = (
    Sub
    | SubAck
    | Elsewhere
    | SubReq
    | List
    | Renewed
    | Known
    | Drop
    | Append
    | AppendAck
    | StateRequest
    | StateReply
    | HandoffAck
    | TakeOver
    | Retain
    | Retained
    | Note
    | Noted
    | Fetch
    | Fetched
    | Held
)
