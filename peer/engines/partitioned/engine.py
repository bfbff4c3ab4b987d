"""The partitioned engine of one peer: assembles its roles, and passes messages and items of streams to them.

Coordinators keep the subscriptions of whole partitions; publishers hold routes of these partitions, and send to all
peers that match, directly or through a tree. `peer/messaging/engine.py` explains the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any, Final

from ringmq.mqtt_front.cluster import Enrolment, Settled
from ringmq.mqtt_front.iteration import Clock
from ringmq.mqtt_front.sessions.moving_session import Origin
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.partitioned.coordinating.coordinator import Coordinator
from ringmq.peer.engines.partitioned.directory import Directory
from ringmq.peer.engines.partitioned.enrolling.client_registry import REPEAT_S
from ringmq.peer.engines.partitioned.enrolling.enrolments import Enrolments
from ringmq.peer.engines.partitioned.enrolling.messages import (
    Enrol,
    Enrolled,
    InForce,
    Moved,
    Returned,
    Superseded,
    Taken,
    Yield,
    Yielded,
)
from ringmq.peer.engines.partitioned.item_codec import decode_item, encode_item
from ringmq.peer.engines.partitioned.messages import (
    Acting,
    Alive,
    Append,
    Check,
    Claim,
    Deposed,
    Elsewhere,
    Extra,
    Find,
    Found,
    HandedOver,
    Handover,
    Here,
    Hold,
    Holders,
    Present,
    Presented,
    Recall,
    Recalled,
    Register,
    Registered,
    Registry,
    Release,
    Renew,
    Renewed,
    Retain,
    Retained,
    Routes,
    Silent,
    State,
    StateRequest,
    TakeOver,
    Where,
)
from ringmq.peer.engines.partitioned.names import NameHash
from ringmq.peer.engines.partitioned.publishing.assembly import Address, Assembly
from ringmq.peer.engines.partitioned.publishing.holdings import RENEWALS as ROUTE_RENEWALS
from ringmq.peer.engines.partitioned.publishing.publisher import Publisher
from ringmq.peer.engines.partitioned.status import describe, describe_topic
from ringmq.peer.engines.partitioned.subscribing.home_lease import RENEWALS as ENTRY_RENEWALS
from ringmq.peer.engines.partitioned.subscribing.subscriber import Subscriber
from ringmq.peer.messaging.base_engine import MOST_ROUNDS, BaseEngine
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.engine import NO_DISK, Disk, LocalClients, Overlay
from ringmq.peer.messaging.messages import Control, Held
from ringmq.peer.messaging.publication import Publication, decode
from ringmq.peer.messaging.retained_cache import RetainedCache
from ringmq.peer.messaging.tree_relay import TreeRelay
from ringmq.peer.replication.neighbourhood import Neighbourhood
from ringmq.peer.replication.record import Number, RecordKind, SharedRecord
from ringmq.peer.replication.space import partitions_in
from ringmq.peer.replication.tombstones import Tombstones
from ringmq.peer.streams.stream_messages import Batch, BatchAck
from ringmq.peer.streams.streams import Streams

SWEEP_S: Final = 10.0
TICK_S: Final = 1.0
"""How often the coordinator looks for leases and messages that have expired, and for partitions to hand over."""

PATIENT: Final = frozenset({Renewed, Presented})
"""Answers to renewals: the next renewal acknowledges them, and its answer replaces a lost one."""

FIRST_STAMP: Final = 0
"""The stamp of a retained message from before this peer had a ring: lower than all others."""


class PartitionedEngine(BaseEngine[Subscriber, Publisher]):
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
        """`owing` is called when messages or acknowledgements become due; its owner then calls `acknowledge` when all
        journals have committed. Without `owing` the engine acknowledges at the end of each call.
        """
        state = MessagingContext(overlay, clients, config, disk, clock, owing, clock_us)
        self.names = NameHash(config.hash_seed)
        self.streams = Streams(state, encode_item, decode_item, self._handle_item, self._stream_lost, PATIENT)
        self.cleared = Tombstones(state)
        neighbourhood = Neighbourhood(lambda: state.me, config.shadows)
        self.coordinator = Coordinator(state, self.streams, neighbourhood, self.cleared)
        self.replicas = self.coordinator.store
        self.directory = Directory(state, self.coordinator, self._coordinators_changed)
        self.enrolments = Enrolments(state, self.streams, self.directory)
        retained_cache = RetainedCache(state)
        tree_relay = TreeRelay(state)
        subscriber = Subscriber(state, self.streams, self.directory, retained_cache, self._keep_unsettled)
        publisher = Publisher(state, self.streams, self.directory, tree_relay, subscriber.has, self._keep_settled)
        super().__init__(state, subscriber, publisher, retained_cache, tree_relay, owing is not None)
        self._handlers: dict[type, Callable[..., None]] = {
            Batch: self.streams.received,
            BatchAck: self.streams.acknowledged,
            Where: self.directory.where,
            Here: self.directory.here,
            Silent: self.coordinator.silent,
            Check: self.coordinator.silence.check,
            Alive: self.coordinator.silence.alive,
            Held: self.send_windows.held,
        }
        self._item_handlers = self._handlers_of_roles()
        self._started = False
        self._assembly = Assembly(state, (), publisher.open)

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        """A question for a coordinator passes through here."""
        with suppress(ProtocolError):
            message = decode(payload)
            if isinstance(message, Where) and message.origin.id != self._state.me.id:
                self._do(partial(self.directory.passed, message))
        return True

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        """No key is watched: the leaf set decides about all partitions at once."""

    def leaves_changed(self) -> None:
        self._do_apart(self._follow_leaves)

    def _follow_leaves(self) -> None:
        self.coordinator.leaves_changed()
        self._coordinators_changed()

    def activity_changed(self, active: bool) -> None:
        """A peer that becomes active again collects the records of its partitions first: it may have missed changes."""
        self._do_apart(lambda: self._follow_activity(active))

    def _follow_activity(self, active: bool) -> None:
        if active and not self._started:
            # The periodic calls of `_start` go on while this peer is inactive: a second start would double them.
            self._started = True
            self._start()
        self.coordinator.activity_changed(active)
        # The ring names owners of keys to active peers only.
        self._coordinators_changed()

    def _coordinators_changed(self) -> None:
        self.subscriber.coordinators_changed()
        self.publisher.coordinators_changed()
        self.enrolments.coordinators_changed()

    def _start(self) -> None:
        config, every = self._state.config, self._state.every
        # Two peers that renew at the same moment would each need an answer of its own: their ids keep them apart.
        self._state.after(self._state.me.id / SPACE * config.lease_s / ROUTE_RENEWALS, self._start_renewing)
        every(TICK_S, self.coordinator.tick)
        every(SWEEP_S, self.publisher.sweep)
        every(SWEEP_S, self.cleared.sweep)
        every(SWEEP_S, self.enrolments.repeat_unanswered)
        every(REPEAT_S, self.enrolments.repeat_all)
        if self.replicas.partitions():
            self.coordinator.takeover.wake()
        if self._assembly.begin():
            self.publisher.close()

    def _start_renewing(self) -> None:
        config, every = self._state.config, self._state.every
        every(config.entry_s / ENTRY_RENEWALS, partial(self.subscriber.renew, self.publisher.holdings.renews))
        every(config.lease_s / ROUTE_RENEWALS, self._renew)

    def await_ring(self, former: Collection[Address]) -> None:
        """Publications wait until the peers at these addresses are back, for a bounded time. Call it before anything
        happens."""
        self._assembly = Assembly(self._state, former, lambda: self._do(self.publisher.open))

    def measure_waits(self, waited_s: Callable[[], float]) -> None:
        """`waited_s` returns how long this process has waited for a processor since its start."""
        self.coordinator.silence.waited_s = waited_s

    @property
    def owes(self) -> bool:
        return super().owes or self.streams.owes or self._state.unjoined

    def acknowledge(self) -> None:
        """Send what waits for the commit: batches of this iteration with all acknowledgements that can ride on them."""
        # Asked here, as most iterations bring publications alone: they need not enter the roles for nothing.
        # What was postponed must not change anything after the commit of this iteration.
        if self._state.unjoined and not self._postponed:
            self.join()
        self.streams.acknowledge()
        self.streams.flush()
        super().acknowledge()

    def _handle_local(self) -> None:
        super()._handle_local()
        if self._state.unjoined and not self.acknowledges_later:
            self._flush_roles()

    def join(self) -> None:
        """Let the roles do now what they would do at the end of this iteration, without sending anything."""
        self._do(self._flush_roles)

    def _renew(self) -> None:
        """Renew the leases of routes. All else that is to be renewed with the same peers goes with them."""
        holdings = self.publisher.holdings
        self.coordinator.claim(holdings.renews)
        for peer in holdings.renew():
            self._renew_at(peer)

    def _renew_for(self, sender: Peer, message: Renew) -> None:
        self.coordinator.renew(sender, message)
        if self.publisher.holdings.renew_with(sender):
            self._renew_at(sender)

    def _renew_at(self, peer: Peer) -> None:
        self.coordinator.claim_of(peer)
        self.subscriber.renew_at(peer)

    def _flush_roles(self) -> None:
        """Let the roles join what this iteration has brought into items: a SUBSCRIBE of a hundred filters makes one."""
        state, deferred = self._state, self._deferred
        # An item of one role may be for another role of this peer, and change something in turn.
        while (state.unjoined or state.local or deferred) and self._rounds < MOST_ROUNDS:
            self._rounds += 1
            super()._handle_local()
            state.unjoined = False
            self.subscriber.flush()
            self.enrolments.flush()
            self.coordinator.flush()

    def enrol(self, enrolment: Enrolment, settled: Settled) -> None:
        """A client connects with an id of its own. `settled` is called once, within a bounded time."""
        self._do(lambda: self.enrolments.enrol(enrolment, settled))

    def discharge(self, client_id: str) -> None:
        """Neither a connection nor a session of this client is here any more."""
        self._do(lambda: self.enrolments.discharge(client_id))

    def next_origin(self) -> Origin:
        """The origin of the next publication of this peer."""
        me = self._state.me
        return me.id, me.boot, self._state.seq + 1

    def note_origins(self, busy: bool) -> None:
        """Sessions move now, or no more. Deliveries cost nothing for that while none does."""
        self._receive_windows.deliver = self._give_noted if busy else self._give

    def _give_noted(self, origin: Peer, publication: Publication) -> None:
        sessions = self.enrolments.moves.sessions
        sessions.comes((origin.id, publication.boot, publication.seq), publication.topic)
        self._give(origin, publication)
        sessions.came()

    def arrived(self, client_id: str) -> None:
        """The subscriptions of a session that comes from another peer are in force."""
        self._do(lambda: self.enrolments.moves.in_force(client_id))

    def restore(self, kept: Iterable[SharedRecord], cleared: Iterable[tuple[str, Number, float]]) -> None:
        """Retained messages, lasting entries, and tombstones with their ages, from the disk. Call it before anything
        else."""
        state = self._state
        # The table of tombstones forgets in the order of insertion, but the rows of the disk are in the order of
        # topics.
        for topic, number, age_s in sorted(cleared, key=itemgetter(2), reverse=True):
            if state.is_far(number[0]):
                # It would overrule every later message of its topic.
                state.counters.false_records += 1
                continue
            self.cleared.restore(topic, number, state.clock.now - age_s)
        # The records are on the disk already.
        disk, state.disk = state.disk, NO_DISK
        for record in kept:
            # The clock may have been wrong for a century once, or an earlier process may have believed anything.
            entry = record.kind is RecordKind.ENTRY
            if (state.is_far_boot if entry else state.is_far)(record.number[0]):
                state.counters.false_records += 1
                continue
            partition = (self.names.partition_of_filter if entry else self.names.partition_of)(record.name)
            self.replicas.take(partition, record, state.clock.now)
        state.disk = disk

    def take_over(self, topic: str, body: bytes, chance: int) -> None:
        """A message was retained here without a ring: whatever the ring knows of the topic is newer.

        `chance` distinguishes it from a message of another peer for the same topic. Before anything happens, but after
        `restore`.
        """
        partition = self.names.partition_of(topic)
        record = SharedRecord(RecordKind.RETAINED, topic, None, (FIRST_STAMP, chance), False, body=body)
        if self.replicas.get(partition, record.key) is None and self.cleared.number_of(topic) is None:
            self.replicas.take(partition, record, self._state.clock.now)

    def acts(self, partition: int) -> bool:
        """Whether this peer coordinates a partition."""
        return bool(self.replicas.acting[partition])

    def status(self, now: float, counted: Mapping[str, int]) -> dict[str, Any]:
        return describe(self, now, counted)

    def topic_status(self, topic: str, towards: Callable[[Id], Peer | None]) -> dict[str, Any] | None:
        return describe_topic(self, topic, towards)

    def partitions(self) -> tuple[int, int]:
        """Those with records: a ring at rest has 4,096 others."""
        acting = [self.acts(partition) for partition in self.replicas.partitions()]
        coordinated = sum(acting)
        return coordinated, len(acting) - coordinated

    def _handle(self, sender: Peer, message: Control) -> None:
        self._handlers[type(message)](sender, message)

    def _handle_item(self, sender: Peer, item: object) -> None:
        self._item_handlers[type(item)](sender, item)

    def _stream_lost(self, peer: Peer) -> None:
        """Items to a peer may be lost: it has forgotten this peer, has started again, or was behind by too much."""
        self.coordinator.stream_lost(peer)
        self.subscriber.stream_lost(peer)
        self.publisher.stream_lost(peer)
        self.enrolments.stream_lost(peer)

    def _elsewhere(self, sender: Peer, message: Elsewhere) -> None:
        self.directory.wrong(sender, partitions_in(message.runs))
        if message.actor is not None:
            self.directory.acting(message.actor, partitions_in(message.runs))
        self.subscriber.elsewhere(sender, message)
        self.publisher.elsewhere(sender, message)
        self.enrolments.elsewhere(sender, message)

    def _acting(self, sender: Peer, message: Acting) -> None:
        self.directory.acting(sender, partitions_in(message.runs))

    def _handlers_of_roles(self) -> dict[type, Callable[..., None]]:
        coordinator, subscriber, publisher = self.coordinator, self.subscriber, self.publisher
        enrolments = self.enrolments
        copying, takeover = coordinator.copying, coordinator.takeover
        return {
            Register: coordinator.register,
            Registered: subscriber.registered,
            Present: coordinator.present,
            Presented: subscriber.presented,
            Registry: coordinator.registry,
            Elsewhere: self._elsewhere,
            Hold: coordinator.hold,
            Release: coordinator.release,
            Routes: publisher.routes,
            Renew: self._renew_for,
            Renewed: publisher.renewed,
            Retain: coordinator.retaining.retain,
            Retained: publisher.retained,
            Find: coordinator.find,
            Found: subscriber.found,
            Acting: self._acting,
            Append: copying.append,
            Claim: copying.claimed,
            Deposed: copying.deposed,
            Extra: copying.extra,
            StateRequest: takeover.state_request,
            State: takeover.state,
            HandedOver: takeover.handed_over,
            Handover: takeover.handover,
            TakeOver: takeover.take_over,
            Holders: coordinator.holders.holders,
            Recall: subscriber.recall,
            Recalled: coordinator.recalls.recalled,
            Enrol: coordinator.client_ids.enrol,
            Enrolled: enrolments.enrolled,
            Superseded: enrolments.superseded,
            Yield: enrolments.give_up,
            Yielded: enrolments.yielded,
            Moved: enrolments.moves.moved,
            InForce: enrolments.moves.arrived,
            Taken: enrolments.moves.taken,
            Returned: enrolments.moves.returned,
        }
