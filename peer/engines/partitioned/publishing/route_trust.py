"""Until when routes may be trusted, by partition: the leases that this peer has from coordinators.

A lease is `lease_s` from the time at which it was asked for, on this peer's own clock. So a publisher that was paused,
or cut off from a coordinator, finds its leases run out before it publishes by routes that may be old, and asks first.
That is the bound on staleness: a coordinator that waited `void_s` for a publisher knows that it has routes from after
that, or none. Knows neither routes nor messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from ringmq.peer.replication.space import PARTITIONS


class RouteLease:
    """Partitions that are trusted until the same time."""

    __slots__ = ("counted", "partitions", "until")

    def __init__(self, until: float = -inf) -> None:
        self.until = until
        self.counted = False
        """Whether its partitions are flagged as trusted."""
        self.partitions: set[int] = set()


class RouteTrust:
    """One per publisher."""

    __slots__ = ("_lease_of", "_leases", "_trusted_count", "gained", "lost", "trusted", "until")

    def __init__(self) -> None:
        self.trusted = bytearray(PARTITIONS)
        """A flag for each partition; true until `until` at least."""
        self.until = inf
        """The end of the earliest lease of a flagged partition, or earlier: one comparison for all of them."""
        self.gained = False
        """Whether a partition was flagged since somebody cleared this."""
        self.lost = False
        """Whether a flag was taken away since somebody cleared this."""
        self._lease_of: list[RouteLease | None] = [None] * PARTITIONS
        self._leases: set[RouteLease] = set()
        self._trusted_count = 0

    def __len__(self) -> int:
        """The number of flagged partitions."""
        return self._trusted_count

    @property
    def is_complete(self) -> bool:
        """Whether all partitions are flagged."""
        return self._trusted_count == PARTITIONS

    def count(self, now: float) -> int:
        """The number of partitions that can be trusted now."""
        return sum(len(lease.partitions) for lease in self._leases if lease.until > now)

    def lease_of(self, partition: int) -> RouteLease | None:
        return self._lease_of[partition]

    def assign(self, partition: int, lease: RouteLease | None) -> None:
        """The trust in a partition depends on this lease from now on; None: on nothing."""
        before = self._lease_of[partition]
        if before is lease:
            return
        if before is not None:
            before.partitions.discard(partition)
            if not before.partitions:
                self._leases.discard(before)
        self._lease_of[partition] = lease
        if lease is not None:
            lease.partitions.add(partition)
            self._leases.add(lease)
        self._flag(partition, lease is not None and lease.counted)
        if lease is not None and lease.counted:
            # It is only lowered between reviews: to find the lowest again costs a look at every lease.
            self.until = min(self.until, lease.until)

    def _flag(self, partition: int, trusted: bool) -> None:
        if self.trusted[partition] == trusted:
            return
        self.trusted[partition] = trusted
        if trusted:
            self._trusted_count += 1
            self.gained = True
        else:
            self._trusted_count -= 1
            self.lost = True

    def freeze(self, partitions: Iterable[int], lease: RouteLease) -> RouteLease:
        """Trust these partitions until the lease ends that they have, however much it is extended for others."""
        # The lease itself goes on, for the other partitions of a coordinator that has given up these.
        frozen = RouteLease(lease.until)
        frozen.counted = lease.counted
        for partition in partitions:
            if self._lease_of[partition] is lease:
                self.assign(partition, frozen)
        return frozen

    def extend(self, lease: RouteLease, until: float, now: float) -> None:
        """A lease was renewed."""
        lease.until = max(lease.until, until)
        if lease.until > now and not lease.counted:
            lease.counted = True
            for partition in lease.partitions:
                self._flag(partition, True)
            if lease.partitions:
                self.until = min(self.until, lease.until)

    def review(self, now: float) -> None:
        """Find the leases that have run out. Call it when `until` has come."""
        self.until = inf
        for lease in self._leases:
            if lease.until > now:
                self.until = min(self.until, lease.until)
            elif lease.counted:
                # One coordinator may own a thousand partitions, so they are visited once, not by each review.
                lease.counted = False
                for partition in lease.partitions:
                    self._flag(partition, False)
