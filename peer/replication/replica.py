"""The replica of one place at this peer, its coordinator or a shadow; and the followers of a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from itertools import chain
from math import inf
from typing import Any, Final

from msgspec.structs import replace

from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Control, Epoch, Kind, Record
from ringmq.peer.messaging.body import aged, remaining_of
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.partitions import key_of_place
from ringmq.peer.replication.record_log import Key, RecordLog


class Nothing(dict[Any, Any]):
    """The empty table that all replicas share: most places have nothing under way, and an empty dict takes 64 bytes."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("it belongs to all")


NOTHING: Final = Nothing()


class Role(Enum):
    HOLDER = auto()
    """A shadow, or a former coordinator."""
    GATHERING = auto()
    """The next coordinator, which asks the other peers for their records."""
    COORDINATOR = auto()


def lease_s(kind: Kind, config: PubSubConfig) -> float:
    """How long a record is kept without a renewal."""
    return config.note_s if kind is Kind.NOTE else config.entry_s


class Follower:
    """A shadow or a publisher, with the position in the log up to which it has the records."""

    __slots__ = ("acked", "peer", "retry_at", "sent", "tries", "until")

    def __init__(self, peer: Peer, until: float = inf) -> None:
        self.peer = peer
        self.acked = 0
        self.sent = 0
        """The position that it has if no message was lost."""
        self.retry_at = inf
        self.tries = 0
        self.until = until
        """A publisher trusts no list of this peer after that time."""


class Waiter:
    """A call that waits until all shadows have the log up to `position`, and if `listed` all publishers too."""

    __slots__ = ("deadline", "listed", "position", "then")

    def __init__(self, position: int, then: Callable[[], None], listed: bool = False, deadline: float = inf) -> None:
        self.position = position
        self.then = then
        self.listed = listed
        self.deadline = deadline
        """The time by which every publisher has acknowledged, has a later list, or trusts no list."""


class Gathering:
    """A takeover that collects the records of a place from its other owners."""

    __slots__ = ("awaited", "began_at", "owners", "wait_s")

    def __init__(self, owners: tuple[Peer, ...], now: float) -> None:
        self.owners = owners
        self.awaited: dict[int, Peer] = {peer.id: peer for peer in owners[1:]}
        self.began_at = now
        self.wait_s = 0.0


class Replica:
    """One place. The coordinator's fields are empty while another peer coordinates it."""

    __slots__ = (
        "book",
        "doubts",
        "ends_at",
        "epoch",
        "expires",
        "gathering",
        "gone_at",
        "key",
        "look_at",
        "looks",
        "owners",
        "place",
        "publishers",
        "retrying",
        "role",
        "shadows",
        "stash",
        "synced",
        "waiters",
    )  # fmt: skip

    def __init__(self, place: str, me: Id) -> None:
        self.place = place
        self.key = key_of_place(place)
        self.book = RecordLog()
        self.role = Role.HOLDER
        self.epoch = Epoch(0, me)
        self.owners: tuple[Peer, ...] = ()
        self.synced = 0
        """The position in the coordinator's log that this shadow has copied."""
        self.shadows: dict[int, Follower] = NOTHING
        self.publishers: dict[int, Follower] = NOTHING
        self.expires: dict[Key, float] = NOTHING
        self.gone_at: dict[Key, float] = NOTHING
        self.ends_at = inf
        """When the retained message expires."""
        self.waiters: dict[object, Waiter] = NOTHING
        self.gathering: Gathering | None = None
        self.stash: tuple[tuple[Peer, Control], ...] = ()
        self.look_at = inf
        """The time of the next look."""
        self.looks: tuple[float, ...] = ()
        """The times of planned timers; some may be obsolete."""
        self.doubts = 0
        """Looks in a row which found that another peer should have acted on the place, and has not."""
        self.retrying = False

    @property
    def coordinates(self) -> bool:
        return self.role is Role.COORDINATOR

    def take(self, record: Record, now: float, config: PubSubConfig) -> bool:
        """Merge a record; returns whether it was news."""
        key = record.key
        if not self.book.put(record, key):
            return False
        if record.gone:
            self.gone_at = self.gone_at or {}
            self.gone_at[key] = now
            self.expires.pop(key, None)
        else:
            self.gone_at.pop(key, None)
            # Shadows let nothing expire: a renewal changes no record, so only the coordinator hears of it.
            if self.coordinates and record.kind in (Kind.ENTRY, Kind.NOTE):
                self._lease(key, record.kind, now, config)
        if record.kind is Kind.RETAINED:
            self.ends_at = _end_of(record, now)
        if self.coordinates and record.kind is Kind.PUBLISHER and record.peer is not None:
            if record.gone:
                self.publishers.pop(record.peer.id, None)
            else:
                self._follow(record.peer, now, config)
        return True

    def _lease(self, key: Key, kind: Kind, now: float, config: PubSubConfig) -> None:
        self.expires = self.expires or {}
        self.expires[key] = now + lease_s(kind, config)

    def _follow(self, peer: Peer, now: float, config: PubSubConfig) -> None:
        self.publishers = self.publishers or {}
        self.publishers[peer.id] = Follower(peer, now + config.void_s)

    def wait(self, key: object, waiter: Waiter) -> None:
        """Add a waiter; it replaces a waiter with the same key."""
        self.waiters = self.waiters or {}
        self.waiters[key] = waiter

    def slim(self) -> None:
        """Release the memory of tables that are empty again."""
        self.book.slim()
        self.publishers = slimmed(self.publishers) or NOTHING
        self.expires = slimmed(self.expires) or NOTHING
        self.gone_at = slimmed(self.gone_at) or NOTHING
        self.waiters = slimmed(self.waiters) or NOTHING

    def become(self, records: Iterable[Record], position: int, now: float) -> list[Record]:
        """Become a copy of another log with these records; returns the records that are new here."""
        before = {record.key: record for record in self.book}
        merged = list(records)
        self.book.replace(merged, position)
        self.gone_at = {record.key: now for record in merged if record.gone} or NOTHING
        # Compared by identity: `Replication._become` keeps the object of a record that both logs have.
        news = [record for record in merged if before.get(record.key) is not record]
        for record in news:
            if record.kind is Kind.RETAINED:
                self.ends_at = _end_of(record, now)
        return news

    def told(self, records: Iterable[Record], now: float) -> tuple[Record, ...]:
        """Records of this place as they are sent: a message that expires has less time left than on its arrival."""
        if self.ends_at == inf:
            return tuple(records)
        return tuple([self._aged(record, now) if record.kind is Kind.RETAINED else record for record in records])

    def _aged(self, record: Record, now: float) -> Record:
        if record.gone:
            return record
        remaining_s = round(self.ends_at - now)
        # A copy must not outlive the message because this peer has not looked at the replica since it expired.
        return replace(record, body=aged(record.body, remaining_s)) if remaining_s > 0 else record.ended()

    @property
    def last_retained(self) -> Record | None:
        """The retained message or its tombstone, as stored."""
        return self.book.get((Kind.RETAINED, self.place, 0))

    def retained(self, now: float) -> Record | None:
        """The retained message or its tombstone, as it is sent to other peers."""
        record = self.last_retained
        return None if record is None else self.told((record,), now)[0]

    def begin(self, epoch: Epoch, now: float, config: PubSubConfig) -> None:
        """Become the coordinator. All leases start again, since records carry no remaining time."""
        self.role = Role.COORDINATOR
        self.epoch = epoch
        self.gathering = None
        for record in self.book:
            if record.gone:
                continue
            if record.kind is Kind.PUBLISHER and record.peer is not None:
                self._follow(record.peer, now, config)
            elif record.kind is not Kind.RETAINED:
                self._lease(record.key, record.kind, now, config)

    def end(self) -> None:
        """Stop being the coordinator. Peers that wait for an answer ask again, elsewhere."""
        self.role = Role.HOLDER
        # The log stays, as the next coordinator asks for it. At position 0 a shadow accepts a complete copy only.
        self.synced = 0
        self.shadows = self.publishers = self.expires = self.waiters = NOTHING
        self.gathering = None
        self.stash = ()

    def forget_gone(self, before: float) -> None:
        for key in [key for key, at in self.gone_at.items() if at < before]:
            del self.gone_at[key]
            self.book.forget(key)

    @property
    def settled(self) -> bool:
        """Whether it waits for no peer: it is the coordinator, or a copy of the coordinator's log."""
        if self.role is Role.HOLDER:
            return bool(self.synced and self.owners) and self.epoch.coordinator == self.owners[0].id
        return self.role is Role.COORDINATOR and not self.waiters

    def due_at(self, config: PubSubConfig) -> float:
        """When the next lease or message expires, or the next tombstone may be forgotten."""
        untils = [publisher.until for publisher in self.publishers.values()]
        tombs = [at + config.tomb_s for at in self.gone_at.values()]
        return min(chain((self.ends_at,), self.expires.values(), untils, tombs))

    def present(self) -> frozenset[tuple[object, ...]]:
        """All records that are not gone: equal at a coordinator and its shadows once the ring is quiet."""
        return frozenset((*record.key, record.number, record.body) for record in self.book if not record.gone)


def _end_of(record: Record, now: float) -> float:
    """When a message that has arrived now expires."""
    remaining_s = None if record.gone else remaining_of(record.body)
    return inf if remaining_s is None else now + remaining_s
