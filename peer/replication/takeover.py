"""Changes of the coordinator of a place as the ring changes: taking over, stepping down, handing over.

The peer nearest to the key collects the records of the other owners before it answers any request, so it knows every
acknowledged subscription and every publisher that may trust a list. A peer that was asked obeys no lower epoch any
more: an old coordinator that has not noticed can grant nothing new, because a grant needs all its shadows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from ringmq.overlay.core.ids import nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import (
    Control,
    Epoch,
    HandoffAck,
    Kind,
    Record,
    StateReply,
    StateRequest,
    TakeOver,
)
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.replica import Gathering, Replica, Role, Waiter
from ringmq.peer.replication.replicas import ReplicaTable
from ringmq.peer.replication.replicator import Replication
from ringmq.peer.replication.tombstones import Tombstones

MOST_DOUBLINGS: Final = 6


class Takeover:
    """One per engine."""

    __slots__ = ("_answer", "_cleared", "_state", "_took_over", "replicas", "replication")

    def __init__(
        self,
        state: MessagingContext,
        cleared: Tombstones,
        answer: Callable[[Peer, Control], None],
        took_over: Callable[[Replica], None],
        retained_ended: Callable[[Replica, Record], None],
    ) -> None:
        """`answer` is called with each request that waited for a coordinator, `took_over` when this peer has become
        the coordinator of a place, `retained_ended` as `Replication` explains."""
        self._state = state
        self._cleared = cleared
        self._answer = answer
        self._took_over = took_over
        self.replicas = ReplicaTable(state, self.review, self._look)
        self.replication = Replication(state, self.replicas, cleared, self._deposed, retained_ended)

    def review(self, replica: Replica) -> None:
        """Find the right coordinator of a place, and act on the result."""
        if self.replicas.first(replica):
            if replica.coordinates:
                self.replication.followed_by(replica, self.replicas.shadows(replica))
            # A reminder must not restart the same takeover, which would forget the answers that have arrived.
            elif replica.gathering is None or replica.gathering.owners != replica.owners:
                self._gather(replica)
            return
        if replica.role is not Role.HOLDER:
            replica.end()
        # After the first look `_quiet_s` plans the next ones, at growing intervals.
        if not replica.doubts:
            self.replicas.look_soon(replica, self._state.config.look_s)
        self._hand_over(replica)

    def _deposed(self, replica: Replica) -> None:
        replica.end()
        self.review(replica)

    def _look(self, replica: Replica) -> None:
        """Drop expired leases and useless places, and remind silent peers."""
        state = self._state
        if replica.coordinates:
            self._expire(replica)
        replica.forget_gone(state.clock.now - state.config.tomb_s)
        if not len(replica.book) and not replica.waiters and replica.role is not Role.GATHERING:
            self.replicas.close(replica)
            return
        self.replicas.look_soon(replica, self._quiet_s(replica))
        if replica.role is Role.HOLDER and not self._at_rest(replica):
            self.review(replica)
        else:
            replica.slim()

    def _quiet_s(self, replica: Replica) -> float:
        """Seconds until the next look. Changes of the ring and requests come without a look."""
        config = self._state.config
        if len(replica.book) and replica.role is Role.HOLDER and not self._at_rest(replica):
            replica.doubts += 1
            return min(config.idle_look_s, config.look_s * (1 << min(replica.doubts, MOST_DOUBLINGS) - 1))
        replica.doubts = 0
        if not len(replica.book) or not replica.settled:
            return config.look_s
        due_s = replica.due_at(config) - self._state.clock.now
        # A planned look keeps a closed replica in memory, so it must not be far ahead.
        return due_s if due_s == inf else min(config.idle_look_s, max(config.look_s, due_s))

    def _at_rest(self, replica: Replica) -> bool:
        """Whether it has a coordinator, and this peer is the coordinator or one of its shadows."""
        return replica.settled and self.replicas.belongs(replica)

    def _expire(self, replica: Replica) -> None:
        """Drop entries that were not renewed, and publishers that cannot trust a list any more."""
        state, now, book = self._state, self._state.clock.now, replica.book
        changed = False
        for key in [key for key, until in replica.expires.items() if until <= now]:
            record = book.get(key)
            del replica.expires[key]
            if record is not None:
                state.counters.expired += record.kind is Kind.ENTRY
                changed |= self.replication.take(replica, record.ended())
        for peer_id, publisher in list(replica.publishers.items()):
            if publisher.until <= now:
                record = book.get((Kind.PUBLISHER, "", peer_id))
                del replica.publishers[peer_id]
                changed |= record is not None and self.replication.take(replica, record.ended())
        retained = replica.last_retained
        if replica.ends_at <= now and retained is not None:
            changed |= self.replication.take(replica, retained.ended())
        if changed:
            self.replication.spread(replica)

    def _gather(self, replica: Replica) -> None:
        """Ask all owners for their records; ask again when the owners have changed."""
        replica.role = Role.GATHERING
        replica.gathering = gathering = Gathering(replica.owners, self._state.clock.now)
        self._ask(replica, gathering)

    def _ask(self, replica: Replica, gathering: Gathering) -> None:
        """Wait for shadows while the ring lists them; for the other owners, which rarely know more, a bounded time."""
        if replica.gathering is not gathering or self.replicas.get(replica.place) is not replica:
            return
        state, config = self._state, self._state.config
        if gathering.began_at + config.slow_retry_s <= state.clock.now:
            shadows = {peer.id for peer in self.replicas.shadows(replica)}
            gathering.awaited = {peer_id: peer for peer_id, peer in gathering.awaited.items() if peer_id in shadows}
        for peer in gathering.awaited.values():
            state.send(peer, StateRequest(replica.place))
        if gathering.awaited:
            gathering.wait_s = min(config.slow_retry_s, 2 * gathering.wait_s or state.ask_s)
            state.after(gathering.wait_s, partial(self._ask, replica, gathering))
        self._go_on(replica)

    def gathered(self, sender: Peer, message: StateRequest) -> None:
        """Another peer must coordinate a place: send it all records of the place, and step down."""
        replica = self.replicas.get(message.place)
        if replica is None:
            cleared = self._cleared.of(message.place)
            self._state.send(sender, StateReply(message.place, 0, () if cleared is None else (cleared,), False))
            return
        if replica.coordinates and nearness(replica.key, self._state.me.id) < nearness(replica.key, sender.id):
            return  # Its leaf set is not up to date; it will be.
        if replica.role is not Role.HOLDER:
            replica.end()
        # From now on the old coordinator lacks the acknowledgements of this shadow, and can grant nothing that the next
        # one misses.
        replica.epoch = Epoch(replica.epoch.number + 1, sender.id)
        replica.synced = 0
        self.replicas.look_soon(replica, self._state.config.look_s)
        self._state.send(sender, StateReply(message.place, replica.epoch.number, self._all_of(replica), False))

    def _all_of(self, replica: Replica) -> tuple[Record, ...]:
        """All records and tombstones of a place."""
        records = replica.told(replica.book, self._state.clock.now)
        cleared = self._cleared.of(replica.place)
        return records if cleared is None or cleared.key in replica.book else (*records, cleared)

    def told(self, sender: Peer, message: StateReply) -> None:
        """Records of another peer, which was asked for them or leaves the place."""
        replica = self.replicas.get(message.place)
        # The sender will forget the place: it may be the last peer with these records.
        if replica is None and message.leaving:
            replica = self.replicas.open(message.place)
        if replica is None or not self.replicas.first(replica):
            return
        for record in message.records:
            if replica.book.get(record.key) != record:  # most know the same
                self.replication.merge(replica, record)
        # The next epoch must be above the epoch of every peer that was asked, or that peer would refuse it.
        if message.number > replica.epoch.number:
            replica.epoch = Epoch(message.number, replica.epoch.coordinator)
        if replica.coordinates:
            self.replication.spread(replica)
            if message.leaving and sender.id not in replica.shadows:
                # A peer listed as a shadow here must remain one until both see the same ring.
                then = Waiter(replica.book.position, lambda: self._state.promise(sender, HandoffAck(message.place)))
                self.replication.wait(replica, ("taken", sender.id), then)
            return
        gathering = replica.gathering
        if gathering is not None:
            if gathering.awaited.pop(sender.id, None) is not None:
                self._state.answered(self._state.clock.now - gathering.began_at)
            self._go_on(replica)
        else:
            self.review(replica)

    def _go_on(self, replica: Replica) -> None:
        """Begin an epoch when all awaited peers have answered or are gone."""
        if replica.gathering is None or replica.gathering.awaited:
            return
        state = self._state
        state.counters.reigns += 1
        stash, replica.stash = replica.stash, ()
        epoch = Epoch(replica.epoch.number + 1, state.me.id)
        replica.begin(epoch, state.clock.now, state.config)
        self.replication.followed_by(replica, self.replicas.shadows(replica))
        self.replicas.look_soon(replica, state.config.look_s)
        self._took_over(replica)
        for sender, message in stash:
            self._answer(sender, message)

    def _hand_over(self, replica: Replica) -> None:
        """Remind the right coordinator of a place; send it everything if this peer is no owner any more."""
        if not replica.owners or not len(replica.book):
            return
        first = replica.owners[0]
        if first.id == self._state.me.id:
            return
        if not self.replicas.belongs(replica):
            self._state.send(first, StateReply(replica.place, replica.epoch.number, self._all_of(replica), True))
        elif replica.epoch.coordinator != first.id or not replica.synced:
            self._state.send(first, TakeOver(replica.place))

    def nudged(self, sender: Peer, message: TakeOver) -> None:
        replica = self.replicas.get(message.place)
        if replica is None:
            replica = self.replicas.open(message.place)
        if not replica.coordinates:
            self.review(replica)
        elif sender.id in replica.shadows and not replica.shadows[sender.id].sent:
            self.replication.spread(replica)

    def taken(self, sender: Peer, message: HandoffAck) -> None:
        replica = self.replicas.get(message.place)
        if replica is not None and replica.role is Role.HOLDER and not self.replicas.belongs(replica):
            self._state.counters.handed_over += 1
            self.replicas.close(replica)
