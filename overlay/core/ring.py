"""The ring core: one peer's whole part in the overlay, as calls in and messages out.

Messages, broken links and the time come in; messages to send (`take_outbox`), calls to the application and the next
deadline come out. No socket, task, clock or random number in here or below, so that the simulator runs the same
code on virtual time. The parts: `membership` (who is in the leaf set), `failure_detector` (who lives), `forwarding`
(routed messages), `ownership` (whose a key is).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.failure_detector import PONG, FailureDetector, Source
from ringmq.overlay.core.forwarding import Forwarding
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.leaf_set import HALF, LeafSet
from ringmq.overlay.core.membership import Membership, Upward
from ringmq.overlay.core.messages import (
    Admit,
    Dead,
    Doubt,
    Grant,
    Heartbeat,
    Here,
    Join,
    Joined,
    Leaving,
    Message,
    Parcel,
    Peer,
    Ping,
    PingRequest,
    PingResult,
    Pong,
    Probe,
    ProbeAck,
    Receipt,
    Route,
    RouteAck,
    Row,
    RowRequest,
)
from ringmq.overlay.core.ownership import Ownership
from ringmq.overlay.core.routing import RoutingTable
from ringmq.overlay.core.timers import TimerQueue
from ringmq.overlay.core.timing import Timing

Handler = Callable[..., None]
"""What a part does with one kind of message: takes the sender and the message."""


class Application(Protocol):
    """What the ring tells the layer above, by plain calls."""

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None:
        """This peer owns `key`; the message has arrived."""

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        """The message passes through here; False takes it off its way, and it counts as delivered."""

    def receive(self, sender: Peer, payload: bytes) -> None:
        """Bytes that another peer sent here with `Ring.send`."""

    def undeliverable(self, key: Id, payload: bytes) -> None:
        """A message routed from here was given up after all its tries."""

    def unsent(self, payload: bytes) -> None:
        """What was sent with `Ring.send`, to a peer to whom no link could be opened."""

    def link_lost(self, peer: Peer) -> None:
        """The link to this peer broke, or none can be opened: often the first sign of its death."""

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        """The peers closest to a watched key are now these, the owner first."""

    def activity_changed(self, active: bool) -> None:
        """From now on this peer serves keys, or it no longer does."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot, for status pages and tests."""

    active: bool
    clockwise: tuple[Peer, ...]
    counterclockwise: tuple[Peer, ...]
    table_size: int
    suspects: int
    dead: int
    unreceipted: int
    counters: dict[str, int]


class Ring:
    """One peer of the ring. After each call take the outbox, and call `tick` when `deadline` has come."""

    __slots__ = (
        "_application",
        "_forwarding",
        "_handlers",
        "_last",
        "_membership",
        "_ownership",
        "_state",
        "active",
        "failure_detector",
        "me",
    )

    def __init__(self, me: Peer, timing: Timing, application: Application, half: int = HALF) -> None:
        self.me = me
        self.active = False
        """Whether this peer serves keys: its whole leaf set knows it. An attribute, as every message asks for it."""
        self._application = application
        self._state = RingContext(me, timing, half)
        self.failure_detector = FailureDetector(self._state, self._died, self._back)
        self._membership = Membership(self._state, self.failure_detector, Upward(self._changed, self._activity))
        self._forwarding = Forwarding(self._state, self.failure_detector, self)
        self._ownership = Ownership(self._state, application.owners_changed)
        self._handlers = self._handlers_of_parts()
        self._last: float | None = None

    @property
    def leaves(self) -> LeafSet:
        return self._state.leaves

    @property
    def table(self) -> RoutingTable:
        return self._state.table

    @property
    def outbox(self) -> list[tuple[Peer, Message]]:
        """What must be sent now; always the same list, so that the shell can look into it without a call."""
        return self._state.outbox

    @property
    def timers(self) -> TimerQueue:
        """When what is due is the shell's to ask, at the end of each iteration of its event loop."""
        return self._state.timers

    @property
    def version(self) -> int:
        """Grows with every change of the leaf set or of `active`."""
        return self._state.version

    # Calls from above

    def found(self, now: float) -> None:
        """Be the first peer of a new ring."""
        self._at(now)
        self._membership.found()

    def settled(self, leaves: Iterable[Peer], entries: Iterable[Peer], now: float) -> None:
        """Be a member of a ring whose other members know this one already: how a simulation begins at full size."""
        self._at(now)
        self._membership.settled(leaves, entries)

    def join(self, contact: Peer, now: float) -> None:
        """Ask for a place through a peer that answered a handshake; may be called again with another."""
        self._at(now)
        self._membership.join(contact)

    def meet(self, peer: Peer, now: float) -> None:
        """A hint: this peer answered a handshake. If it turns out to be of another ring, the two become one."""
        self._at(now)
        self._membership.meet(peer)

    def leave(self, now: float) -> None:
        """Tell the neighbours that this peer stops; the last call, before the last outbox."""
        self._at(now)
        leaves = self._state.leaves.peers
        for peer in leaves:
            self._state.post(peer, Leaving(leaves))

    def route(self, key: Id, payload: bytes, now: float) -> bool:
        """Send to the owner of a key. False: too many messages are on their way, try later."""
        self._at(now)
        return self._forwarding.route(key, payload)

    def send(self, peer: Peer, payload: bytes) -> None:
        """Send to a peer whose address is known, once: no acknowledgement, no retry."""
        self._state.post(peer, Parcel(payload))

    def owner(self, key: Id) -> Peer | None:
        """Who owns a key, if there is no doubt about it here: it is near enough, and its owner not under suspicion."""
        state = self._state
        if not state.active or not state.leaves.covers(key):
            return None
        peer = state.leaves.closest(key)
        if peer is None:
            return state.me
        return None if peer.id in self.failure_detector.suspects else peer

    def doubts(self, peer: Peer) -> bool:
        """Whether it is silent here, as far as is known: under suspicion, or held for dead."""
        return peer.id in self.failure_detector.suspects or self.failure_detector.holds_for_dead(peer)

    def owners(self, key: Id, count: int) -> tuple[Peer, ...]:
        """The peers closest to a key near this peer, the owner first."""
        return self._ownership.owners(key, count)

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        """Be told by `owners_changed` when the `count` peers closest to the key are others; returns who they are."""
        return self._ownership.watch(key, count)

    def unwatch(self, key: Id) -> None:
        self._ownership.unwatch(key)

    def news(self, key: Id) -> tuple[Peer, ...] | None:
        """What `owners_changed` would soon be told of a watched key, and now is not. None: nothing.

        Where many keys change hands at once, that takes a while. Who acts on one meanwhile has to ask, or it would act
        on other owners than `route`.
        """
        return self._ownership.news(key)

    def statistics(self) -> Statistics:
        state = self._state
        return Statistics(
            active=state.active,
            clockwise=state.leaves.clockwise,
            counterclockwise=state.leaves.counterclockwise,
            table_size=len(state.table),
            suspects=len(self.failure_detector.suspects),
            dead=len(self.failure_detector.dead),
            unreceipted=self._forwarding.outstanding,
            counters=state.counters.as_dict(),
        )

    # Calls from the shell

    def receive(self, sender: Peer, message: Message, now: float) -> None:
        """A message has come over the link of this peer."""
        self._at(now)
        if sender.id == self._state.me.id:
            return
        self.failure_detector.heard(sender)
        self._handlers[type(message)](sender, message)

    def parcel(self, sender: Peer, payload: bytes, now: float) -> None:
        """The same, of bytes of the application."""
        self._at(now)
        self.failure_detector.heard(sender)
        self._application.receive(sender, payload)

    def link_lost(self, peer: Peer, now: float, refused: bool) -> None:
        """The connection broke (refused=False), or none can be opened (refused=True)."""
        self._at(now)
        if refused:
            self.failure_detector.refused(peer)
        else:
            self.failure_detector.suspect(peer)
        self._forwarding.lost(peer)
        self._application.link_lost(peer)

    def tick(self, now: float) -> None:
        """Do what is due; to be called when the deadline has come."""
        self._at(now)
        self._state.timers.run(now)

    def deadline(self) -> float:
        return self._state.timers.next_at

    def take_outbox(self) -> list[tuple[Peer, Message]]:
        """What must be sent now, in this order."""
        outbox = self._state.outbox
        taken = outbox[:]
        outbox.clear()
        return taken

    def _at(self, now: float) -> None:
        """A peer that was stopped for long must not act on what it knew before."""
        state = self._state
        last, self._last = self._last, now
        state.now = now
        if last is not None and now - last > state.timing.fence_s and (state.active or state.leaves):
            state.counters.pauses += 1
            self.failure_detector.start_over()
            self._membership.verify()

    # Calls from the parts

    def _died(self, peer: Peer, source: Source) -> None:
        self._membership.died(peer, source)
        self._forwarding.lost(peer)
        self._forwarding.reconsider()

    def _back(self, peer: Peer, was_dead: bool) -> None:
        self._membership.back(peer, was_dead)
        self._forwarding.reconsider()

    def _changed(self, entered: Peer | None, left: Peer | None) -> None:
        self._ownership.changed(entered, left)

    def _activity(self, active: bool) -> None:
        self.active = active
        self._application.activity_changed(active)
        if active:
            self._forwarding.reconsider()

    def arrived(self, route: Route) -> None:
        body = route.body
        if isinstance(body, bytes):
            self._application.deliver(route.key, body, route.origin)
        elif isinstance(body, Join):
            self._membership.gate.admit(Admit(route.origin, body.rows, 0, False))
        else:
            self._membership.consider((route.origin,))

    def passing(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return self._application.forward(key, payload, next_hop)

    def given_up(self, key: Id, payload: bytes) -> None:
        self._application.undeliverable(key, payload)

    # What each message causes

    def _handlers_of_parts(self) -> dict[type, Handler]:
        membership, forwarding, failure_detector = self._membership, self._forwarding, self.failure_detector
        return {
            Heartbeat: membership.heartbeat,
            Probe: membership.probed,
            ProbeAck: membership.acknowledged,
            Ping: self._on_ping,
            Pong: self._on_nothing_more,
            PingRequest: failure_detector.take_errand,
            PingResult: failure_detector.errand_done,
            Dead: membership.told_dead,
            Doubt: membership.doubted,
            Leaving: membership.told_leaving,
            Admit: self._on_admit,
            Grant: membership.granted,
            Joined: self._on_joined,
            RowRequest: membership.row_asked,
            Row: membership.row_told,
            Here: self._on_here,
            RouteAck: forwarding.acknowledged,
            Receipt: forwarding.receipt,
            Parcel: self._on_parcel,
            Route: forwarding.take,
        }

    def _on_ping(self, sender: Peer, _: Ping) -> None:
        self._state.post(sender, PONG)

    def _on_nothing_more(self, sender: Peer, _: Pong) -> None:
        """That it came was all it had to say."""

    def _on_admit(self, _: Peer, request: Admit) -> None:
        self._membership.gate.admit(request)

    def _on_joined(self, sender: Peer, _: Joined) -> None:
        self._membership.gate.released(sender.id)

    def _on_here(self, sender: Peer, _: Here) -> None:
        self._state.table.offer(sender)

    def _on_parcel(self, sender: Peer, parcel: Parcel) -> None:
        self._application.receive(sender, parcel.payload)
