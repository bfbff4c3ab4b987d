"""Retained messages on their way from this publisher to the coordinators of their topics.

A subscriber that is granted while a message is under way would get it neither live nor retained. So a change of routes
is not confirmed before the messages that were published by the older routes are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from itertools import islice
from typing import Final

from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Elsewhere, Retain, Retained, Row
from ringmq.peer.engines.partitioned.names import NameHash, prefixes_of
from ringmq.peer.engines.partitioned.publishing.holdings import Coordinators
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.pending import Countdown, PendingPublication
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.retained_cache import stamp_of
from ringmq.peer.replication.followers import ItemStreams
from ringmq.peer.replication.record import Number, RecordKind
from ringmq.peer.replication.space import partitions_in

_NO_HOME: Final = -1
MOST_LOOKED_AT: Final = 1000
"""Messages in one look for silent coordinators; the oldest are the first."""

StoreKey = tuple[str, Number]


class RetainStore:
    """A retained message that is not at its coordinator yet."""

    __slots__ = ("coordinator", "needed", "outgoing", "row", "sent_at", "then")

    def __init__(self, row: Row, outgoing: PendingPublication, names: NameHash) -> None:
        self.row = row
        self.outgoing = outgoing
        self.needed = {names.partition_of(prefix) for prefix in prefixes_of(row.name)}
        """The partitions that the message was published by."""
        self.coordinator: Peer | None = None
        """Where it was sent. The stream repeats it."""
        self.sent_at = 0.0
        self.then: list[Callable[[], None]] = []


class RetainStores:
    """One per publisher."""

    __slots__ = (
        "_by_partition",
        "_checking",
        "_directory",
        "_doubting",
        "_keep",
        "_names",
        "_state",
        "_stores",
        "_streams",
        "_wait_s",
        "unsettled",
    )

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemStreams,
        directory: Coordinators,
        keep: Callable[[Publication], None],
    ) -> None:
        """`keep` is called when a message gets another stamp, and when it is stored."""
        self._state = state
        self._streams = streams
        self._directory = directory
        self._keep = keep
        self._names = NameHash(state.config.hash_seed)
        self._stores: dict[StoreKey, RetainStore] = {}
        self._by_partition: dict[int, dict[StoreKey, RetainStore]] = {}
        self._checking = False
        self._doubting = False
        self._wait_s = 0.0
        self.unsettled: dict[int, Publication] = {}
        """Retained messages that are not at their coordinator yet; a subscriber here finds them nowhere else."""

    def __len__(self) -> int:
        return len(self._stores)

    def begin(self, outgoing: PendingPublication) -> None:
        """Send a message to the coordinator of its topic, until it is acknowledged."""
        publication = outgoing.publication
        if publication.stamp < self._state.hybrid_clock and self._state.clock_us() < self._state.hybrid_clock:
            # The clock of the ring is ahead, and came with the routes that the message has waited for. By that clock it
            # may be older than the message that it is to replace.
            publication.stamp = self._state.stamp()
            self._keep(publication)
        number = stamp_of(publication.stamp, self._state.me.id)
        topic = publication.topic
        row = Row(
            self._names.partition_of(topic), RecordKind.RETAINED, topic, _NO_HOME, number, publication.clears,
            publication.qos > 0, body=publication.body,
        )  # fmt: skip
        outgoing.expect(1)
        store = self._stores[topic, number] = RetainStore(row, outgoing, self._names)
        for partition in store.needed:
            self._by_partition.setdefault(partition, {})[topic, number] = store
        self._send(store)
        if not self._checking:
            self._checking = True
            self._wait_s = self._state.config.retry_s
            self._state.after(self._wait_s, self._check)
        if not self._doubting:
            self._doubting = True
            self._state.after(self._state.config.doubt_s, self._doubt)

    def _doubt(self) -> None:
        """Messages that are not stored yet: their coordinators may be silent."""
        self._doubting = bool(self._stores)
        if not self._doubting:
            return
        before = self._state.clock.now - self._state.config.doubt_s / 2
        silent: dict[Peer, list[int]] = {}
        for store in islice(self._stores.values(), MOST_LOOKED_AT):
            if store.coordinator is not None and store.sent_at <= before:
                silent.setdefault(store.coordinator, []).append(store.row.partition)
        for partitions in silent.values():
            # Its two neighbours divide what it coordinates.
            self._directory.doubt(min(partitions))
            self._directory.doubt(max(partitions))
        self._state.after(self._state.config.doubt_s, self._doubt)

    def _send(self, store: RetainStore) -> None:
        """Send it where the directory says, unless it is there already."""
        coordinator = self._directory.coordinator(store.row.partition)
        # Otherwise the directory asks, and `coordinators_changed` is called.
        if coordinator is not None and coordinator != store.coordinator:
            store.coordinator = coordinator
            store.sent_at = self._state.clock.now
            self._streams.send(coordinator, Retain(store.row))

    def _check(self) -> None:
        """Give up messages that are too old, and look for the coordinators of the others: beyond the leaf set, nobody
        reports their deaths."""
        since = self._state.clock.now - self._state.config.give_up_s
        for store in list(self._stores.values()):
            if store.outgoing.at < since:
                self._state.counters.not_stored += 1
                store.outgoing.fail()
                self._end(store)
            else:
                self._directory.verify(store.row.partition)
                if store.sent_at + self._state.config.lease_s <= self._state.clock.now:
                    # `Streams.close` may have ended the stream, when the peer was thought dead.
                    store.coordinator = None
                self._send(store)
        self._checking = bool(self._stores)
        if self._checking:
            self._wait_s = min(2 * self._wait_s, self._state.config.slow_retry_s)
            self._state.after(self._wait_s, self._check)

    def retained(self, message: Retained) -> None:
        self._state.observe(message.clock)
        store = self._stores.get((message.topic, message.number))
        if store is not None:
            if message.refused:
                self._state.counters.not_retained += 1
                store.outgoing.refused = True
            self._end(store)

    def _end(self, store: RetainStore) -> None:
        key = store.row.name, store.row.number
        del self._stores[key]
        for partition in store.needed:
            stores = self._by_partition[partition]
            del stores[key]
            if not stores:
                del self._by_partition[partition]
        publication = self.unsettled.pop(store.outgoing.publication.seq, None)
        if publication is not None:
            self._keep(publication)
        # Also after giving up: a coordinator must not wait for a message that nobody stores any more.
        for then in store.then:
            then()
        store.outgoing.got()

    def hold_back(self, changed: Container[int]) -> None:
        """The present message changes routes of these partitions: confirm it after the stores that were published by
        the routes before."""
        # Stores that begin later were published by the routes of this message already.
        waiting = {
            key: store
            for partition, stores in self._by_partition.items()
            if partition in changed
            for key, store in stores.items()
        }
        if waiting:
            release = self._streams.hold_back()
            countdown = Countdown(len(waiting), lambda _: release())
            for store in waiting.values():
                store.then.append(countdown.down)

    def elsewhere(self, sender: Peer, message: Elsewhere) -> None:
        """A peer does not coordinate these partitions. The same peer is asked again by the next check only."""
        partitions = set(partitions_in(message.runs))
        for store in self._stores.values():
            if store.coordinator == sender and store.row.partition in partitions:
                if self._directory.coordinator(store.row.partition) != sender:
                    self._send(store)
                else:
                    store.coordinator = None

    def stream_lost(self, peer: Peer) -> None:
        """Requests to a peer may be missing there."""
        for store in self._stores.values():
            if store.coordinator == peer:
                store.coordinator = None
                self._send(store)

    def coordinators_changed(self) -> None:
        for store in self._stores.values():
            self._send(store)

    def sweep(self) -> None:
        self._stores = slimmed(self._stores)
        self._by_partition = slimmed(self._by_partition)
        self.unsettled = slimmed(self.unsettled)
