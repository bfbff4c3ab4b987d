"""The virtual world: cores, a clock, a network, and failures.

A heap has all events in the order of their virtual time. A step passes one message or one tick to one core. All random
choices follow from one seed, so equal seeds give equal traces, independently of PYTHONHASHSEED; `digest` proves it. A
broken invariant is raised with the seed and the last events.
"""

from __future__ import annotations

import gc
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Final

from ringmq.experiments.simulator.checks import Checks, InvariantBrokenError
from ringmq.experiments.simulator.connections import Connections, DialFailed, Hello, LinkBroke, Segment
from ringmq.experiments.simulator.network import Network, Weather
from ringmq.overlay.core.ids import ID_BITS, Id
from ringmq.overlay.core.leaf_set import HALF
from ringmq.overlay.core.messages import Message, Parcel, Peer, Route
from ringmq.overlay.core.ring import Ring
from ringmq.overlay.core.timing import Timing

CONNECTING: Final = frozenset({Hello, DialFailed})
LAST_EVENTS: Final = 60
"""Events in the trace of a failure."""

Delivery = Callable[["Node", Route], None]


class Tick:
    """Event of a core's deadline."""


class LinkLost:
    """Event of a link that broke or could not be opened."""


class MachineCall:
    """Event of the world itself, which no peer gets."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], None]) -> None:
        self.make = make


class SimulatedRing(Ring):
    """A ring that passes whole routed messages, including their hops, to the simulator."""

    __slots__ = ("node",)
    node: Node

    def arrived(self, route: Route) -> None:
        if isinstance(route.body, bytes):
            self.node.world.on_delivery(self.node, route)
        super().arrived(route)


class Node:
    """A peer of the world: its core, and its state in the world."""

    __slots__ = (
        "alive",
        "backlog",
        "checked",
        "free_at",
        "number",
        "paused",
        "peer",
        "ring",
        "sent",
        "undelivered",
        "wake",
        "world",
    )

    def __init__(self, world: World, number: int, peer: Peer, half: int) -> None:
        self.world = world
        self.number = number
        self.peer = peer
        self.ring = SimulatedRing(peer, world.timing, self, half)
        self.ring.node = self
        self.alive = True
        self.paused = False
        self.backlog: list[tuple[Peer, object]] = []
        self.wake = inf
        self.checked = 0
        self.free_at = 0.0
        """Time when its last parcel has left."""
        self.sent = 0
        self.undelivered = 0

    # Application of the ring. SimulatedRing observes the deliveries; the other calls have no effect here.

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None: ...
    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return True

    def receive(self, sender: Peer, payload: bytes) -> None: ...
    def undeliverable(self, key: Id, payload: bytes) -> None:
        self.undelivered += 1

    def unsent(self, payload: bytes) -> None: ...
    def link_lost(self, peer: Peer) -> None: ...
    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None: ...
    def leaves_changed(self) -> None: ...
    def activity_changed(self, active: bool) -> None: ...


class World:
    """Many peers on one clock. Add peers with `add`, let them `join`, advance time with `run`; then make them fail."""

    def __init__(
        self, seed: int, timing: Timing, weather: Weather | None = None, *, strict: bool = True, half: int = HALF
    ) -> None:
        self.seed = seed
        self.timing = timing
        self.random = Random(seed)
        self.network = Network(weather or Weather(), Random(self.random.getrandbits(64)))
        self.connections = Connections(self) if self.network.weather.connections else None
        self.checks = Checks(strict, 2 * timing.stabilise_s)
        self.half = half
        self.now = 0.0
        self.steps = 0
        self.digest = 0
        self.sent: Counter[str] = Counter()
        self.nodes: dict[Id, Node] = {}
        self.on_delivery: Delivery = self._check_delivery
        self.on_change: Callable[[Node], None] | None = None
        """Called when a peer's leaf set or activity has changed."""
        self.wall_s = 0.0
        self._events: list[tuple[float, int, Node, Peer | None, object]] = []
        self._entries = count()
        self._numbers = count()
        self._last: deque[tuple[float, int, Peer | None, object]] = deque(maxlen=LAST_EVENTS)
        self._kinds: dict[type, int] = {}

    def _check_delivery(self, node: Node, route: Route) -> None:
        self.checks.delivered(node.ring, route.key)

    # Peers

    def add(self, peer_id: Id | None = None) -> Node:
        """Add a peer that knows no other peer yet."""
        number = next(self._numbers)
        if peer_id is None:
            peer_id = Id(self.random.getrandbits(ID_BITS))
        assert peer_id not in self.nodes or not self.nodes[peer_id].alive, f"{peer_id!r} is alive"
        boot = number if peer_id in self.nodes else 0
        peer = Peer(peer_id, f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 4883, boot)
        node = self.nodes[peer_id] = Node(self, number, peer, self.half)
        self.checks.started(node.ring)
        return node

    def found(self, node: Node) -> None:
        node.ring.found(self.now)
        self._after(node)

    def join(self, node: Node, contact: Node) -> None:
        node.ring.join(contact.peer, self.now)
        self._after(node)

    def settle(self, node: Node, leaves: Iterable[Peer], entries: Iterable[Peer]) -> None:
        """Make the peer a member of a ring that has existed for a long time."""
        node.ring.restore(leaves, entries, self.now)
        self._after(node)

    def meet(self, node: Node, other: Node) -> None:
        node.ring.meet(other.peer, self.now)
        self._after(node)

    def route(self, node: Node, key: Id, payload: bytes) -> bool:
        accepted = node.ring.route(key, payload, self.now)
        self._after(node)
        return accepted

    def live(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.alive]

    # Failures

    def crash(self, node: Node) -> None:
        """Stop a peer for ever, silently unless the weather has resets."""
        node.alive = False
        self.checks.stopped(node.peer.id)
        if self.connections is not None:
            self.connections.crashed(node)
        elif self.network.weather.resets:
            for peer in node.ring.leaves:
                other = self.nodes.get(peer.id)
                if other is not None and other.alive:
                    self.push(self.network.delay(node.peer.id, peer.id), other, node.peer, LinkLost)

    def restart(self, node: Node, contact: Node) -> Node:
        """Start a peer with the same id again, without its earlier state."""
        assert not node.alive
        again = self.add(node.peer.id)
        self.join(again, contact)
        return again

    def leave(self, node: Node) -> None:
        """Let a peer say good-bye and stop."""
        node.ring.leave(self.now)
        self._post(node)
        node.alive = False
        self.checks.stopped(node.peer.id)

    def pause(self, node: Node) -> None:
        """Stop the process of a peer for a while; its messages wait in the backlog."""
        node.paused = True
        self.checks.stopped(node.peer.id)

    def resume(self, node: Node) -> None:
        node.paused = False
        self.checks.started(node.ring)
        backlog, node.backlog = node.backlog, []
        node.wake = self.now
        # The core must notice its pause before it processes a message from the time of the pause.
        node.ring.tick(self.now)
        self._after(node, force=True)
        for sender, event in backlog:
            self.push(0.0, node, sender, event)

    # Time

    def run(self, until: float, done: Callable[[], bool] | None = None, every_s: float = 0.0) -> bool:
        """Advance the time. With `done`, check it every `every_s`, and return early with True once it holds."""
        assert done is None or every_s > 0, "a condition needs an interval"
        if done is None:
            self._advance(until)
            return True
        while not done():
            if self.now >= until:
                return False
            self._advance(min(until, self.now + every_s))
        return True

    def _advance(self, until: float) -> None:
        started = time.perf_counter()
        events = self._events
        with _no_garbage_collection():
            try:
                while events and events[0][0] <= until:
                    moment, _, node, sender, event = heappop(events)
                    self.now = moment
                    if event.__class__ is MachineCall:
                        event.make()
                    else:
                        self._step(node, sender, event)
            except Exception as broken:
                broken.add_note(self.trace())
                raise
            finally:
                self.wall_s += time.perf_counter() - started
        self.now = until
        self.checks.end_of_grace(until)

    def _step(self, node: Node, sender: Peer | None, event: object) -> None:
        now = self.now
        if not node.alive:
            if self.connections is not None:
                self.connections.unheard(node, event)
                return
            # As in TCP, a reset is not answered by a reset.
            if sender is not None and event is not LinkLost and self.network.weather.resets:
                asker = self.nodes.get(sender.id)
                if asker is not None and asker.alive:
                    self.push(self.network.delay(node.peer.id, sender.id), asker, node.peer, LinkLost)
            return
        if node.paused:
            if sender is not None:
                node.backlog.append((sender, event))
            return
        # A tick that an earlier deadline has replaced: events stay in the heap.
        if sender is None and node.wake != now:
            return
        if event.__class__ is Segment and self.connections is not None:
            event = self.connections.received(node, event)
            if event is None:
                return
        self._last.append((now, node.number, sender, event))
        if sender is None:
            node.ring.tick(now)
        elif event is LinkLost or event is LinkBroke:
            node.ring.link_lost(sender, now, refused=event is LinkLost)
        elif event.__class__ in CONNECTING:
            self._connection_event(node, sender, event)
        else:
            node.ring.receive(sender, event, now)  # type: ignore[arg-type]
        self.steps += 1
        kinds = self._kinds
        kind = kinds.setdefault(event if isinstance(event, type) else event.__class__, len(kinds))
        self.digest = hash((self.digest, now, node.number, kind))
        self._after(node)

    def _connection_event(self, node: Node, sender: Peer, event: object) -> None:
        assert self.connections is not None, "only connections cause it"
        if isinstance(event, Hello):
            self.connections.greeted(node, sender, event.dial)
        elif isinstance(event, DialFailed):
            if not self.connections.is_open(node, sender):
                node.ring.link_lost(sender, self.now, refused=True)
            for payload in event.parcels:
                node.unsent(payload)

    def _after(self, node: Node, force: bool = False) -> None:
        ring = node.ring
        self._post(node)
        deadline = ring.deadline()
        # For a later deadline the pending tick is kept: it finds no work and sets the next one.
        if deadline < node.wake or node.wake <= self.now:
            node.wake = deadline
            heappush(self._events, (deadline, next(self._entries), node, None, Tick))
        if force or ring.version != node.checked:
            node.checked = ring.version
            self.checks.step(ring, self.now)
            if self.on_change is not None:
                self.on_change(node)

    def _post(self, node: Node) -> None:
        outbox = node.ring.take_outbox()
        if not outbox:
            return
        if self.connections is not None:
            node.sent += len(outbox)
            for peer, message in outbox:
                self.sent[_kind(message)] += 1
                self.connections.send(node, peer, message)
            return
        now, nodes, me = self.now, self.nodes, node.peer
        fates, events, entries, sent = self.network.fates, self._events, self._entries, self.sent
        node.sent += len(outbox)
        in_turn = self.network.in_turn
        for peer, message in outbox:
            sent[_kind(message)] += 1
            leaves_at = self._leaves_at(node, message) if in_turn and isinstance(message, Parcel) else now
            receiver = nodes.get(peer.id)
            if receiver is not None:
                for delay in fates(me.id, peer.id, now):
                    heappush(events, (leaves_at + delay, next(entries), receiver, me, message))

    def _leaves_at(self, node: Node, parcel: Parcel) -> float:
        """Time when a parcel has left its sender, after all earlier parcels."""
        node.free_at = max(self.now, node.free_at) + self.network.weather.takes_s(len(parcel.payload))
        return node.free_at

    def push(self, delay: float, node: Node, sender: Peer, event: object) -> None:
        """Let something come to a peer from another after a delay."""
        heappush(self._events, (self.now + delay, next(self._entries), node, sender, event))

    def call_later(self, node: Node, delay: float, make: Callable[[], None]) -> None:
        """Do something later that concerns the machine of a peer, whatever its process does by then."""
        heappush(self._events, (self.now + delay, next(self._entries), node, None, MachineCall(make)))

    # Figures and the trace

    @property
    def messages(self) -> int:
        return sum(self.sent.values())

    @property
    def events_per_s(self) -> float:
        return self.steps / self.wall_s if self.wall_s else 0.0

    def trace(self) -> str:
        """The seed and the last events, which reproduce and explain a failure."""
        lines = [f"seed {self.seed}, at {self.now:.6f} s, after {self.steps} steps; the last events:"]
        for moment, number, sender, event in self._last:
            lines.append(f"  {moment:.6f} peer {number} <- {sender or 'clock'}: {_shortened(event)}")
        return "\n".join(lines)


def _kind(message: Message) -> str:
    """The kind of a message in the counts; the kind of a routed message is that of its body."""
    if isinstance(message, Route):
        return "Lookup" if isinstance(message.body, bytes) else message.body.__class__.__name__
    return message.__class__.__name__


def _shortened(event: object) -> str:
    """An event as one short line, with the first digits of ids, and the lengths of lists."""
    if isinstance(event, type):
        return event.__name__
    parts = []
    for field in getattr(event, "__struct_fields__", ()):
        value = getattr(event, field)
        text = value.short() if isinstance(value, Id) else f"{len(value)}" if isinstance(value, tuple) else str(value)
        parts.append(f"{field}={text[:40]}")
    return f"{event.__class__.__name__}({', '.join(parts)})"


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Switch garbage collection off: running cores make no cycles, and scanning 10^5 of them takes most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


__all__ = ["InvariantBrokenError", "Node", "World"]
