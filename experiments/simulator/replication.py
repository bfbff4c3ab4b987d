"""A world for the coordinators of partitions alone: streams, copies, takeovers, holders and leases over a simulated
network, without a ring and without MQTT.

The membership is given: each peer learns of joins and deaths at a time of its own. Homes and publishers are models, so
that the checks do not depend on the code that they check. All random choices follow from one seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Final

from ringmq.experiments.simulator.network import Network, Weather
from ringmq.experiments.simulator.replication_checks import PublicationChecks
from ringmq.experiments.simulator.replication_models import ModelDirectory, ModelHolder, ModelHome
from ringmq.mqtt_front.iteration import StillClock
from ringmq.overlay.core.ids import ID_BITS, Id, nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.coordinator import Coordinator
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
    HandedOver,
    Handover,
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
    Routes,
    Silent,
    State,
    StateRequest,
    TakeOver,
)
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.engine import LocalClients, Overlay
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.replication.neighbourhood import Neighbourhood
from ringmq.peer.replication.tombstones import Tombstones
from ringmq.peer.streams.stream_messages import Batch, BatchAck, Lane
from ringmq.peer.streams.streams import Streams

Message = Batch | BatchAck | Silent | Check | Alive

TICK_S: Final = 1.0
LAST_EVENTS: Final = 80
DETECTION_S: Final = (1.0, 2.5)
"""When a peer learns of the death of another."""
NEWS_S: Final = (0.0, 0.6)
"""When a peer learns of a newcomer."""
JOINING_S: Final = (0.1, 0.6)
"""How long a peer that starts, or was thought dead, is not active."""


class NoClients:
    """A peer without MQTT clients."""

    def deliver(self, publication: Publication) -> int:
        return 0

    def deliver_fast(self, topic: bytes, body: bytes) -> bool | None:
        return False

    def retained(self, topic: str, body: bytes) -> None: ...


class GivenOverlay:
    """The ring as one peer sees it, set by the world."""

    def __init__(self, me: Peer) -> None:
        self.me = me
        self.active = False
        self.known: dict[Id, Peer] = {}

    @property
    def leaves(self) -> tuple[Peer, ...]:
        return tuple(self.known.values())

    @property
    def sees_all(self) -> bool:
        return True

    def send(self, peer: Peer, payload: bytes) -> bool:
        raise AssertionError("messages go through the context")

    def route(self, key: Id, payload: bytes) -> bool:
        raise AssertionError("nothing is routed here")

    def doubts(self, peer: Peer) -> bool:
        return peer.id not in self.known

    def find_way(self, peer: Peer) -> None: ...

    def owner(self, key: Id) -> Peer | None:
        return min([self.me, *self.known.values()], key=lambda peer: nearness(key, peer.id))

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        return ()

    def unwatch(self, key: Id) -> None: ...

    def news(self, key: Id) -> tuple[Peer, ...] | None:
        return None


class DirectContext(MessagingContext):
    """Passes messages to the world as they are."""

    __slots__ = ("post",)

    def __init__(
        self,
        overlay: Overlay,
        clients: LocalClients,
        config: PubSubConfig,
        clock: StillClock,
        post: Callable[[Peer, Peer, Message], None],
    ) -> None:
        super().__init__(overlay, clients, config, clock=clock)
        self.post = post

    def send(self, peer: Peer, message: object) -> None:
        if peer.id == self.me.id:
            self.local.append((self.me, message))  # type: ignore[arg-type]
        else:
            assert isinstance(message, Message)
            self.post(self.me, peer, message)


class ReplicationPeer:
    """A peer of the world: its coordinator, its model home, and its model publisher."""

    def __init__(self, world: ReplicationWorld, peer: Peer) -> None:
        self.world = world
        self.peer = peer
        self.overlay = GivenOverlay(peer)
        self.alive = True
        self.paused = False
        self.unnoticed = False
        """Whether the ring does not notice the present pause."""
        self.wake_at = inf
        self.backlog: list[Callable[[], None]] = []
        config = world.config
        self.state = DirectContext(self.overlay, NoClients(), config, world.clock, world.post)
        self.streams = Streams(self.state, encode_item, decode_item, self._handle_item, self._stream_lost)
        self.neighbourhood = Neighbourhood(lambda: peer, config.shadows)
        self.coordinator = Coordinator(self.state, self.streams, self.neighbourhood, Tombstones(self.state))
        self.directory = ModelDirectory(self.state, self.coordinator)
        self.home = ModelHome(self.state, self.streams, self.directory, world.checks)
        self.holder = ModelHolder(self.state, self.streams, self.directory, world.checks)
        copying, takeover = self.coordinator.copying, self.coordinator.takeover
        self._handlers: dict[type, Callable[..., None]] = {
            Register: self.coordinator.register,
            Registered: self.home.registered,
            Present: self.coordinator.present,
            Presented: self.home.presented,
            Registry: self.coordinator.registry,
            Elsewhere: self._elsewhere,
            Hold: self.coordinator.hold,
            Release: self.coordinator.release,
            Routes: self.holder.routes,
            Renew: self.coordinator.renew,
            Renewed: self.holder.renewed,
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
            Holders: self.coordinator.holders.holders,
            Recall: self.home.recall,
            Recalled: self.coordinator.recalls.recalled,
        }

    def start(self) -> None:
        every, config = self.state.every, self.state.config
        every(TICK_S, self.coordinator.tick)
        every(config.entry_s / 5, self.home.renew)
        every(config.ask_s, self.home.check)
        every(config.lease_s / 3, self.coordinator.claim)
        every(config.lease_s / 3, self.holder.renew)
        every(0.02, self.holder.publish)
        self.do(_nothing)

    def _handle_item(self, sender: Peer, item: object) -> None:
        self.world.note(self, sender, item)
        self._handlers[type(item)](sender, item)

    def _stream_lost(self, peer: Peer) -> None:
        self.world.note(self, peer, "lost")
        self.coordinator.stream_lost(peer)
        self.home.stream_lost(peer)
        self.holder.stream_lost(peer)

    def _acting(self, sender: Peer, message: Acting) -> None:
        self.directory.set_acting(sender, message.runs)

    def _elsewhere(self, sender: Peer, message: Elsewhere) -> None:
        self.directory.wrong(sender, message.runs)
        if message.actor is not None:
            self.directory.set_acting(message.actor, message.runs)
        self.home.elsewhere(sender, message)
        self.holder.elsewhere(sender, message)

    def receive(self, sender: Peer, message: Message) -> None:
        if isinstance(message, Batch):
            self.streams.received(sender, message)
        elif isinstance(message, BatchAck):
            self.streams.acknowledged(sender, message)
        elif isinstance(message, Silent):
            self.coordinator.silent(sender, message)
        elif isinstance(message, Check):
            self.coordinator.silence.check(sender, message)
        else:
            self.coordinator.silence.alive(sender, message)

    def do(self, call: Callable[[], None]) -> None:
        """One iteration, as `PartitionedEngine` makes it."""
        call()
        local = self.state.local
        steps = 0
        while True:
            while local:
                steps += 1
                assert steps < 100_000, f"{self.peer} goes round in circles"
                sender, message = local.popleft()
                self.receive(sender, message)  # type: ignore[arg-type]
            self.home.flush()
            self.coordinator.flush()
            if not local:
                break
        self.streams.acknowledge()
        self.streams.flush()
        self.world.arm(self)

    def tick(self) -> None:
        self.state.timers.run(self.world.clock.now)

    def sees(self, peer: Peer, there: bool) -> None:
        """This peer learns that another is a member of the ring, or is not."""
        known = self.overlay.known
        if there and peer.id != self.peer.id and known.get(peer.id) != peer:
            known[peer.id] = peer
        elif not there and known.get(peer.id) == peer:
            del known[peer.id]
            if self.world.closes:
                self.streams.close(peer)
        else:
            return
        self.coordinator.leaves_changed()
        self.home.coordinators_changed()

    def set_active(self, active: bool) -> None:
        if active != self.overlay.active:
            self.overlay.active = active
            self.coordinator.activity_changed(active)
            self.home.coordinators_changed()


class ReplicationWorld:
    """Many peers on one clock."""

    def __init__(self, seed: int, config: PubSubConfig, weather: Weather, *, names: int = 24, closes: bool = False):
        self.seed = seed
        self.config = config
        self.closes = closes
        """Whether streams to a peer that left the ring are closed."""
        self.random = Random(seed)
        self.clock = StillClock()
        self.network = Network(weather, Random(self.random.getrandbits(64)))
        self.checks = PublicationChecks(self.clock, config, Random(self.random.getrandbits(64)), names)
        self.peers: dict[Id, ReplicationPeer] = {}
        self.last: deque[str] = deque(maxlen=LAST_EVENTS)
        self.deaf: dict[tuple[Id, Id, Lane], float] = {}
        """Until when a lane of a pair loses all batches in one direction."""
        self.cuts: dict[tuple[Id, Id], float] = {}
        """Until when nothing passes from one peer to another, which the ring does not notice."""
        self.last_streams: dict[tuple[Peer, Peer], int] = {}
        """The number of the last stream from a peer to another."""
        self.sent: dict[str, int] = {}
        self._events: list[tuple[float, int, ReplicationPeer | None, Callable[[], None]]] = []
        self._count = count()
        self._boots = count(1)

    # Events

    def at(self, delay_s: float, peer: ReplicationPeer | None, call: Callable[[], None]) -> None:
        heappush(self._events, (self.clock.now + delay_s, next(self._count), peer, call))

    def arm(self, peer: ReplicationPeer) -> None:
        next_at = peer.state.timers.next_at
        if next_at < peer.wake_at:
            peer.wake_at = next_at
            wake: Callable[[], None] = partial(self._wake, peer)
            heappush(self._events, (max(next_at, self.clock.now), next(self._count), peer, wake))

    def _wake(self, peer: ReplicationPeer) -> None:
        peer.wake_at = inf
        peer.tick()

    def run(self, seconds: float) -> None:
        until, events = self.clock.now + seconds, self._events
        try:
            while events and events[0][0] <= until:
                self.clock.now, _, peer, call = heappop(events)
                if peer is None:
                    call()
                elif peer.paused:
                    peer.backlog.append(call)
                elif peer.alive:
                    peer.do(call)
        except Exception as broken:
            broken.add_note(self.trace())
            raise
        self.clock.now = until

    def post(self, sender: Peer, receiver: Peer, message: Message) -> None:
        peer = self.peers.get(receiver.id)
        if peer is None or not peer.alive:
            return
        now = self.clock.now
        if self.cuts and now < self.cuts.get((sender.id, receiver.id), -inf):
            return
        if isinstance(message, Batch) and now < self.deaf.get((sender.id, receiver.id, message.lane), -inf):
            return
        if isinstance(message, Batch):
            self.last_streams[sender, receiver] = message.stream
        self.sent[type(message).__name__] = self.sent.get(type(message).__name__, 0) + 1
        for delay_s in self.network.fates(sender.id, receiver.id, now):
            self.at(delay_s, peer, partial(peer.receive, sender, message))

    def note(self, peer: ReplicationPeer, sender: Peer, item: object) -> None:
        text = item if isinstance(item, str) else f"{item!r:.700}"
        self.last.append(f"{self.clock.now:9.4f} {peer.peer.id.short()} <- {sender.id.short()}: {text}")

    def trace(self) -> str:
        return "\n".join([f"seed {self.seed}, at {self.clock.now:.4f}; the last events:", *self.last])

    # Membership

    @property
    def live(self) -> list[ReplicationPeer]:
        return [peer for peer in self.peers.values() if peer.alive]

    def found(self, number: int) -> None:
        """A ring of this many peers, which have known each other for long."""
        for _ in range(number):
            self._add(Id(self.random.getrandbits(ID_BITS)))
        for peer in self.live:
            for other in self.live:
                peer.sees(other.peer, there=True)
            peer.set_active(active=True)
            peer.start()

    def _add(self, peer_id: Id) -> ReplicationPeer:
        boot = next(self._boots)
        peer = ReplicationPeer(self, Peer(peer_id, f"10.0.{boot >> 8}.{boot & 255}", 4883, boot))
        self.peers[peer_id] = peer
        return peer

    def join(self, peer_id: Id | None = None) -> ReplicationPeer:
        """A new peer, or with an id a crashed one that starts again."""
        peer = self._add(Id(self.random.getrandbits(ID_BITS)) if peer_id is None else peer_id)
        self._enter(peer)
        peer.start()
        return peer

    def _enter(self, peer: ReplicationPeer) -> None:
        uniform = self.random.uniform
        self.at(uniform(*JOINING_S), peer, partial(self._activate, peer))
        for other in self.live:
            if other is not peer:
                self.at(uniform(*NEWS_S), other, partial(self._news, other, peer))

    def _activate(self, peer: ReplicationPeer) -> None:
        for other in self.live:
            if other is not peer:
                peer.sees(other.peer, there=True)
                if other.paused and not other.unnoticed:
                    self.at(self.random.uniform(*DETECTION_S), peer, partial(self._detected, peer, other))
        peer.set_active(active=True)

    def _news(self, listener: ReplicationPeer, about: ReplicationPeer) -> None:
        if about.alive:
            listener.sees(about.peer, there=True)

    def deafen(self, sender: ReplicationPeer, receiver: ReplicationPeer, seconds: float) -> None:
        """A lane of a stream loses all batches for some time; other lanes and acknowledgements pass."""
        lane = self.random.choice((Lane.CONTROL, Lane.LOG))
        self.deaf[sender.peer.id, receiver.peer.id, lane] = self.clock.now + seconds

    def cut(self, peer: ReplicationPeer, others: Iterable[ReplicationPeer], seconds: float) -> None:
        """Nothing passes between a peer and these others for some time, while the others of the ring reach all."""
        until = self.clock.now + seconds
        for other in others:
            self.cuts[peer.peer.id, other.peer.id] = self.cuts[other.peer.id, peer.peer.id] = until

    def break_stream(self, sender: ReplicationPeer, receiver: ReplicationPeer) -> None:
        """The sender finds that its stream is lost, with all that it has sent and not heard of."""
        number = self.last_streams.get((sender.peer, receiver.peer))
        if number is not None:
            unknown = BatchAck(Lane.CONTROL, sender.peer.boot, number, 0, unknown=True)
            self.at(0.0, sender, partial(sender.receive, receiver.peer, unknown))

    def crash(self, peer: ReplicationPeer) -> None:
        peer.alive = False
        self.checks.crashed(peer.peer)
        self._detect(peer)

    def _detect(self, peer: ReplicationPeer) -> None:
        for other in self.live:
            if other is not peer:
                delay_s = self.random.uniform(*DETECTION_S)
                self.at(delay_s, other, partial(self._detected, other, peer))

    def _detected(self, listener: ReplicationPeer, peer: ReplicationPeer) -> None:
        if not peer.alive or peer.paused:
            listener.sees(peer.peer, there=False)

    def pause(self, peer: ReplicationPeer, seconds: float, *, noticed: bool = True) -> None:
        """Its process stands still; messages wait. A long pause that the ring notices ends its membership."""
        peer.paused, peer.unnoticed = True, not noticed
        self.checks.paused(peer.peer, seconds)
        if noticed:
            self._detect(peer)
        self.at(seconds, None, partial(self._resume, peer, seconds if noticed else 0.0))

    def _resume(self, peer: ReplicationPeer, seconds: float) -> None:
        if not peer.alive:
            return
        peer.paused = False
        # The core notices its pause before it looks at messages from the time of the pause.
        long = seconds >= DETECTION_S[0] * 0.9
        if long:
            peer.do(partial(peer.set_active, active=False))
        backlog, peer.backlog = peer.backlog, []
        for call in backlog:
            self.at(0.0, peer, call)
        if long:
            self._enter(peer)

    def agree(self) -> None:
        """All peers learn the truth, and the network has no faults any more."""
        self.network.weather = Weather(delay_s=self.network.weather.delay_s)
        self.deaf = {}
        self.cuts = {}
        for peer in self.live:
            assert not peer.paused, "let all pauses end first"
            for known in list(peer.overlay.known.values()):
                other = self.peers[known.id]
                if not other.alive or other.peer != known:
                    self.at(0.0, peer, partial(peer.sees, known, there=False))
            for other in self.live:
                self.at(0.01, peer, partial(peer.sees, other.peer, there=True))
            self.at(0.02, peer, partial(peer.set_active, active=True))

    # Checks

    def faults_when_quiet(self) -> Iterable[str]:
        """What must hold some time after the last change, and does not."""
        live = self.live
        for partition in self.checks.partitions:
            actors = [peer for peer in live if peer.coordinator.store.acting[partition]]
            owners = live[0].neighbourhood.owners(partition)
            if [peer.peer for peer in actors] != [owners[0]]:
                names = [peer.peer.id.short() for peer in actors]
                yield f"partition {partition}: {names} act, and not {owners[0].id.short()}"
                continue
            copies = {owner.id for owner in owners[: self.config.shadows + 1]}
            expected = _records(actors[0], partition)
            for peer in live:
                found = _records(peer, partition)
                if peer.peer.id in copies and found != expected:
                    yield f"partition {partition}: {peer.peer.id.short()} has {found}, its coordinator {expected}"
                elif peer.peer.id not in copies and found:
                    yield f"partition {partition}: {peer.peer.id.short()} still has {found}"
            for home in {home for _, home in expected}:
                if not any(peer.peer.id == home for peer in live):
                    yield f"partition {partition}: an entry of the dead home {home.short()}"
        for peer in live:
            if peer.home.pending:
                yield f"{peer.peer.id.short()} waits for {peer.home.pending}"
            if peer.coordinator.waiting:
                yield f"{peer.peer.id.short()} has {peer.coordinator.waiting} unanswered requests"
        yield from self.checks.not_in_force([peer.home for peer in live])


def _records(peer: ReplicationPeer, partition: int) -> set[tuple[str, Id]]:
    records = peer.coordinator.store.records(partition).values()
    return {(record.name, record.home.id) for record in records if record.home is not None and not record.gone}


def _nothing() -> None:
    """An iteration without a call of its own."""
