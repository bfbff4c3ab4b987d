"""The homes at a coordinator: how long each may be silent, and a digest of its entries in each partition.

A home has one lease for all its entries here. It renews it with the digest of what it believes to have, so a renewal
takes the same few bytes however many entries there are. Entries of a home that is away are counted and have no part in
its digest: a home that is back finds a difference, and registers again what it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.lasting import is_away
from ringmq.peer.engines.partitioned.names import fingerprint_of
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.replication.record import SharedRecord, digest_of
from ringmq.peer.replication.space import Runs

NOTHING: Final = (0, 0)
MOST_BUSY: Final = 4
"""Leases for which a home may send other messages and no renewal."""


class Home:
    """A peer with entries in partitions that are coordinated here."""

    __slots__ = ("away", "digests", "peer", "until")

    def __init__(self, peer: Peer, until: float) -> None:
        self.peer = peer
        self.until = until
        self.away = False
        """Whether its lease has run out, and it has lasting entries alone."""
        self.digests: dict[int, tuple[int, int]] = {}
        """The number of its entries in each partition, and the digest of those that are live."""


class HomeLeases:
    """One per engine."""

    __slots__ = ("_homes",)

    def __init__(self) -> None:
        self._homes: dict[Id, Home] = {}

    def __iter__(self) -> Iterator[Home]:
        return iter(list(self._homes.values()))

    def get(self, peer_id: Id) -> Home | None:
        return self._homes.get(peer_id)

    def heard(self, peer: Peer, until: float) -> bool:
        """The home lives. Returns whether it has restarted: entries of its earlier boot are obsolete then."""
        home = self._homes.get(peer.id)
        if home is None:
            self._homes[peer.id] = Home(peer, until)
            return False
        home.until, home.away = max(home.until, until), False
        restarted = home.peer.boot < peer.boot
        if restarted:
            home.peer = peer
        return restarted

    def added(self, partition: int, record: SharedRecord, until: float) -> None:
        """An entry that is live, or whose home is away, is in a partition that is coordinated here."""
        assert record.home is not None, "entries have homes"
        home = self._homes.get(record.home.id)
        if home is None:
            home = self._homes[record.home.id] = Home(record.home, until)
        elif home.away and not record.gone:
            # Another half of the ring, or a disk, knows it as live.
            home.until, home.away = until, False
        count, digest = home.digests.get(partition, NOTHING)
        home.digests[partition] = count + 1, digest ^ _digest(record)

    def removed(self, partition: int, record: SharedRecord) -> None:
        """An entry as it was before is not there any more."""
        assert record.home is not None, "entries have homes"
        home = self._homes.get(record.home.id)
        if home is None or partition not in home.digests:
            return
        count, digest = home.digests[partition]
        if count > 1:
            home.digests[partition] = count - 1, digest ^ _digest(record)
        else:
            del home.digests[partition]

    def left(self, partitions: set[int]) -> None:
        """These partitions are coordinated elsewhere now."""
        for home in self:
            for partition in partitions.intersection(home.digests):
                del home.digests[partition]
            if not home.digests:
                del self._homes[home.peer.id]

    def expired(self, now: float, entry_s: float, heard_at: Callable[[Peer], float]) -> Iterator[Home]:
        """Homes that were silent for the length of their lease. The renewals of one that sends other messages may wait
        behind these, if it is too busy; but they do not wait for ever, and entries that it has forgotten must end."""
        for home in self:
            if home.until <= now and not home.away:
                lives = now < home.until + MOST_BUSY * entry_s and heard_at(home.peer) > now - entry_s
                if not lives:
                    yield home

    def lapsed(self, home: Home) -> None:
        """The entries of a home have lapsed: it is away, if some of them stay."""
        if home.digests:
            home.away = True
        else:
            self._homes.pop(home.peer.id, None)

    def within(self, home: Home, runs: Runs) -> dict[int, tuple[int, int]]:
        """The digests of a home in these partitions."""
        found = {}
        for first, last in runs:
            if last - first >= len(home.digests):
                found.update({p: digest for p, digest in home.digests.items() if first <= p <= last})
            else:
                for partition in range(first, last + 1):
                    if partition in home.digests:
                        found[partition] = home.digests[partition]
        return found


def _digest(record: SharedRecord) -> int:
    return 0 if is_away(record) else digest_of(fingerprint_of(inner_of(record.name)), record.number)
