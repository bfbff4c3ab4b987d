"""A coordinator keeps its followers up to date: the shadows with copies of its log, the publishers with its entries.

A follower is sent the changes since the last message to it; if it is silent, the changes since its acknowledgement. A
SUBACK and other answers wait for all followers: for shadows until the ring reports them as gone, for publishers as
long as they can trust an older list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Append, AppendAck, Kind, Known, List, Record
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.interning import Sharing
from ringmq.peer.replication.replica import Follower, Replica, Role, Waiter
from ringmq.peer.replication.replicas import LASTING, ReplicaTable
from ringmq.peer.replication.tombstones import Tombstones

MOST_DOUBLINGS: Final = 6


class Replication:
    """One per engine."""

    __slots__ = ("_cleared", "_deposed", "_replicas", "_retained_ended", "_sharing", "_state")

    def __init__(
        self,
        state: MessagingContext,
        replicas: ReplicaTable,
        cleared: Tombstones,
        deposed: Callable[[Replica], None],
        retained_ended: Callable[[Replica, Record], None],
    ) -> None:
        """`deposed` is called when a replica has a coordinator with a higher epoch, `retained_ended` with the record
        that ended the retained message of a topic that this peer coordinates."""
        self._state = state
        self._replicas = replicas
        self._cleared = cleared
        self._sharing = Sharing()
        self._deposed = deposed
        self._retained_ended = retained_ended

    def take(self, replica: Replica, record: Record) -> bool:
        """Merge a record into the log of a place; returns whether it was news.

        A retained message that was cleared later is replaced by its tombstone.
        """
        record = self._sharing.of(self._cleared.overrule(record), replica.place)
        before = replica.last_retained if record.kind is Kind.RETAINED else None
        if not replica.take(record, self._state.clock.now, self._state.config):
            return False
        self._keep(replica, (record,))
        if replica.coordinates and record.gone and before is not None and not before.gone:
            self._retained_ended(replica, record)
        return True

    def merge(self, replica: Replica, record: Record) -> None:
        """Merge a record of another peer as the coordinator of a place, or its next one.

        After a split each half has dropped the entries of the other half, whose leases are valid there: they stay.
        """
        if replica.book.lapsed(record):
            if record.gone:
                return
            replica.book.forget(record.key)
        self.take(replica, record)

    def _keep(self, replica: Replica, news: Iterable[Record]) -> None:
        """Store new records on the disk if their kind belongs there, and look at the replica soon."""
        for record in news:
            if record.kind in LASTING:
                self._state.keep(replica.place, record)
            if record.kind is Kind.RETAINED:
                # Publishers get this clock with their lists, so that their next message is later than this record.
                self._state.observe(record.number[0])
                self._cleared.heard(record)
        self._replicas.look_soon(replica, self._state.config.look_s)

    def followed_by(self, replica: Replica, shadows: tuple[Peer, ...]) -> None:
        """Set the shadows; a peer that was a shadow before keeps its position."""
        known = replica.shadows
        replica.shadows = {}
        for peer in shadows:
            follower = known.get(peer.id)
            same = follower is not None and follower.peer.boot == peer.boot
            replica.shadows[peer.id] = follower if same and follower is not None else Follower(peer)
        self.spread(replica)

    def spread(self, replica: Replica) -> None:
        """Send each follower the changes that it was not sent yet, and call the waiters that are complete."""
        if not replica.coordinates:
            return
        position, listed = replica.book.position, replica.book.listed
        for shadow in replica.shadows.values():
            # Measured from the changes sent, not from those acknowledged: otherwise each change would repeat all
            # changes in flight.
            if shadow.sent < position:
                self._copy(replica, shadow, shadow.sent)
        for publisher in replica.publishers.values():
            if publisher.sent < listed:
                self._tell(replica, publisher, publisher.sent)
        self.settle(replica)

    def _copy(self, replica: Replica, shadow: Follower, since: int) -> None:
        book = replica.book
        records = replica.told(book.since(since), self._state.clock.now)
        message = Append(replica.place, replica.epoch, since, book.position, records)
        self._sent(replica, shadow)
        self._state.send(shadow.peer, message)

    def _tell(self, replica: Replica, publisher: Follower, since: int) -> None:
        self._sent(replica, publisher)
        self._state.send(publisher.peer, self.list_for(replica, since, None))

    def list_for(self, replica: Replica, since: int, asked_at: float | None) -> List:
        book = replica.book
        changes = [record for record in book.since(since) if record.kind is Kind.ENTRY]
        # A complete list replaces the entries of the publisher, so it needs no ends.
        entries = tuple([record for record in changes if since or not record.gone])
        return List(replica.place, replica.epoch, since, book.position, entries, asked_at, self._state.hybrid_clock)

    def _sent(self, replica: Replica, follower: Follower) -> None:
        follower.sent = replica.book.position
        self.expect(replica, follower)

    def expect(self, replica: Replica, follower: Follower) -> None:
        """Send the changes again if the follower does not answer."""
        config = self._state.config
        # `ask_s` grows with the measured times of answers: a busy follower only gets slower if it is sent everything
        # twice.
        retry_s = max(config.retry_s, self._state.ask_s)
        wait_s = min(config.slow_retry_s, retry_s * (1 << min(follower.tries, MOST_DOUBLINGS)))
        follower.retry_at = self._state.clock.now + wait_s
        if not replica.retrying:
            replica.retrying = True
            self._state.after(wait_s, lambda: self._retry(replica))

    def _retry(self, replica: Replica) -> None:
        """Repeat the changes to silent followers."""
        replica.retrying = False
        if not replica.coordinates:
            return
        now, next_at = self._state.clock.now, inf
        position, listed = replica.book.position, replica.book.listed
        for followers, wanted, tell in (
            (replica.shadows, position, self._copy),
            (replica.publishers, listed, self._tell),
        ):
            for follower in followers.values():
                if follower.acked < wanted:
                    if follower.retry_at <= now:
                        follower.tries += 1
                        tell(replica, follower, follower.acked)
                    next_at = min(next_at, follower.retry_at)
        self.settle(replica)
        if next_at < inf and not replica.retrying:
            replica.retrying = True
            self._state.after(max(0.0, next_at - now), lambda: self._retry(replica))

    def wait(self, replica: Replica, key: object, waiter: Waiter) -> None:
        """Add a waiter; it replaces a waiter with the same key."""
        replica.wait(key, waiter)
        self.settle(replica)
        if key in replica.waiters and waiter.deadline < inf:
            self._state.after(waiter.deadline - self._state.clock.now, lambda: self.settle(replica))

    def settle(self, replica: Replica) -> None:
        """Call the waiters whose followers have all acknowledged."""
        if not replica.waiters:
            return
        copied = self.copied_up_to(replica)
        known = min((publisher.acked for publisher in replica.publishers.values()), default=inf)
        now = self._state.clock.now
        # A waiter that is called may spread new records, which settles this replica again and removes or replaces other
        # waiters.
        for key, waiter in list(replica.waiters.items()):
            if waiter.position > copied or replica.waiters.get(key) is not waiter:
                continue
            if waiter.listed and waiter.position > known:
                if now < waiter.deadline:
                    continue
                self._state.counters.silent_publishers += 1
            del replica.waiters[key]
            waiter.then()

    def copied_up_to(self, replica: Replica) -> float:
        """The position that all shadows have acknowledged."""
        return min((shadow.acked for shadow in replica.shadows.values()), default=inf)

    def known(self, sender: Peer, message: Known) -> None:
        """A publisher uses a list."""
        replica = self._replicas.get(message.place)
        if replica is None or not replica.coordinates or replica.epoch != message.epoch:
            return
        publisher = replica.publishers.get(sender.id)
        # A publisher that restarted has lost its lists: an acknowledgement of its earlier boot says nothing about them.
        if publisher is not None and publisher.peer.boot == sender.boot:
            self._heard(publisher, message.position)
            self.settle(replica)

    def copied(self, sender: Peer, message: AppendAck) -> None:
        """A shadow acknowledges records, or has newer records or a higher epoch."""
        replica = self._replicas.get(message.place)
        if replica is None or not replica.coordinates or message.epoch < replica.epoch:
            return
        if message.epoch > replica.epoch:
            self._state.counters.superseded += 1
            replica.epoch = message.epoch
            self._deposed(replica)
            return
        shadow = replica.shadows.get(sender.id)
        if shadow is None:
            return
        for record in message.extra:
            self.merge(replica, record)
        # `acked` may fall here, unlike in `_heard`: a shadow that was inactive meanwhile starts again at position 0.
        if message.missing:
            shadow.acked = shadow.sent = message.position
        else:
            self._heard(shadow, message.position)
        self.spread(replica)

    def _heard(self, follower: Follower, position: int) -> None:
        follower.tries = 0
        follower.acked = max(follower.acked, position)

    def copy(self, sender: Peer, message: Append) -> None:
        """Copy the coordinator's log. Records that only this peer has go back with the answer."""
        replica = self._replicas.get(message.place)
        if replica is None:
            replica = self._replicas.open(message.place)
        if message.epoch < replica.epoch:
            # A deposed coordinator that has missed the change of the ring learns of its end from this answer.
            self._state.send(sender, AppendAck(message.place, replica.epoch, 0, False, ()))
            return
        if replica.role is not Role.HOLDER:
            replica.epoch = message.epoch
            self._deposed(replica)
        same = message.epoch == replica.epoch
        missing = False
        overruled = [self._cleared.overrule(record) for record in message.records]
        records = [self._sharing.of(record, message.place) for record in overruled]
        # A tombstone here can overrule a record of the coordinator, which stores the cleared message until it is sent
        # the tombstone.
        extra = [mine for mine, theirs in zip(records, message.records, strict=True) if mine.rank() > theirs.rank()]
        for record in records:
            if replica.book.lapsed(record):
                replica.book.forget(record.key)  # the coordinator alone decides which leases are valid
        if message.since == 0 and not (same and replica.synced):
            extra += self._become(replica, message.position, records)
        # Positions are comparable within one epoch only.
        elif not same or message.since > replica.synced:
            missing = True
        else:
            for record in records:
                self.take(replica, record)
            replica.synced = max(replica.synced, message.position)
        replica.epoch = message.epoch
        position = replica.synced if same or not missing else 0
        if missing and not same:
            replica.synced = 0
        told = replica.told(extra, self._state.clock.now)
        # A SUBACK or PUBACK may depend on this answer, so it waits for the commit of the records.
        self._state.promise(sender, AppendAck(message.place, message.epoch, position, missing, told))

    def _become(self, replica: Replica, position: int, records: list[Record]) -> list[Record]:
        """Replace the log by the coordinator's; returns the records that the coordinator lacks."""
        merged = {record.key: record for record in records}
        extra = []
        for record in replica.book:
            known = merged.get(record.key)
            if known is None and record.gone:
                continue
            if known is None or known.rank() < record.rank():
                extra.append(record)
            # The own object stays if both are equal: the other one would count as new, and be written to the disk
            # again.
            if known is None or known.rank() <= record.rank():
                merged[record.key] = record
        self._keep(replica, replica.become(merged.values(), position, self._state.clock.now))
        replica.synced = position
        return extra
