"""Membership of the leaf set: entering the ring, notifying the neighbours, and repair after failures.

A peer enters a leaf set only when it has been heard itself. The leaf sets of others are hearsay: their members are
probed first. A `Probe` and its `ProbeAck` show both leaf sets, so probing goes on until it brings no new peer. A
joining peer becomes active, that is, serves keys, only when its whole leaf set has acknowledged it (MSPastry's
consistent routing) and while its grant lasts (`overlay.core.joining`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.joining import Gatekeeper
from ringmq.overlay.core.liveness.detours import PING
from ringmq.overlay.core.liveness.failure_detector import DeathSource, FailureDetector
from ringmq.overlay.core.messages import (
    Dead,
    Doubt,
    Grant,
    Heartbeat,
    Here,
    Join,
    Joined,
    Leaving,
    Peer,
    Probe,
    ProbeAck,
    Route,
    Row,
    RowRequest,
    Seek,
)

MAX_CONTACTS: Final = 16
"""Peers remembered to join through; a later contact replaces the oldest."""
MAX_PATIENCE: Final = 4.0
"""A joining peer waits at most this many join_s between two requests: the queue of a gap may be long."""

SEEK_EVERY: Final = 10
"""Rows received from far peers per search for our place through the sender, which detects that the sender is in
another ring by now. A search costs as much as a lookup, so it is rare."""

JOIN: Final = Join(())
SEEK: Final = Seek()
JOINED: Final = Joined()
HERE: Final = Here()


class Upward(NamedTuple):
    """Callbacks of the membership."""

    changed: Callable[[Peer | None, Peer | None], None]
    """The leaf set has changed: the peer that entered, and the peer that left."""
    activity: Callable[[bool], None]
    """This peer has become active, or has stopped being active."""


class Inquiry:
    """A peer that was asked to acknowledge this peer, until it does or is declared dead."""

    __slots__ = ("asked_at", "peer", "tries")

    def __init__(self, peer: Peer, now: float) -> None:
        self.peer = peer
        self.asked_at = now
        self.tries = 0


class Membership:
    """Owns the leaf set, the routing table and `RingContext.active`."""

    __slots__ = (
        "_attempts",
        "_changed_since_repair",
        "_contacts",
        "_grant_asked_at",
        "_granter",
        "_joining",
        "_patience",
        "_repairing",
        "_rounds",
        "_row_asked",
        "_rows_received",
        "_sought_at",
        "_started",
        "_state",
        "_upward",
        "_verifying",
        "failure_detector",
        "gate",
        "inquiries",
    )

    def __init__(self, state: RingContext, failure_detector: FailureDetector, upward: Upward) -> None:
        self._state = state
        self._upward = upward
        self.failure_detector = failure_detector
        self.gate = Gatekeeper(state)
        self.inquiries: dict[Id, Inquiry] = {}
        self._contacts: dict[Id, Peer] = {}
        self._joining = False
        self._verifying = False
        self._granter: Peer | None = None
        self._grant_asked_at: float | None = None
        self._patience = 1.0
        self._attempts = 0
        self._repairing = False
        self._row_asked: Peer | None = None
        self._rows_received = 0
        self._changed_since_repair = False
        self._sought_at = float("-inf")
        self._rounds = 0
        self._started = False

    def found(self) -> None:
        """Become the first peer of a new ring."""
        self._start()
        self._activate()

    def restore(self, leaves: Iterable[Peer], entries: Iterable[Peer]) -> None:
        """Start as an old member of a ring, with the leaf set and the table entries that joining would have brought."""
        self._state.leaves.fill(leaves)
        self._changed(None, None)
        for peer in entries:
            self._state.table.offer(peer)
        self._start()
        self._verifying = True
        self._activate()

    def join(self, contact: Peer) -> None:
        """Ask for a place through this contact, and through any other contacts, until it is granted."""
        if self._state.active or contact.id == self._state.me.id:
            self.meet(contact)
            return
        self._start()
        # Removed first, so that the newest contact is the last in the dict, and the oldest the first to be dropped.
        self._contacts.pop(contact.id, None)
        self._contacts[contact.id] = contact
        if len(self._contacts) > MAX_CONTACTS:
            del self._contacts[next(iter(self._contacts))]
        if not self._joining:
            self._joining = True
            self._ask_for_a_place(self._state.now, None)

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        state, timing = self._state, self._state.timing
        self.failure_detector.start()
        # Other bits of the id than those of the heartbeats' phase, so that the two phases are independent.
        phase = (state.me.id >> 16 & 0xFFFF) / 0x10000
        state.timers.at(state.now + phase * timing.stabilise_s, self._stabilise)
        state.timers.at(state.now + phase * timing.table_s, self._ask_for_a_row)

    def _ask_for_a_place(self, now: float, _: object) -> None:
        if self._state.active or self._verifying:
            self._joining = False
            return
        if not self._grant_holds():
            self._grant_asked_at = None
            # Leaf set members are asked too: the contacts may be dead, and part of the ring has been met already.
            known = (*self._contacts.values(), *self._state.leaves)
            if known:
                me = self._state.me
                contact = known[self._attempts % len(known)]
                self._attempts += 1
                self._state.post(contact, Route(me, self._state.next_seq(), me.id, 0, JOIN))
        self._state.timers.at(now + self._patience * self._state.timing.join_s, self._ask_for_a_place)
        # The queue of the gap may be long, and a request that comes again only replaces the queued one.
        self._patience = min(MAX_PATIENCE, self._patience * 1.5)

    def on_grant(self, granter: Peer, grant: Grant) -> None:
        """The gap is ours: now all its neighbours must acknowledge us."""
        state = self._state
        if state.active:
            # A second grant, of a request that was sent again: the granter must not hold the gap for an active peer.
            state.post(granter, JOINED)
            return
        for peer in grant.rows:
            self._hear_of_far(peer)
        self._granter = granter
        self._grant_asked_at = None
        self._inquire(granter)
        self.consider(grant.leaves)

    def _grant_holds(self) -> bool:
        asked_at = self._grant_asked_at
        return asked_at is not None and self._state.now - asked_at < self._state.timing.grant_s

    def _settle(self) -> None:
        """Become active when no inquiry is open."""
        if not self._state.active and not self.inquiries and (self._verifying or self._grant_holds()):
            self._activate()

    def _activate(self) -> None:
        state = self._state
        state.set_active(True)
        self._joining = False
        self._patience = 1.0
        if not self._verifying:
            if self._granter is not None:
                state.post(self._granter, JOINED)
            for peer in state.table:
                if peer.id not in state.leaves:
                    state.post(peer, HERE)
        self._verifying = False
        self._granter = None
        self._grant_asked_at = None
        self._upward.activity(True)
        self.gate.serve()

    def verify(self) -> None:
        """Others may hold this peer for dead: serve no key until the whole leaf set has acknowledged it again."""
        state = self._state
        self._grant_asked_at = None
        if state.active:
            state.set_active(False)
            self._verifying = True
            self._upward.activity(False)
        candidates = [inquiry.peer for inquiry in self.inquiries.values() if inquiry.peer.id not in state.leaves]
        for peer in (*state.leaves, *candidates):
            self._inquire(peer)
        self._settle()

    def meet(self, peer: Peer) -> None:
        """A peer that may be of this ring or of another."""
        self._hear_of_far(peer)
        self.consider((peer,))
        if peer.id not in self._state.leaves:
            self._seek(peer)

    def consider(self, hearsay: Iterable[Peer]) -> None:
        """Probe all peers that would belong into the leaf set."""
        leaves, inquiries, dead = self._state.leaves, self.inquiries, self.failure_detector.dead
        considers_dead = self.failure_detector.considers_dead
        known, fresh = leaves.ids, []
        for peer in hearsay:
            peer_id = peer.id
            if peer_id in known or peer_id in inquiries or not leaves.admits(peer_id):
                continue
            if peer_id not in dead or not considers_dead(peer):
                fresh.append(peer)
        # Each of them would belong alone; together with the others and the open inquiries, not all of them do.
        for peer in leaves.rivals(fresh, inquiries) if fresh else ():
            self._inquire(peer)

    def _inquire(self, peer: Peer) -> None:
        inquiry = self.inquiries[peer.id] = Inquiry(peer, self._state.now)
        self._ask(inquiry)

    def _ask(self, inquiry: Inquiry) -> None:
        inquiry.tries += 1
        self._state.post(inquiry.peer, Probe(self._state.leaves.peers))
        probe_s = self._state.timing.probe_s + self.failure_detector.patience.of(inquiry.peer.id)
        self._state.timers.at(self._state.now + probe_s, self._unanswered, inquiry)

    def _unanswered(self, now: float, subject: object) -> None:
        assert isinstance(subject, Inquiry)
        peer_id = subject.peer.id
        if self.inquiries.get(peer_id) is not subject:
            return
        if peer_id not in self._state.leaves and not self._state.leaves.admits(peer_id):
            # Nearer peers have taken its place in the leaf set: becoming active must not wait for it.
            del self.inquiries[peer_id]
            self._settle()
        elif subject.tries < self._state.timing.probe_tries:
            self._ask(subject)
        else:
            # The member in the leaf set may be a later incarnation than the peer of the hearsay.
            self.failure_detector.suspect(self._state.leaves.get(peer_id) or subject.peer)

    def on_probe(self, sender: Peer, probe: Probe) -> None:
        self._add_heard(sender)
        self._compare(sender, probe.leaves)
        self._state.post(sender, ProbeAck(self._state.leaves.peers, self.gate.renew(sender)))

    def _compare(self, sender: Peer, leaves: tuple[Peer, ...]) -> None:
        """Probe the peers that only the sender knows. Both sides ask the peers that only this side holds for dead."""
        self.consider(leaves)
        dead = self.failure_detector.dead
        if dead:
            doubtful = tuple(peer for peer in leaves if peer.id in dead and self.failure_detector.considers_dead(peer))
            if doubtful:
                self._state.post(sender, Doubt(doubtful))
                for peer in doubtful:
                    self._state.post(peer, PING)

    def on_doubt(self, _: Peer, doubt: Doubt) -> None:
        # A doubt is hearsay: a wrong one costs a few pings, and the death of a member is never taken from it.
        for peer in doubt.peers:
            if peer.id in self._state.leaves:
                self.failure_detector.suspect(peer, hearsay=True)

    def on_probe_ack(self, sender: Peer, ack: ProbeAck) -> None:
        inquiry = self.inquiries.pop(sender.id, None)
        self._add_heard(sender)
        if inquiry is not None and self._granter is not None and sender.id == self._granter.id:
            # The grant counts from the sending of the probe here, from its arrival at the granter: no common clock is
            # needed, and this side never takes it for longer than the granter does.
            self._grant_asked_at = inquiry.asked_at if ack.granted else None
        self._compare(sender, ack.leaves)
        self._settle()

    def _add_heard(self, peer: Peer) -> None:
        """Add a peer that was heard itself to the table, and to the leaf set if it belongs there."""
        leaves = self._state.leaves
        member = leaves.get(peer.id)
        if member is not None:
            if member.boot < peer.boot:
                leaves.add(peer)
                self._changed(peer, member)
        elif leaves.admits(peer.id):
            pushed_out = leaves.add(peer)
            self._changed(peer, pushed_out)
        self._state.table.offer(peer)

    def _changed(self, entered: Peer | None, left: Peer | None) -> None:
        self._state.version += 1
        self._changed_since_repair = True
        self.failure_detector.watch(self._state.leaves.successor)
        if entered is not None:
            self.failure_detector.patience.met(entered)
        if left is not None:
            self.failure_detector.patience.left(left.id)
        self._upward.changed(entered, left)

    def on_heartbeat(self, sender: Peer, _: Heartbeat) -> None:
        """Only the clockwise neighbour sends heartbeats here; any other sender does not know the peers in between."""
        successor = self._state.leaves.successor
        if successor is None or successor.id != sender.id:
            self._state.post(sender, Probe(self._state.leaves.peers))

    def _stabilise(self, now: float, _: object) -> None:
        """Compare leaf sets: with the clockwise neighbour every other time, in between with each member in turn."""
        leaves = self._state.leaves.peers
        if leaves:
            self._rounds += 1
            peer = leaves[0] if self._rounds % 2 else leaves[self._rounds // 2 % len(leaves)]
            self._state.post(peer, Probe(leaves))
        self._state.timers.at(now + self._state.timing.stabilise_s, self._stabilise)

    def on_dead(self, sender: Peer, notice: Dead) -> None:
        state = self._state
        accused = notice.peer
        if accused.id == state.me.id:
            if accused.boot >= state.me.boot:
                state.counters.accusations += 1
                self.verify()
            return
        known = state.leaves.get(accused.id)
        # Its watcher has better evidence than a notice, which may be older than the last heartbeat.
        if (known is None or known.boot <= accused.boot) and not self.failure_detector.heard_recently(accused):
            predecessor = state.leaves.predecessor
            self.failure_detector.report_dead(accused)
            if predecessor is not None and predecessor.id == accused.id:
                self._forward_notice(notice)
        self.consider(notice.leaves)

    def _forward_notice(self, notice: Dead) -> None:
        """The finder stands on the other side of the dead peer, so it does not know all members on this side."""
        notified = {peer.id for peer in notice.leaves}
        for member in self._state.leaves.clockwise:
            if member.id not in notified:
                self._state.post(member, notice)

    def on_leaving(self, sender: Peer, notice: Leaving) -> None:
        self.failure_detector.report_left(sender)
        self.consider(notice.leaves)

    def on_death(self, peer: Peer, source: DeathSource) -> None:
        """A peer was declared dead: forget it, notify the others, close the ring over it."""
        state = self._state
        was_candidate = self.inquiries.pop(peer.id, None) is not None
        self._contacts.pop(peer.id, None)
        state.table.remove(peer.id)
        was_leaf = state.leaves.remove(peer.id) is not None
        if was_leaf:
            self._changed(None, peer)
            self._announce(peer, source)
        if was_leaf or was_candidate:
            self._repair_soon()
        self.gate.release(peer.id)
        self._settle()

    def _announce(self, peer: Peer, source: DeathSource) -> None:
        leaves = self._state.leaves
        if source is DeathSource.FOUND:
            notice = Dead(peer, leaves.peers)
            # The dead peer is notified as well: if it lives after all, it stops serving keys and has itself verified.
            for member in (*leaves, peer):
                self._state.post(member, notice)
        elif source is DeathSource.CHECKED:
            # The finder's notice did not reach us, so it may not have reached our neighbours either.
            for member in (leaves.successor, leaves.predecessor):
                if member is not None:
                    self._state.post(member, Doubt((peer,)))

    def on_return(self, peer: Peer, was_dead: bool) -> None:
        """A suspect or a dead peer has been heard."""
        inquiry = self.inquiries.get(peer.id)
        successor = self._state.leaves.successor
        if inquiry is not None:
            inquiry.tries = 0  # it was heard, so the unanswered probes before that prove nothing
            self._ask(inquiry)
        elif was_dead:
            self._hear_of_far(peer)
            self.consider((peer,))
            if peer.id not in self.inquiries:
                self._seek(peer)
        elif successor is not None and successor.id == peer.id:
            # It lives but sends us no heartbeats: it holds another peer for its counterclockwise neighbour.
            self._state.post(peer, Probe(self._state.leaves.peers))

    def _repair_soon(self) -> None:
        self._changed_since_repair = True
        if not self._repairing:
            self._repairing = True
            self._state.timers.at(self._state.now + self._state.timing.probe_s, self._repair)

    def _repair(self, now: float, _: object) -> None:
        """Probe the ends of a side that became too short, as long as that brings new members or answers are due."""
        state = self._state
        ends = state.leaves.ragged_ends()
        self._repairing = bool(ends) and (self._changed_since_repair or bool(self.inquiries))
        self._changed_since_repair = False
        if self._repairing:
            for peer in ends:
                state.post(peer, Probe(state.leaves.peers))
            state.timers.at(now + 2 * state.timing.probe_s, self._repair)

    def _hear_of_far(self, peer: Peer) -> None:
        if peer.id not in self.failure_detector.dead and peer.id not in self.failure_detector.suspects:
            self._state.table.offer(peer)

    def _seek(self, peer: Peer) -> None:
        """Search for our place through this peer: if it is of another ring, the two rings become one."""
        state = self._state
        if state.active and state.now - self._sought_at >= state.timing.reunion_s:
            # Bounded in rate, as a search costs as much as a lookup.
            self._sought_at = state.now
            state.post(peer, Route(state.me, state.next_seq(), state.me.id, 0, SEEK))

    def _ask_for_a_row(self, now: float, _: object) -> None:
        state = self._state
        if self._row_asked is not None:
            self.failure_detector.suspect(self._row_asked)
            self._row_asked = None
        entry = state.table.next_in_turn()
        if entry is not None:
            row, self._row_asked = entry
            state.post(self._row_asked, RowRequest(row))
        state.timers.at(now + state.timing.table_s, self._ask_for_a_row)

    def on_row_request(self, sender: Peer, request: RowRequest) -> None:
        self._state.post(sender, Row(request.row, self._state.table.row(request.row)))

    def on_row(self, sender: Peer, row: Row) -> None:
        if self._row_asked is not None and self._row_asked.id == sender.id:
            self._row_asked = None
            self._rows_received += 1
            if self._rows_received % SEEK_EVERY == 0:
                self._seek(sender)
        for peer in row.peers:
            self._hear_of_far(peer)
