"""The part of an engine that does not depend on how subscribers are found: payloads in, publications to the clients.

Decodes payloads, delivers each publication once and in order, and calls the roles of this peer one after the other.
`engine.py` explains the calls. Knows no messages between roles.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.iteration import Clock
from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timers import TimerQueue
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.partitioned.messages import Where
from ringmq.peer.messaging.config import DIRECT, PubSubConfig
from ringmq.peer.messaging.context import TURN_S, Counters, MessagingContext
from ringmq.peer.messaging.engine import EngineLoad, LocalClients
from ringmq.peer.messaging.fast_path import decode_fast
from ringmq.peer.messaging.messages import Control
from ringmq.peer.messaging.publication import MANY, Publication, Trace, addressed, decode, taken_apart
from ringmq.peer.messaging.receive_window import ReceiveWindows
from ringmq.peer.messaging.retained_cache import RetainedCache
from ringmq.peer.messaging.send_window import SendWindows
from ringmq.peer.messaging.tracing import Tracing
from ringmq.peer.messaging.tree_relay import TreeRelay

MOST_AT_ONCE: Final = 1000
"""Actions in one turn, some 30 us each. A peer with 100,000 of them due would be taken for dead if nobody heard of it
meanwhile."""
MOST_ROUNDS: Final = 256
"""Answers of the roles of this peer to each other, each to the one before, in one call. The rest waits for a later
call: if two roles ask each other without end, all others are still served."""


class Subscribing(Protocol):
    """The filters of the clients here."""

    def __len__(self) -> int: ...
    def add(self, topic_filter: str, done: Done, lasting: bool = False, restored: bool = False) -> None: ...
    def remove(self, topic_filter: str) -> None: ...
    def is_refused(self, topic_filter: str) -> bool: ...
    def wants(self, topic: str) -> bool:
        """Whether an unshared filter here matches the topic."""

    def has(self, topic_filter: str) -> bool: ...


class Publishing(Protocol):
    """The publications of the clients here."""

    send_windows: SendWindows

    @property
    def unsettled(self) -> Mapping[int, Publication]:
        """Retained messages that are not at their coordinator yet."""

    def __len__(self) -> int:
        """The number of topics known."""

    def __contains__(self, topic: str) -> bool: ...
    def publish(self, publication: Publication, matched: bool, done: Done | None) -> None: ...
    def publish_fast(self, topic: str, body: bytes) -> bool: ...


S = TypeVar("S", bound=Subscribing)
P = TypeVar("P", bound=Publishing)


class BaseEngine(ABC, Generic[S, P]):
    """One per peer."""

    def __init__(
        self,
        state: MessagingContext,
        subscriber: S,
        publisher: P,
        retained_cache: RetainedCache,
        tree_relay: TreeRelay,
        acknowledges_later: bool,
    ) -> None:
        self._state = state
        self.subscriber = subscriber
        self.publisher = publisher
        self.send_windows = publisher.send_windows
        self._retained_cache = retained_cache
        self._tree_relay = tree_relay
        self._receive_windows = ReceiveWindows(state, self._give, self._end_repeated, subscriber.has)
        self.acknowledges_later = acknowledges_later
        """Whether `acknowledge` is called by the shell. With a disk it must be."""
        self._inside = False
        self._deferred: deque[Callable[[], None]] = deque()
        """Calls of the ring that came during a call of a role."""
        self._rounds = 0
        self._postponed: list[tuple[Peer, Control]] = []
        """Messages between the roles of this peer that the present call had no rounds for."""

    @abstractmethod
    def _handle(self, sender: Peer, message: Control) -> None:
        """Pass a control message to the role that it is for."""

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

    @property
    def kind(self) -> str:
        return "pubsub"

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

    def subscribe(self, topic_filter: str, done: Done, lasting: bool = False, restored: bool = False) -> None:
        """After `done` with SUCCESS, every message published anywhere arrives here, and the retained messages have
        arrived."""
        self._do(lambda: self.subscriber.add(topic_filter, done, lasting, restored))

    def unsubscribe(self, topic_filter: str) -> None:
        self._do(lambda: self.subscriber.remove(topic_filter))

    def is_refused(self, topic_filter: str) -> bool:
        return self.subscriber.is_refused(topic_filter)

    def receive(self, sender: Peer, payload: bytes) -> None:
        fast = decode_fast(payload)
        if fast is not None and not self._inside and self._receive_windows.take_fast(sender, *fast):
            return
        if payload[:1] == MANY:
            self._do(lambda: self._receive_all(sender, payload))
        else:
            self._receive_one(sender, payload)

    def deliver(self, origin: Peer, payload: bytes) -> None:
        """A routed payload names its origin itself, unlike one that comes over the link of its sender. So it counts
        only if it is of a kind that is routed."""
        with contextlib.suppress(ProtocolError):
            if isinstance(decode(payload), Where):
                self._receive_one(origin, payload)
                return
        self._state.counters.unreadable += 1

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

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        """Routed payloads are for the owner of their key alone."""
        return True

    def unsent(self, payload: bytes) -> None:
        """Pass a message of a tree around the peer. All others are sent again in time, or were for that peer alone."""
        with contextlib.suppress(ProtocolError):
            message = None if decode_fast(payload) is not None else decode(payload)
            if isinstance(message, Publication) and message.relay is not None:
                self._do(partial(self._tree_relay.go_around, message, message.relay))

    def link_lost(self, peer: Peer) -> None:
        """Nothing to do: copies follow the owners of keys, and receivers that are silent are retried."""

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

    def tick(self) -> None:
        self._do(lambda: self._state.timers.run(self._state.clock.now, MOST_AT_ONCE))

    def deadline(self) -> float:
        return self._state.timers.next_at

    def load(self, own_topic: str) -> EngineLoad:
        topics = len(self.publisher)
        others = topics - (own_topic in self.publisher)
        unacknowledged = self.send_windows.waiting
        return EngineLoad(others, topics, len(self.subscriber), self.waiting_bytes, unacknowledged)

    def _do(self, call: Callable[[], None]) -> None:
        """Call a role, and then handle the messages that the roles of this peer sent to each other."""
        if self._inside:
            call()
            return
        self._inside = True
        self._rounds = 0
        try:
            call()
            self._handle_local()
            if not self.acknowledges_later:
                self.acknowledge()
        finally:
            self._inside = False

    def _do_apart(self, call: Callable[[], None]) -> None:
        """Call a role for an event of the ring, after the role that runs now."""
        # A role that sends a publication may find the link broken. What the ring makes of it must not change the state
        # of that role while it runs.
        if self._inside:
            self._deferred.append(call)
        else:
            self._do(call)

    def _handle_local(self) -> None:
        """Handle what the calls of roles have left for the end."""
        local, deferred = self._state.local, self._deferred
        left = 0
        """Messages of this round."""
        while local or deferred:
            if deferred:
                deferred.popleft()()
                continue
            if not left:
                if self._rounds == MOST_ROUNDS:
                    self._postpone()
                    continue
                self._rounds += 1
                left = len(local)
            left -= 1
            self._handle(*local.popleft())

    def _postpone(self) -> None:
        """Leave the messages between the roles of this peer to a later call, which comes by a timer. Not to the next
        one: that may be an acknowledgement, after the commit of this iteration."""
        if not self._postponed:
            self._state.counters.postponed += 1
            self._state.after(TURN_S, self._take_up)
        self._postponed += self._state.local
        self._state.local.clear()

    def _take_up(self) -> None:
        self._state.local.extend(self._postponed)
        self._postponed.clear()

    def _give(self, origin: Peer, publication: Publication) -> None:
        """A message for the clients here."""
        state = self._state
        wanted = not publication.unshared or self.subscriber.wants(publication.topic)
        if state.brought is not None and publication.unshared:
            state.brought(publication.topic, wanted, origin.id, publication)
        if not wanted:
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
        """Cache a message of a client here that got another stamp, or that reached its coordinator after a client here
        began to subscribe."""
        if self.subscriber.wants(publication.topic):
            self._retained_cache.live(self._state.me.id, publication)
