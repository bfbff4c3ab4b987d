"""What the peers of a tree say to each other. Publications travel in an envelope of their own (`frames`).

==================  =================================================================================================
of the paper        here
==================  =================================================================================================
JOIN                `Join`, taken off its way by the first peer that is in the tree or thereby enters it
LEAVE               `Leave`
heartbeat           `Beat`; also the first word of a parent to a new child
refresh             `Stay`, the explicit word of a child that it wants to remain in the table
MULTICAST           an envelope, up to the root and down the tree
==================  =================================================================================================

`Where` and `Here` find a root and renew its publisher's trust in it; `RootCopy` replicates a root; `Reached` adds up
who has a message with QoS 1 or 2.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import MAX_HOPS, Count, Peer
from ringmq.peer.engines.coordinated.messages import Name, Names, Record

MAX_CHILDREN: Final = 1 << 16
MAX_ITEMS: Final = 1 << 16

Path = Annotated[tuple[Id, ...], Meta(max_length=MAX_HOPS)]
"""The peers from the root to the sender of the message."""


class Join(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Towards the root: take me as a child. `direct`: nobody but the root may."""

    place: Name
    child: Peer
    direct: bool


class Branch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    place: Name
    path: Path


class Beat(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """To a child: I live, and am your parent in these trees."""

    items: Annotated[tuple[Branch, ...], Meta(max_length=MAX_ITEMS)]


class Stay(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """To a parent: keep me as your child in these trees."""

    places: Names


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """To a parent, or to one that takes itself for it: I am not your child in these trees."""

    places: Names


class Gone(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """To a child or a publisher: I am not your parent in these trees, nor their root."""

    places: Names


class Where(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """A publisher to a root, known or sought. `asked_at`, on its own clock, comes back with the answer."""

    places: Names
    asked_at: float


class Found(msgspec.Struct, frozen=True, array_like=True, gc=False):
    place: Name
    empty: bool


class Here(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """I am the root of these, and nobody is in those that are empty."""

    items: Annotated[tuple[Found, ...], Meta(max_length=MAX_ITEMS)]
    asked_at: float
    clock: Count
    """The highest number of a retained message known there, so that the publisher's next is higher."""


class RootCopy(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """The state of a root, to those who may have to take it over. Without `children`, only what is retained."""

    place: Name
    children: Annotated[tuple[Peer, ...], Meta(max_length=MAX_CHILDREN)] | None
    retained: Record | None


class Arrived(msgspec.Struct, frozen=True, array_like=True, gc=False):
    number: Count
    """Of the envelope."""
    matched: bool


class Reached(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """To who sent these envelopes in its life `boot`: all below here have them, and whether anybody wanted it."""

    boot: Count
    items: Annotated[tuple[Arrived, ...], Meta(max_length=MAX_ITEMS)]


class RootFetch(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """To the root of a topic: what is retained there?"""

    topic: Name


class RootFetched(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    topic: Name
    record: Record | None


TreeMessage = Join | Beat | Stay | Leave | Gone | Where | Here | RootCopy | Reached | RootFetch | RootFetched
