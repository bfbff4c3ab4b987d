"""Messages between the roles of peers: Table 2.1 of the MQTT2EdgePeer thesis, over leases.

=========================  ==========================================================================================
of the thesis              here
=========================  ==========================================================================================
Sub, UnSub                 `Sub` with an entry that is there or gone; answered by `SubAck`
SubReq                     `SubReq`; renews the lease of the publisher too
SubRep, ReSub              `List` in answer to a SubReq: all entries, or the changes since an earlier list; or
                           `Renewed`, when there are none
NewSub, NewUnSub           `List` unasked, with the changes; answered by `Known`
UpSub                      `StateReply`, when asked by `StateRequest` or on leaving
Pub, PubCW, PubCCW         `wire.Publication`; those with a part are passed on, in whichever direction
=========================  ==========================================================================================

Not from the thesis are the messages for shadows (`Append`), for retained messages (`Retain`, `Note`, `Fetch`) and the
acknowledgement of publications (`Held`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Count, Peer

MAX_NAME = 65_537
"""The longest topic, and two more characters for the place below it."""
MAX_ITEMS = 1 << 20
"""Items of one list; the frame size is the tighter bound."""

Name = Annotated[str, Meta(max_length=MAX_NAME)]
Names = Annotated[tuple[Name, ...], Meta(max_length=MAX_ITEMS)]
Number = tuple[Count, Count]


class Kind(IntEnum):
    """The subject of a record."""

    ENTRY = 0
    """A subscriber peer wants a filter; numbered by that peer: (its boot, count)."""
    PUBLISHER = 1
    """A publisher peer was given the list; numbered by coordinators."""
    RETAINED = 2
    """The retained message of the topic; numbered by (time, publisher)."""
    NOTE = 3
    """A topic below this wildcard place has a retained message; numbered as that message, or as what ended it."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A fact about a place, stored by its coordinator and shadows."""

    kind: Kind
    name: Name
    peer: Peer | None
    number: Number
    gone: bool
    confirmed: bool = False
    """An entry is confirmed when its SUBACK may have been sent; a retained message, when it is on its way to all
    subscribers with QoS 1 or 2 and none of them can miss it; the end of a note, when the coordinator of the topic has
    reported it."""
    body: bytes = b""

    @property
    def key(self) -> tuple[int, str, int]:
        return self.kind, self.name, 0 if self.peer is None else self.peer.id

    def rank(self) -> tuple[Number, bool, bool]:
        """The record with the higher rank wins. If numbers are equal, an expired entry wins over a live one; of
        other kinds the live record wins over its end."""
        return self.number, self.gone if self.kind is Kind.ENTRY else not self.gone, self.confirmed

    def ended(self) -> Record:
        """The end of this record. Only subscribers number entries; coordinators number all other records."""
        first, second = self.number
        number = self.number if self.kind is Kind.ENTRY else (first + 1, second)
        return Record(self.kind, self.name, self.peer, number, True)


Records = Annotated[tuple[Record, ...], Meta(max_length=MAX_ITEMS)]


class Epoch(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """The term of one coordinator of a place. A higher epoch ends all lower ones."""

    number: Count
    coordinator: Id


# Tags are on the wire: a new message takes the next free number, wherever its class stands.
class Sub(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A subscriber sends its entries to the coordinator. The first time, `wants` requests the retained messages."""

    entries: Records
    wants: bool


class Granted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry is in force. If `gone`, it has ended at `number`, and the subscriber must use a higher number."""

    filter: Name
    number: Number
    gone: bool
    topics: Names
    """The topics with retained messages below the place of a wildcard filter, if the subscriber wanted them."""
    retained: Record | None


class SubAck(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    items: Annotated[tuple[Granted, ...], Meta(max_length=MAX_ITEMS)]


class Elsewhere(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The sender does not coordinate these places; the receiver asks the ring."""

    places: Names


class Wanted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A list, and the version of it that the publisher has."""

    place: Name
    epoch: Epoch | None
    position: Count


class SubReq(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """A publisher asks for lists, or renews its leases. `asked_at`, on its own clock, comes back with the answer."""

    items: Annotated[tuple[Wanted, ...], Meta(max_length=MAX_ITEMS)]
    asked_at: float


class List(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """The entries changed after position `since`, all if it is 0, up to `position`. An answer to a request is also a
    lease."""

    place: Name
    epoch: Epoch
    since: Count
    position: Count
    entries: Records
    asked_at: float | None
    clock: Count
    """The highest number of a retained message known there, so that the publisher's next is higher."""


class Renewed(msgspec.Struct, frozen=True, array_like=True, tag=21, gc=False):
    """Nothing has changed on these lists of a publisher; its leases are renewed."""

    items: Annotated[tuple[Wanted, ...], Meta(max_length=MAX_ITEMS)]
    asked_at: float


class Known(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """A publisher now uses this list, and all its retained messages from older lists have been stored."""

    place: Name
    epoch: Epoch
    position: Count


class Drop(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """A publisher does not use these lists any more."""

    places: Names


class Append(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """The coordinator sends a shadow the records changed after `since`, all if it is 0."""

    place: Name
    epoch: Epoch
    since: Count
    position: Count
    records: Records


class AppendAck(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """A shadow has all records up to `position` of this epoch. A higher `epoch` than the coordinator's ends its term.

    `missing`: the shadow has fewer records than the coordinator assumed. `extra`: records unknown to the coordinator.
    """

    place: Name
    epoch: Epoch
    position: Count
    missing: bool
    extra: Records


class StateRequest(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """The next coordinator of a place asks the other peers nearest to its key for their records of it."""

    place: Name


class StateReply(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """A peer's records of a place. If `leaving`, the peer forgets them after the `HandoffAck`."""

    place: Name
    number: Count
    """The number of the last epoch known there; the next must be higher."""
    records: Records
    leaving: bool


class HandoffAck(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    place: Name


class TakeOver(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """Reminds the peer nearest to the key that it must coordinate this place."""

    place: Name


class Retain(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """The coordinator of the topic stores this message for later subscribers."""

    record: Record


class Retained(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    topic: Name
    number: Number
    clock: Count


class Note(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """These topics below a wildcard place have retained messages, or have them no longer."""

    place: Name
    notes: Records


class Noted(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """The place has stored these notes, or newer ones."""

    place: Name
    notes: Records


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """Requests the retained message of a topic from its coordinator."""

    topic: Name


class Fetched(msgspec.Struct, frozen=True, array_like=True, tag=19, gc=False):
    topic: Name
    record: Record | None


class Unserved(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message for these groups, which have no client at the receiver any more."""

    number: Count
    groups: Names


class Held(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """The sender has received every message of the publisher's `boot` up to `up_to`, and those in
    `beyond`. Other peers must serve the groups in `unserved`."""

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
