"""The roles of one peer, put together: calls of its clients and of the ring in, calls to both out.

Plain calls; no socket, task, clock or random number in here or below. The clock is read only; its owner sets it before
each call. Call `tick` when `deadline` has come.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter

from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.iteration import Clock
from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timers import TimerQueue
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.coordinated.coordinator import Coordinator
from ringmq.peer.engines.coordinated.messages import (
    Append,
    AppendAck,
    Control,
    Drop,
    Elsewhere,
    Fetch,
    Fetched,
    HandoffAck,
    Held,
    Kind,
    Known,
    List,
    Note,
    Noted,
    Number,
    Record,
    Renewed,
    Retain,
    Retained,
    StateReply,
    StateRequest,
    Sub,
    SubAck,
    SubReq,
    TakeOver,
)
from ringmq.peer.engines.coordinated.publisher import Publisher
from ringmq.peer.engines.coordinated.subscriber import RENEWALS as ENTRY_RENEWALS
from ringmq.peer.engines.coordinated.subscriber import Subscriber
from ringmq.peer.engines.coordinated.subscriber_lists import RENEWALS as LIST_RENEWALS
from ringmq.peer.engines.coordinated.subscriber_lists import SubscriberLists
from ringmq.peer.engines.coordinated.tree_relay import TreeRelay
from ringmq.peer.messaging.config import DIRECT, PubSubConfig
from ringmq.peer.messaging.context import NO_DISK, Counters, Disk, LocalClients, MessagingContext, Overlay
from ringmq.peer.messaging.pending import addressed
from ringmq.peer.messaging.publication import MANY, Publication, Trace, decode, decode_plain, taken_apart
from ringmq.peer.messaging.receive_window import ReceiveWindows
from ringmq.peer.messaging.retained_cache import RetainedCache
from ringmq.peer.messaging.send_window import SendWindows
from ringmq.peer.messaging.tracing import Tracing
from ringmq.peer.replication.replicas import ReplicaTable
from ringmq.peer.replication.replicator import Replication
from ringmq.peer.replication.takeover import Takeover
from ringmq.peer.replication.tombstones import Tombstones

SWEEP_S = 10.0
MOST_AT_ONCE = 1000
"""Actions in one turn, some 30 us each. A peer with 100,000 places may have as many to look at when another dies, and
would be taken for dead itself if nobody heard of it meanwhile."""
FIRST_STAMP = 0
"""Of a retained message from before any ring: lower than all others."""


class CoordinatedEngine:
    """One per peer."""

    def __init__(
        self,
        overlay: Overlay,
        clients: LocalClients,
        config: PubSubConfig,
        disk: Disk = NO_DISK,
        clock: Clock | None = None,
        owing: Callable[[], None] | None = None,
    ) -> None:
        """`owing` is called when peers begin to be owed something: then `acknowledge` is to be called once the clients'
        messages are safe, and the disk has what it was told. Without it the core acknowledges by itself.
        """
        self._state = state = MessagingContext(overlay, clients, config, disk, clock, owing)
        self.replicas = ReplicaTable(state)
        self.cleared = Tombstones(state)
        self._replication = Replication(state, self.replicas, self.cleared)
        self._takeover = Takeover(state, self.replicas, self._replication, self.cleared)
        self._coordinator = Coordinator(state, self.replicas, self._replication, self._takeover)
        self._retained_cache = RetainedCache(state)
        self.subscriber = Subscriber(state, self._retained_cache)
        self.subscriber_lists = SubscriberLists(state)
        self.send_windows = SendWindows(state)
        self._receive_windows = ReceiveWindows(state, self._give)
        self._receive_windows.repeated = self._end_repeated
        self._tree_relay = TreeRelay(state)
        self.publisher = Publisher(state, self.subscriber_lists, self.send_windows, self._tree_relay)
        self._handlers = self._handlers_of_roles()
        self._takeover.answer = self._handle
        self.subscriber.in_force_soon = self._keep_unsettled
        self.publisher.settled = self._keep_settled
        self._receive_windows.serves = self.publisher.serves = self.subscriber.has
        self.acknowledges_later = owing is not None
        """Whether `acknowledge` is called by the shell. With a disk it must be."""
        self._inside = False
        self._started = False

    @property
    def config(self) -> PubSubConfig:
        return self._state.config

    @property
    def counters(self) -> Counters:
        return self._state.counters

    @property
    def waiting_bytes(self) -> int:
        """Of all messages here that wait for a list, for room or for an acknowledgement."""
        return self._state.waiting_bytes

    @property
    def clock(self) -> Clock:
        return self._state.clock

    @property
    def timers(self) -> TimerQueue:
        return self._state.timers

    @property
    def clients(self) -> LocalClients:
        return self._state.clients

    @clients.setter
    def clients(self, clients: LocalClients) -> None:
        """Before anything happens."""
        self._state.clients = clients

    @property
    def tracing(self) -> Tracing:
        return self._state.tracing

    # Calls of the clients

    def publish(
        self,
        topic: str,
        body: bytes,
        qos: int,
        matched: bool = False,
        retain: bool = False,
        clears: bool = False,
        done: Done | None = None,
        trace: Trace | None = None,
    ) -> int:
        """Send a message to whoever subscribes elsewhere, and to one member of each shared filter anywhere.

        `matched` says whether somebody here has it already. `done` is called once: when all hold it, with QoS 1 and 2;
        when it is sent, with QoS 0. With a `trace`, which says when it came and how many have it here, it is recorded
        wherever it comes. Returns its sequence number.
        """
        state = self._state
        state.counters.published += 1
        state.seq += 1
        me = state.me
        stamp = self.publisher.stamp() if retain else 0
        one = Publication(me.boot, state.seq, qos, topic, body, retain, stamp, clears=clears, trace=trace)
        state.tracing.begins(me, one)
        if retain and self.subscriber.wants(topic):
            self._retained_cache.live(me.id, one)
        self._do(lambda: self.publisher.publish(one, matched, done))
        return one.seq

    def publish_plain(self, topic: str, body: bytes) -> bool:
        """The same, of a message with QoS 0 that is not retained, if it is known to whom it goes. False: it is not."""
        if self._inside or not self.publisher.publish_plain(topic, body):
            return False
        self._state.counters.published += 1
        return True

    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None:
        """The clients here want a filter. After `done`, all that is published anywhere arrives, and what is retained is
        here."""
        self._do(lambda: self.subscriber.add(topic_filter, done))

    def unsubscribe(self, topic_filter: str) -> None:
        self._do(lambda: self.subscriber.remove(topic_filter))

    # Calls of the ring

    def receive(self, sender: Peer, payload: bytes) -> None:
        """From another peer, directly or routed."""
        plain = decode_plain(payload)
        if plain is not None and not self._inside and self._take_plain(sender, *plain):
            return
        if payload[:1] == MANY:
            self._do(lambda: self._receive_all(sender, payload))
        else:
            self._receive_one(sender, payload)

    def _receive_all(self, sender: Peer, payload: bytes) -> None:
        try:
            for part in taken_apart(payload):
                self._receive_one(sender, part)
        except ProtocolError:
            self._state.counters.unreadable += 1

    def _receive_one(self, sender: Peer, payload: bytes) -> None:
        try:
            message = decode(payload)
        except ProtocolError:
            self._state.counters.unreadable += 1
            return
        if isinstance(message, Publication):
            self._state.counters.came += 1
            self._state.tracing.comes(sender, message)
            origin = sender if message.relay is None else self._tree_relay.pass_on(message)
            self._do(lambda: self._receive_windows.take(origin, message))
        elif self._inside:
            self._state.local.append((sender, message))
        else:
            self._do(lambda: self._handle(sender, message))

    def _take_plain(self, sender: Peer, boot: int, seq: int, topic: bytes, body: bytes) -> bool:
        """False: it is not for the quick way."""
        counters = self._state.counters
        if self._receive_windows.has_given(sender, topic, boot, seq):
            counters.came += 1
            counters.duplicates += 1
            return True
        wanted = self._state.clients.deliver_plain(topic, body)
        if wanted is None:
            return False
        counters.came += 1
        self._receive_windows.gave(sender, topic, boot, seq)
        if wanted:
            counters.received += 1
        else:
            counters.unwanted += 1
        return True

    def unsent(self, payload: bytes) -> None:
        """It could not even be sent. All but messages in trees is sent again in time, or was for that peer alone."""
        with contextlib.suppress(ProtocolError):
            message = None if decode_plain(payload) is not None else decode(payload)
            if isinstance(message, Publication) and message.relay is not None:
                self._do(partial(self._tree_relay.go_around, message, message.relay))

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self._do(lambda: self.replicas.owners_changed(key, owners))

    def activity_changed(self, active: bool) -> None:
        """This peer may have missed anything while it did not serve: what it coordinated it gathers again."""
        if not active:
            for replica in self.replicas:
                replica.end()
        elif not self._started:
            self._started = True
            self._do(self._start)
        self._do(self.replicas.review_all)

    # Acknowledgements

    @property
    def owes(self) -> bool:
        """Whether others wait to be told something, or the disk for a commit."""
        state = self._state
        return bool(self._receive_windows.due or state.posts or state.promised) or state.disk.pending

    def acknowledge(self) -> None:
        """The clients' messages are safe, and the disk has what it was told."""
        if self._state.promised:
            self._do(self._state.keep_promises)
        self._receive_windows.acknowledge()
        self._state.flush()

    # What was on the disk

    def restore(self, kept: dict[str, list[Record]], cleared: Iterable[tuple[str, Number, float]]) -> None:
        """What this peer held of each place, and what was cleared how long ago. Before anything happens."""
        self.replicas.restore(kept)
        for topic, number, age_s in sorted(cleared, key=itemgetter(2), reverse=True):
            self.cleared.restore(topic, number, self._state.clock.now - age_s)

    def take_over(self, topic: str, body: bytes, chance: int) -> None:
        """A message was retained here without a ring: whatever the ring knows of the topic is newer.

        `chance` tells it from what another peer brings for the same topic. Before anything happens, but after
        `restore`.
        """
        if not self.replicas.rests(topic) and self.cleared.of(topic) is None:
            self.replicas.rest(Record(Kind.RETAINED, topic, None, (FIRST_STAMP, chance), False, body=body))

    # Time

    def tick(self) -> None:
        """What is due by now, or much of it: the deadline is over still if there is more."""
        self._do(lambda: self._state.timers.run(self._state.clock.now, MOST_AT_ONCE))

    def deadline(self) -> float:
        return self._state.timers.next_at

    def _start(self) -> None:
        config, every = self._state.config, self._state.every
        every(config.lease_s / LIST_RENEWALS, lambda: self.subscriber_lists.renew(self.publisher.lists_in_use()))
        every(config.entry_s / ENTRY_RENEWALS, self.subscriber.renew)
        every(SWEEP_S, self.publisher.sweep)
        every(config.note_s / 8, self._coordinator.tick)
        every(SWEEP_S, self.cleared.sweep)
        every(SWEEP_S, self.replicas.sweep)
        self._wake()

    def _wake(self) -> None:
        if self.replicas.wake():
            self._state.after(self._state.config.restore_s, self._wake)

    # The roles

    def _do(self, call: Callable[[], None]) -> None:
        """Call a role, and then the roles of this peer for whom that was."""
        if self._inside:
            call()
            return
        self._inside = True
        try:
            call()
            local = self._state.local
            while local:
                self._handle(*local.popleft())
            if not self.acknowledges_later:
                self._receive_windows.acknowledge()
                self._state.flush()
        finally:
            self._inside = False

    def _handle(self, sender: Peer, message: Control) -> None:
        self._handlers[type(message)](sender, message)

    def _give(self, origin: Peer, publication: Publication) -> None:
        """A message for the clients here."""
        state = self._state
        if publication.plain and not self.subscriber.wants(publication.topic):
            state.counters.unwanted += 1
            if not publication.shared:
                self._end(origin, publication)
                return
        if publication.retain:
            if self._retained_cache.repeats(origin.id, publication):
                state.counters.duplicates += 1
                if not publication.shared:
                    self._end_repeated(origin, publication)
                    return
                publication = addressed(publication, False, publication.shared)
            elif self.subscriber.wants(publication.topic):
                self._retained_cache.live(origin.id, publication)
        state.counters.received += 1
        clients = state.clients.deliver(publication)
        if publication.trace is not None:
            publication.trace.clients = clients
            self._end(origin, publication)

    def _end_repeated(self, origin: Peer, publication: Publication) -> None:
        if publication.trace is not None:
            publication.trace.duplicate = True
            self._end(origin, publication)

    def _end(self, origin: Peer, publication: Publication) -> None:
        """Nothing more is to be done here with a message that came."""
        relay = publication.relay
        self._state.tracing.ends(origin, publication, DIRECT.name if relay is None else relay.name)

    def _keep_unsettled(self, topic_filter: str) -> None:
        """What the clients here published before somebody here subscribed, and nobody else may have as yet."""
        for publication in self.publisher.unsettled.values():
            if matches(topic_filter, publication.topic):
                self._retained_cache.live(self._state.me.id, publication)

    def _keep_settled(self, publication: Publication) -> None:
        """And what got to its coordinator after somebody here began to ask for it."""
        if self.subscriber.wants(publication.topic):
            self._retained_cache.live(self._state.me.id, publication)

    def _elsewhere(self, sender: Peer, message: Elsewhere) -> None:
        self.subscriber.elsewhere(message)
        self.subscriber_lists.elsewhere(message)
        self.publisher.elsewhere(message)

    def _handlers_of_roles(self) -> dict[type, Callable[..., None]]:
        coordinator, replication, takeover = self._coordinator, self._replication, self._takeover
        return {
            Sub: coordinator.sub,
            SubAck: self.subscriber.acknowledged,
            Elsewhere: self._elsewhere,
            SubReq: coordinator.sub_req,
            List: self.subscriber_lists.told,
            Renewed: self.subscriber_lists.renewed,
            Known: replication.known,
            Drop: coordinator.drop,
            Append: replication.copy,
            AppendAck: replication.copied,
            StateRequest: takeover.gathered,
            StateReply: takeover.told,
            HandoffAck: takeover.taken,
            TakeOver: takeover.nudged,
            Retain: coordinator.retain,
            Retained: self.publisher.retained,
            Note: coordinator.note,
            Noted: coordinator.noted,
            Fetch: coordinator.fetch,
            Fetched: self.subscriber.fetched,
            Held: self.send_windows.held,
        }
