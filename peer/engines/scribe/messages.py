"""Messages between the peers of a tree. Publications travel in envelopes (`codec.py`).

==================  =================================================================================================
of the paper        here
==================  =================================================================================================
JOIN                `Join`, consumed by the first peer on its route that accepts the sender as a child
LEAVE               `Leave`
heartbeat           `Beat`; the first one notifies a new child of its parent
refresh             `Stay`, with which a child renews its lease in the children table
MULTICAST           an envelope, up to the root and down the tree
==================  =================================================================================================

`RootQuery` and `RootReply` find a root and renew a publisher's trust in it; `RootCopy` replicates a root; `Reached`
reports that a subtree has a message with QoS 1 or 2.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import MAX_HOPS, Count, Peer
from ringmq.peer.messaging.messages import Names
from ringmq.peer.replication.record import Name, SharedRecord

MAX_CHILDREN: Final = 1 << 16
MAX_ITEMS: Final = 1 << 16

Path = Annotated[tuple[Id, ...], Meta(max_length=MAX_HOPS)]
"""The peers from the root to the sender of the message."""


class Join(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A request to be a child, routed to the root. `direct`: only the root may accept it."""

    place: Name
    child: Peer
    direct: bool


class Branch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    place: Name
    path: Path


class Beat(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """A heartbeat to a child: the sender is its parent in these trees."""

    items: Annotated[tuple[Branch, ...], Meta(max_length=MAX_ITEMS)]


class Stay(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """A renewal to a parent: the sender remains its child in these trees."""

    places: Names


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """A notice to a parent, or a peer that believes it is the parent: the sender is not its child in these trees."""

    places: Names


class Gone(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """A notice to a child or a publisher: the sender is neither its parent in these trees nor their root."""

    places: Names


class RootQuery(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """A request of a publisher to a root. The answer repeats `asked_at`, which is on the publisher's clock."""

    places: Names
    asked_at: float


class RootState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    place: Name
    empty: bool


class RootReply(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """The sender is the root of these places, and nobody is in the trees marked as empty."""

    items: Annotated[tuple[RootState, ...], Meta(max_length=MAX_ITEMS)]
    asked_at: float
    clock: Count
    """The highest number of a retained message known there, so that the publisher's next is higher."""


class RootCopy(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """The state of a root, for the peers that may take it over. Without `children`, only the retained message."""

    place: Name
    children: Annotated[tuple[Peer, ...], Meta(max_length=MAX_CHILDREN)] | None
    retained: SharedRecord | None


class Arrived(msgspec.Struct, frozen=True, array_like=True, gc=False):
    number: Count
    """The number of the envelope."""
    matched: bool


class Reached(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """A report to the sender of these envelopes, in its `boot`: the whole subtree has them; a filter matched or not."""

    boot: Count
    items: Annotated[tuple[Arrived, ...], Meta(max_length=MAX_ITEMS)]


class RootFetch(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """A request for the retained message, to the root of its topic."""

    topic: Name


class RootFetched(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    topic: Name
    record: SharedRecord | None


TreeMessage = Join | Beat | Stay | Leave | Gone | RootQuery | RootReply | RootCopy | Reached | RootFetch | RootFetched
