"""What this peer holds of one place, as its coordinator or as a shadow; and of whom a coordinator must be heard."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from math import inf

from overlay.ids import Id
from overlay.messages import Peer
from peer.pubsub.book import Book, Key
from peer.pubsub.config import PubSubConfig
from peer.pubsub.messages import Control, Kind, Record, Reign
from peer.pubsub.places import key_of_place


class Role(Enum):
    HOLDER = auto()
    """A shadow, or one that was more and is not any longer."""
    GATHERING = auto()
    """The next coordinator, which asks the others for what they hold."""
    COORDINATOR = auto()


def lease_s(kind: Kind, config: PubSubConfig) -> float:
    """How long a record is kept that is not renewed."""
    return config.note_s if kind is Kind.NOTE else config.entry_s


class Follower:
    """A shadow or a publisher: what it has of the book."""

    __slots__ = ("acked", "peer", "retry_at", "sent", "tries", "until")

    def __init__(self, peer: Peer, until: float = inf) -> None:
        self.peer = peer
        self.acked = 0
        self.sent = 0
        """What it has if nothing got lost."""
        self.retry_at = inf
        self.tries = 0
        self.until = until
        """Of a publisher: it trusts no list of ours after this."""


class Waiter:
    """What is to be done when all shadows have the book up to `position`, and if `listed` all publishers too."""

    __slots__ = ("deadline", "listed", "position", "then")

    def __init__(self, position: int, then: Callable[[], None], listed: bool = False, deadline: float = inf) -> None:
        self.position = position
        self.then = then
        self.listed = listed
        self.deadline = deadline
        """By then every publisher has told, or holds a list that was given later, or holds none."""


class Holding:
    """One place. The coordinator's fields are empty while somebody else is."""

    __slots__ = (
        "asked_at", "awaited", "book", "expires", "gone_at", "key", "looking", "owners", "place", "publishers",
        "reign", "retrying", "role", "shadows", "stash", "synced", "waiters",
    )  # fmt: skip

    def __init__(self, place: str, me: Id) -> None:
        self.place = place
        self.key = key_of_place(place)
        self.book = Book()
        self.role = Role.HOLDER
        self.reign = Reign(0, me)
        self.owners: tuple[Peer, ...] = ()
        self.synced = 0
        """As a shadow: the position in the coordinator's book that this one is a copy of."""
        self.shadows: dict[int, Follower] = {}
        self.publishers: dict[int, Follower] = {}
        self.expires: dict[Key, float] = {}
        self.gone_at: dict[Key, float] = {}
        self.waiters: dict[object, Waiter] = {}
        self.awaited: dict[int, Peer] = {}
        self.asked_at = 0.0
        self.stash: list[tuple[Peer, Control]] = []
        self.looking = False
        self.retrying = False

    @property
    def coordinates(self) -> bool:
        return self.role is Role.COORDINATOR

    def take(self, record: Record, now: float, config: PubSubConfig) -> bool:
        """Merge a record; whether it was news."""
        if not self.book.put(record):
            return False
        key = record.key
        if record.gone:
            self.gone_at[key] = now
            self.expires.pop(key, None)
        else:
            self.gone_at.pop(key, None)
            if self.coordinates and record.kind in (Kind.ENTRY, Kind.NOTE):
                self.expires[key] = now + lease_s(record.kind, config)
        if self.coordinates and record.kind is Kind.PUBLISHER and record.peer is not None:
            if record.gone:
                self.publishers.pop(record.peer.id, None)
            else:
                self.publishers[record.peer.id] = Follower(record.peer, now + config.void_s)
        return True

    def begin(self, reign: Reign, now: float, config: PubSubConfig) -> None:
        """Be the coordinator. All leases begin anew: nobody told how long they still were."""
        self.role = Role.COORDINATOR
        self.reign = reign
        self.awaited = {}
        for record in self.book:
            if record.gone:
                continue
            if record.kind is Kind.PUBLISHER and record.peer is not None:
                self.publishers[record.peer.id] = Follower(record.peer, now + config.void_s)
            elif record.kind is not Kind.RETAINED:
                self.expires[record.key] = now + lease_s(record.kind, config)

    def end(self) -> None:
        """Be the coordinator no longer. Those who wait ask again, elsewhere."""
        self.role = Role.HOLDER
        self.synced = 0
        self.shadows, self.publishers, self.expires = {}, {}, {}
        self.waiters, self.awaited, self.stash = {}, {}, []

    def forget_gone(self, before: float) -> None:
        for key in [key for key, at in self.gone_at.items() if at < before]:
            del self.gone_at[key]
            self.book.forget(key)

    def present(self) -> frozenset[tuple[object, ...]]:
        """All that is not gone: equal for a coordinator and its shadows once it is quiet."""
        return frozenset((*record.key, record.number, record.body) for record in self.book if not record.gone)
