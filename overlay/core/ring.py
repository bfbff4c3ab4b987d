"""The ring core: one peer's whole part in the overlay, as calls in and messages out.

Messages, broken links and the time come in; messages to send (`take_outbox`), calls to the application and the next
deadline come out. There is no socket, task, clock or random number in here or below, so the simulator runs the same
code on virtual time. The parts: `membership` (the leaf set), `failure_detector` (suspicions and deaths), `forwarding`
(routed messages), `ownership` (the owners of watched keys).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ringmq.overlay.core.codec import unwrap
from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.forwarding import Forwarding
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.leaf_set import HALF, LeafSet
from ringmq.overlay.core.liveness.detours import PONG
from ringmq.overlay.core.liveness.failure_detector import DeathSource, FailureDetector
from ringmq.overlay.core.membership import Membership, Upward
from ringmq.overlay.core.messages import (
    Admit,
    Answer,
    Dead,
    Doubt,
    Grant,
    Heartbeat,
    Here,
    Join,
    Joined,
    Late,
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
    Question,
    Receipt,
    Relay,
    Route,
    RouteAck,
    Row,
    RowRequest,
)
from ringmq.overlay.core.ownership import Ownership
from ringmq.overlay.core.routing import RoutingTable
from ringmq.overlay.core.timers import TimerQueue
from ringmq.overlay.core.timing import Timing
from ringmq.overlay.errors import ProtocolError

Handler = Callable[..., None]
"""The method of a part for one kind of message. Arguments: the sender and the message."""


class Application(Protocol):
    """The layer above the ring, notified by plain calls."""

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None:
        """This peer owns `key`; the message has arrived."""

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        """The message passes through here. False intercepts it, and it counts as delivered."""

    def receive(self, sender: Peer, payload: bytes) -> None:
        """Bytes that another peer sent here with `Ring.send`."""

    def undeliverable(self, key: Id, payload: bytes) -> None:
        """A message routed from here was given up after all its tries."""

    def unsent(self, payload: bytes) -> None:
        """Bytes that were sent with `Ring.send` to a peer to which no link could be opened."""

    def link_lost(self, peer: Peer) -> None:
        """The link to this peer broke, or none can be opened: often the first sign of its death."""

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        """The peers closest to a watched key are now these, the owner first."""

    # Not for each member that enters or leaves: the layer above computes its part of the ring anew each time.
    def leaves_changed(self) -> None:
        """The leaf set has changed. Called at the end of the call into the ring, or earlier, before `deliver`,
        `receive`, `link_lost` or `activity_changed`."""

    def activity_changed(self, active: bool) -> None:
        """This peer serves keys from now on, or it no longer does."""


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
        "_leaves_changed",
        "_membership",
        "_ownership",
        "_state",
        "active",
        "failure_detector",
        "me",
        "on_answer",
        "on_question",
    )

    def __init__(self, me: Peer, timing: Timing, application: Application, half: int = HALF) -> None:
        self.me = me
        self.active = False
        """Whether this peer serves keys: its whole leaf set knows it. An attribute, as every message asks for it."""
        self._application = application
        self._state = RingContext(me, timing, half)
        self.failure_detector = FailureDetector(self._state, self._on_death, self._on_return)
        self._membership = Membership(self._state, self.failure_detector, Upward(self._changed, self._activity))
        self._forwarding = Forwarding(self._state, self.failure_detector, self)
        self._ownership = Ownership(self._state, application.owners_changed)
        # One lookup by type per message; a chain of comparisons would grow with each kind.
        self._handlers = self._handlers_of_parts()
        self._last: float | None = None
        self._leaves_changed = False
        """Whether the application must still be notified of it."""
        # Not part of `Application`: a simulated ring answers no questions.
        self.on_question: Callable[[Peer, Question], None] = _ignore
        self.on_answer: Callable[[Peer, Answer], None] = _ignore

    @property
    def leaves(self) -> LeafSet:
        return self._state.leaves

    @property
    def table(self) -> RoutingTable:
        return self._state.table

    @property
    def outbox(self) -> list[tuple[Peer, Message]]:
        """Messages to send now; always the same list, so that the shell can look into it without a call."""
        return self._state.outbox

    @property
    def timers(self) -> TimerQueue:
        """The shell looks at its deadline at the end of each iteration of its event loop."""
        return self._state.timers

    @property
    def version(self) -> int:
        """Grows with every change of the leaf set or of `active`."""
        return self._state.version

    def found(self, now: float) -> None:
        """Become the first peer of a new ring."""
        self._at(now)
        self._membership.found()
        self._report_leaves()

    def restore(self, leaves: Iterable[Peer], entries: Iterable[Peer], now: float) -> None:
        """Start as a member whom the other members know already: how a simulation begins at full size."""
        self._at(now)
        self._membership.restore(leaves, entries)
        self._report_leaves()

    def join(self, contact: Peer, now: float) -> None:
        """Ask for a place through a peer that answered a handshake; may be called again with another."""
        self._at(now)
        self._membership.join(contact)
        self._report_leaves()

    def meet(self, peer: Peer, now: float) -> None:
        """A hint: this peer answered a handshake. If it turns out to be of another ring, the two rings become one."""
        self._at(now)
        self._membership.meet(peer)
        self._report_leaves()

    def leave(self, now: float) -> None:
        """Notify the neighbours that this peer stops. The last call, before the last outbox."""
        self._at(now)
        leaves = self._state.leaves.peers
        for peer in leaves:
            self._state.post(peer, Leaving(leaves))

    def route(self, key: Id, payload: bytes, now: float) -> bool:
        """Send to the owner of a key. False: too many messages are on their way, try later."""
        self._at(now)
        accepted = self._forwarding.route(key, payload)
        self._report_leaves()
        return accepted

    def send(self, peer: Peer, payload: bytes) -> None:
        """Send to a peer whose address is known, once: no acknowledgement, no retry."""
        self._state.post(peer, Parcel(payload))

    def post(self, peer: Peer, message: Question | Answer) -> None:
        """Ask another peer of the ring something about itself, or answer it: once, without a retry."""
        self._state.post(peer, message)

    def owner(self, key: Id) -> Peer | None:
        """The owner of a key, if it is certain here: the key is near enough, and its owner not under suspicion."""
        state = self._state
        if not state.active or not state.leaves.covers(key):
            return None
        peer = state.leaves.closest(key)
        if peer is None:
            return state.me
        return None if peer.id in self.failure_detector.suspects else peer

    def doubts(self, peer: Peer) -> bool:
        """Whether the peer is under suspicion here, or held for dead."""
        return peer.id in self.failure_detector.suspects or self.failure_detector.considers_dead(peer)

    def find_way(self, peer: Peer, now: float) -> None:
        """Nothing comes from a peer that should answer: if a third peer hears it, go through that one."""
        self._at(now)
        self.failure_detector.detours.search(peer)

    @property
    def detours(self) -> Mapping[Id, Peer]:
        """The peers through which others are reached that do not hear this one."""
        return self._state.detours

    def member(self, peer_id: Id) -> Peer | None:
        """The member of the leaf set with this id, if it is not under suspicion."""
        return None if peer_id in self.failure_detector.suspects else self._state.leaves.get(peer_id)

    def owners(self, key: Id, count: int) -> tuple[Peer, ...]:
        """The peers closest to a key near this peer, the owner first."""
        return self._ownership.owners(key, count)

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        """Call `owners_changed` when the `count` peers closest to the key change. Returns these peers."""
        return self._ownership.watch(key, count)

    def unwatch(self, key: Id) -> None:
        self._ownership.unwatch(key)

    def news(self, key: Id) -> tuple[Peer, ...] | None:
        """The new owners of a watched key, instead of a call of `owners_changed` that is still due. None: no change.

        When many keys change hands at once, the calls take a while. A caller that acts on a key meanwhile must ask
        here, or it would act on other owners than `route`.
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

    def receive(self, sender: Peer, message: Message, now: float) -> None:
        """A message has come over the link of this peer."""
        self._at(now)
        if sender.id == self._state.me.id:
            return
        self.failure_detector.heard(sender)
        self._handlers[type(message)](sender, message)
        self._report_leaves()

    def parcel(self, sender: Peer, payload: bytes, now: float) -> None:
        """Bytes of the application have come over the link of this peer: `receive` without a message object."""
        self._at(now)
        self.failure_detector.heard(sender)
        # Not by a call: every publication passes here.
        if self._leaves_changed:
            self._report_leaves()
        self._application.receive(sender, payload)

    def link_lost(self, peer: Peer, now: float, refused: bool) -> None:
        """The connection broke (refused=False), or none can be opened (refused=True)."""
        self._at(now)
        if refused and peer.id in self._state.detours:
            return  # it was tried again, and is reached on its detour
        self.failure_detector.detours.helper_lost(peer)
        if refused:
            self.failure_detector.link_refused(peer)
        else:
            self.failure_detector.suspect(peer)
        self._forwarding.lost(peer)
        self._report_leaves()
        self._application.link_lost(peer)

    def tick(self, now: float) -> None:
        """Run the due timers. Call it when the deadline has come."""
        self._at(now)
        self.failure_detector.patience.ran(now - self._state.timers.next_at)
        self._state.timers.run(now)
        self._report_leaves()

    def deadline(self) -> float:
        return self._state.timers.next_at

    def take_outbox(self) -> list[tuple[Peer, Message]]:
        """Remove and return the messages to send, in this order."""
        outbox = self._state.outbox
        taken = outbox[:]
        # The list itself stays: the shell holds it and looks into it without a call.
        outbox.clear()
        return taken

    def _at(self, now: float) -> None:
        """Set the time of a call. A peer that was stopped for long must not act on its old knowledge."""
        state = self._state
        last, self._last = self._last, now
        state.now = now
        if last is not None and now - last > state.timing.fence_s and self._was_away(now - last):
            # Others may have declared this peer dead meanwhile, and its keys have other owners then.
            state.counters.pauses += 1
            self.failure_detector.withdraw_suspicions()
            self._membership.verify()

    def _was_away(self, paused_s: float) -> bool:
        """Whether others may have declared this peer dead while it did nothing for so long."""
        state, patience = self._state, self.failure_detector.patience
        return bool(state.active or state.leaves) and paused_s > state.timing.fence_s + patience.assured_s

    def _on_death(self, peer: Peer, source: DeathSource) -> None:
        # The leaf set loses the peer first: messages routed around it then go to the new owners.
        self._membership.on_death(peer, source)
        self._forwarding.lost(peer)
        self._forwarding.reconsider()

    def _on_return(self, peer: Peer, was_dead: bool) -> None:
        self._membership.on_return(peer, was_dead)
        self._forwarding.reconsider()

    def _changed(self, entered: Peer | None, left: Peer | None) -> None:
        self._leaves_changed = True
        self._ownership.changed(entered, left)

    def _report_leaves(self) -> None:
        # The flag first: the application may call the ring, and that call reports as well.
        if self._leaves_changed:
            self._leaves_changed = False
            self._application.leaves_changed()

    def _activity(self, active: bool) -> None:
        self.active = active
        self._report_leaves()
        self._application.activity_changed(active)
        if active:
            self._forwarding.reconsider()

    def arrived(self, route: Route) -> None:
        body = route.body
        if isinstance(body, bytes):
            # A message that was rerouted after a death may have come to this peer as the new owner.
            self._report_leaves()
            self._application.deliver(route.key, body, route.origin)
        elif isinstance(body, Join):
            # It arrived at the owner of the joiner's id, which is not always the peer whose gap it falls into.
            self._membership.gate.admit(Admit(route.origin, body.rows, 0, False))
        else:
            self._membership.consider((route.origin,))

    def may_pass(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return self._application.forward(key, payload, next_hop)

    def undeliverable(self, key: Id, payload: bytes) -> None:
        self._application.undeliverable(key, payload)

    def _handlers_of_parts(self) -> dict[type, Handler]:
        membership, forwarding, failure_detector = self._membership, self._forwarding, self.failure_detector
        return {
            Heartbeat: membership.on_heartbeat,
            Probe: membership.on_probe,
            ProbeAck: membership.on_probe_ack,
            Ping: self._on_ping,
            Pong: self._on_pong,
            PingRequest: failure_detector.on_ping_request,
            PingResult: failure_detector.on_ping_result,
            Dead: membership.on_dead,
            Doubt: membership.on_doubt,
            Late: failure_detector.patience.on_late,
            Leaving: membership.on_leaving,
            Admit: self._on_admit,
            Grant: membership.on_grant,
            Joined: self._on_joined,
            RowRequest: membership.on_row_request,
            Row: membership.on_row,
            Here: self._on_here,
            RouteAck: forwarding.on_route_ack,
            Receipt: forwarding.on_receipt,
            Parcel: self._on_parcel,
            Relay: self._on_relay,
            Route: forwarding.on_route,
            Question: self._on_question,
            Answer: self._on_answer,
        }

    def _on_ping(self, sender: Peer, _: Ping) -> None:
        # It came directly. If the answer does so too, neither direction is broken.
        self._state.post_directly(sender, PONG)

    def _on_pong(self, sender: Peer, _: Pong) -> None:
        """`heard` has noted its sender already."""
        self.failure_detector.detours.answered_directly(sender)

    def _on_admit(self, _: Peer, request: Admit) -> None:
        self._membership.gate.admit(request)

    def _on_joined(self, sender: Peer, _: Joined) -> None:
        self._membership.gate.release(sender.id)

    def _on_here(self, sender: Peer, _: Here) -> None:
        self._state.table.offer(sender)

    def _on_relay(self, sender: Peer, relay: Relay) -> None:
        state, origin = self._state, relay.origin
        if relay.target.id != state.me.id:
            self.failure_detector.detours.pass_on(sender, relay)
            return
        try:
            message = unwrap(relay)
        except ProtocolError:
            state.counters.unrelayed += 1
            return
        known = state.leaves.get(origin.id)
        if origin.id == state.me.id or (known is not None and known.boot != origin.boot):
            # A helper may be wrong about others. A peer that has started again is heard of by its neighbours.
            state.counters.unrelayed += 1
            return
        # Answers must come to it on the same way.
        self.failure_detector.detours.came(origin, sender)
        self.failure_detector.lives(origin)
        if isinstance(message, Ping):
            state.post(origin, PONG)
        elif not isinstance(message, Pong):
            # A Pong has done its work by now; only one that comes directly ends the detour.
            self._handlers[type(message)](origin, message)

    def _on_parcel(self, sender: Peer, parcel: Parcel) -> None:
        self._report_leaves()
        self._application.receive(sender, parcel.payload)

    def _on_question(self, sender: Peer, question: Question) -> None:
        self.on_question(sender, question)

    def _on_answer(self, sender: Peer, answer: Answer) -> None:
        self.on_answer(sender, answer)


def _ignore(_: Peer, message: Question | Answer) -> None:
    """Nobody here asks or answers."""
