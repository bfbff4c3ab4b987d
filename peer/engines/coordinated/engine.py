"""The coordinated engine of one peer: assembles publisher, subscriber and coordinator, and dispatches messages to them.

Coordinators keep a list of the subscribers of each place; publishers cache these lists and send to all peers on them,
directly or through a tree. `peer/messaging/engine.py` explains the calls.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

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
from ringmq.peer.engines.coordinated.status import describe, describe_topic
from ringmq.peer.engines.coordinated.subscriber import RENEWALS as ENTRY_RENEWALS
from ringmq.peer.engines.coordinated.subscriber import Subscriber
from ringmq.peer.engines.coordinated.subscriber_lists import RENEWALS as LIST_RENEWALS
from ringmq.peer.engines.coordinated.tree_relay import TreeRelay
from ringmq.peer.messaging.config import DIRECT, PubSubConfig
from ringmq.peer.messaging.context import Counters, MessagingContext
from ringmq.peer.messaging.engine import NO_DISK, Disk, EngineLoad, LocalClients, Overlay
from ringmq.peer.messaging.fast_path import decode_fast
from ringmq.peer.messaging.publication import MANY, Publication, Trace, addressed, decode, taken_apart
from ringmq.peer.messaging.receive_window import ReceiveWindows
from ringmq.peer.messaging.retained_cache import RetainedCache
from ringmq.peer.messaging.tracing import Tracing
from ringmq.peer.replication.replica import Role
from ringmq.peer.replication.tombstones import Tombstones

SWEEP_S = 10.0
MOST_AT_ONCE = 1000
"""Actions in one turn, some 30 us each. A peer with 100,000 places may have as many to look at when another dies, and
would be taken for dead itself if nobody heard of it meanwhile."""
FIRST_STAMP = 0
"""The stamp of a retained message from before this peer had a ring: lower than all others."""


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
        clock_us: Callable[[], int] | None = None,
    ) -> None:
        """`owing` is called when acknowledgements become due; its owner then calls `acknowledge` when all journals have
        committed. Without `owing` the engine acknowledges at the end of each call.
        """
        self._state = state = MessagingContext(overlay, clients, config, disk, clock, owing, clock_us)
        self.cleared = Tombstones(state)
        self._coordinator = Coordinator(state, self.cleared, self._handle)
        self._takeover = self._coordinator.takeover
        self._replication = self._takeover.replication
        self.replicas = self._takeover.replicas
        self._retained_cache = RetainedCache(state)
        self.subscriber = Subscriber(state, self._retained_cache, self._keep_unsettled)
        self._receive_windows = ReceiveWindows(state, self._give, self._end_repeated, self.subscriber.has)
        self._tree_relay = TreeRelay(state)
        self.publisher = Publisher(state, self._tree_relay, self.subscriber.has, self._keep_settled)
        self.subscriber_lists = self.publisher.subscriber_lists
        self.send_windows = self.publisher.send_windows
        self._handlers = self._handlers_of_roles()
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
        """Bytes of all messages here that wait for a list, for a window or for an acknowledgement."""
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

    @staticmethod
    def serves(topic_filter: str) -> bool:
        return True

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
        state = self._state
        state.counters.published += 1
        me = state.me
        state.seq += 1
        stamp = state.stamp() if retain else 0
        publication = Publication(me.boot, state.seq, qos, topic, body, retain, stamp, clears=clears, trace=trace)
        if trace is not None:
            state.tracing.begins(me, publication)
        if retain and self.subscriber.wants(topic):
            self._retained_cache.live(me.id, publication)
        self._do(lambda: self.publisher.publish(publication, matched, done))
        return publication.seq

    def publish_fast(self, topic: str, body: bytes) -> bool:
        if self._inside or not self.publisher.publish_fast(topic, body):
            return False
        self._state.counters.published += 1
        return True

    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None:
        """After `done`, every message published anywhere arrives here, and the retained messages have arrived."""
        self._do(lambda: self.subscriber.add(topic_filter, done))

    def unsubscribe(self, topic_filter: str) -> None:
        self._do(lambda: self.subscriber.remove(topic_filter))

    def receive(self, sender: Peer, payload: bytes) -> None:
        fast = decode_fast(payload)
        if fast is not None and not self._inside and self._receive_windows.take_fast(sender, *fast):
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
            if message.trace is not None:
                self._state.tracing.comes(sender, message)
            origin = sender if message.relay is None else self._tree_relay.pass_on(message)
            self._do(lambda: self._receive_windows.take(origin, message))
        elif self._inside:
            self._state.local.append((sender, message))
        else:
            self._do(lambda: self._handle(sender, message))

    @staticmethod
    def forward(key: Id, payload: bytes, next_hop: Peer) -> bool:
        """Routed payloads are for the owner of their key alone."""
        return True

    def unsent(self, payload: bytes) -> None:
        """Pass a message of a tree around the peer. All others are sent again in time, or were for that peer alone."""
        with contextlib.suppress(ProtocolError):
            message = None if decode_fast(payload) is not None else decode(payload)
            if isinstance(message, Publication) and message.relay is not None:
                self._do(partial(self._tree_relay.go_around, message, message.relay))

    def link_lost(self, peer: Peer) -> None:
        """Nothing to do: replicas follow the owners of their keys, and receivers that are silent are retried."""

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self._do(lambda: self.replicas.owners_changed(key, owners))

    def activity_changed(self, active: bool) -> None:
        """A peer that becomes active again collects the state of its places first: it may have missed changes."""
        if not active:
            for replica in self.replicas:
                replica.end()
        elif not self._started:
            # The periodic calls of `_start` go on while this peer is inactive: a second start would double them.
            self._started = True
            self._do(self._start)
        self._do(self.replicas.review_all)

    @property
    def owes(self) -> bool:
        state = self._state
        return bool(self._receive_windows.due or state.posts or state.promised) or state.disk.pending

    def acknowledge(self) -> None:
        if self._state.promised:
            # A promise may be for this peer itself: only `_do` handles the messages between its own roles.
            self._do(self._state.keep_promises)
        self._receive_windows.acknowledge()
        self._state.flush()

    def restore(self, kept: dict[str, list[Record]], cleared: Iterable[tuple[str, Number, float]]) -> None:
        """Records of each place and tombstones with their ages, from the disk. Call it before anything else."""
        self.replicas.restore(kept)
        # The table of tombstones forgets in the order of insertion, but the rows of the disk are in the order of
        # topics.
        for topic, number, age_s in sorted(cleared, key=itemgetter(2), reverse=True):
            self.cleared.restore(topic, number, self._state.clock.now - age_s)

    def take_over(self, topic: str, body: bytes, chance: int) -> None:
        """A message was retained here without a ring: whatever the ring knows of the topic is newer.

        `chance` distinguishes it from a message of another peer for the same topic. Before anything happens, but after
        `restore`.
        """
        if not self.replicas.rests(topic) and self.cleared.of(topic) is None:
            self.replicas.rest(Record(Kind.RETAINED, topic, None, (FIRST_STAMP, chance), False, body=body))

    def tick(self) -> None:
        self._do(lambda: self._state.timers.run(self._state.clock.now, MOST_AT_ONCE))

    def deadline(self) -> float:
        return self._state.timers.next_at

    def _start(self) -> None:
        config, every = self._state.config, self._state.every
        every(config.lease_s / LIST_RENEWALS, lambda: self.subscriber_lists.renew(self.publisher.lists_in_use()))
        every(config.entry_s / ENTRY_RENEWALS, self.subscriber.renew)
        every(SWEEP_S, self.publisher.sweep)
        # `RetainedTopics.renew` looks a quarter of `note_s` ahead: a tick may come late without a note expiring.
        every(config.note_s / 8, self._coordinator.tick)
        every(SWEEP_S, self.cleared.sweep)
        every(SWEEP_S, self.replicas.sweep)
        self._wake()

    def _wake(self) -> None:
        if self.replicas.wake():
            self._state.after(self._state.config.restore_s, self._wake)

    @property
    def kind(self) -> str:
        return "pubsub"

    def status(self, now: float, counted: Mapping[str, int]) -> dict[str, Any]:
        return describe(self, now, counted)

    def topic_status(self, topic: str, towards: Callable[[Id], Peer | None]) -> dict[str, Any] | None:
        return describe_topic(self, topic, towards)

    def load(self, own_topic: str) -> EngineLoad:
        topics = len(self.publisher)
        others = topics - (own_topic in self.publisher)
        unacknowledged = self.send_windows.waiting
        return EngineLoad(others, topics, len(self.subscriber), self.waiting_bytes, unacknowledged)

    def partitions(self) -> tuple[int, int]:
        roles = Counter([replica.role for replica in self.replicas])
        return roles[Role.COORDINATOR], roles[Role.HOLDER]

    def _do(self, call: Callable[[], None]) -> None:
        """Call a role, and then handle the messages that the roles of this peer sent to each other."""
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
        if publication.unshared and not self.subscriber.wants(publication.topic):
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
        """This peer is done with a message that came: record it."""
        relay = publication.relay
        self._state.tracing.ends(origin, publication, DIRECT.name if relay is None else relay.name)

    def _keep_unsettled(self, topic_filter: str) -> None:
        """Cache messages that clients here published before one of them subscribed: perhaps only this peer has them."""
        for publication in self.publisher.unsettled.values():
            if matches(topic_filter, publication.topic):
                self._retained_cache.live(self._state.me.id, publication)

    def _keep_settled(self, publication: Publication) -> None:
        """Cache a message that reached its coordinator after a client here began to subscribe."""
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
