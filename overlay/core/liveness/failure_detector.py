"""Failure detection: heartbeats, suspicions, deaths, and the dead that may come back.

Each peer sends heartbeats to its counterclockwise neighbour, so each is watched by one peer. Silence, a lost connection
or an unacknowledged hop makes a suspect. A suspect is asked directly, then through other members of the leaf set
(SWIM's indirect probe), and any message from it ends the suspicion (`suspicion.py` has the table). If only a helper
hears it, messages to it take a detour (`detours.py`). Only a peer that nobody hears is declared dead, and the leaf set
and the dead peer itself are notified. The dead are tried again now and then, which is how the halves of a split ring
meet.

This part decides. It reports a death or a return upward, and does not know their consequences for leaf sets and
messages.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.liveness.detours import HELPERS, PING, Detours
from ringmq.overlay.core.liveness.patience import Patience
from ringmq.overlay.core.liveness.suspicion import Event, State, Suspicion
from ringmq.overlay.core.messages import Heartbeat, Peer, PingRequest, PingResult

MAX_DEAD: Final = 128
"""Dead peers remembered: four leaf sets. Beyond it, the peer whose last try is longest ago is forgotten."""
MAX_INDIRECT_PROBES: Final = 256
"""Suspects of other peers that this peer asks at one time; beyond it, further requests are ignored."""

MAX_ASKERS: Final = 64
"""Peers that wait for one indirect probe: two leaf sets, as no other peer has a reason to ask."""

HEARTBEAT: Final = Heartbeat()


class DeathSource(Enum):
    """How a death became known here."""

    FOUND = auto()
    """This peer found it; it must notify the others."""
    CHECKED = auto()
    """Another peer held it for dead, and it did not answer this peer either."""
    REPORTED = auto()
    """The finder's notice came, or its own farewell."""


class FailureDetector:
    """Takes evidence (`heard`, `suspect`, `link_refused`) and reports `on_dead` and `on_back`."""

    __slots__ = (
        "_concerned",
        "_heard_at",
        "_indirect_probes",
        "_on_back",
        "_on_dead",
        "_probed_ahead",
        "_proof_at",
        "_started",
        "_state",
        "_watched",
        "dead",
        "detours",
        "left",
        "patience",
        "suspects",
    )

    def __init__(
        self, state: RingContext, on_dead: Callable[[Peer, DeathSource], None], on_back: Callable[[Peer, bool], None]
    ) -> None:
        self._state = state
        self._on_dead = on_dead
        self._on_back = on_back
        self.suspects: dict[Id, Suspicion] = {}
        self.dead: dict[Id, tuple[Peer, float]] = {}
        self.left: set[Id] = set()
        """Those of `dead` that have said that they leave."""
        self._watched: Id | None = None
        self._heard_at = 0.0
        """Start of the watched peer's silence: its last message, or the time since which it is watched."""
        self._proof_at = float("-inf")
        """Time of the last message of the watched peer."""
        self._probed_ahead: set[Id] = set()
        self._indirect_probes: dict[Id, list[Peer]] = {}
        self.detours = Detours(state, self._near)
        self._concerned = self.detours.concerned
        self.patience = Patience(state)
        self._started = False

    def start(self) -> None:
        """Begin the periodic work, each peer at its own phase so that a ring does not beat in step."""
        if self._started:
            return
        self._started = True
        state, timing = self._state, self._state.timing
        phase = (state.me.id & 0xFFFF) / 0x10000
        state.timers.at(state.now + phase * timing.heartbeat_s, self._beat)
        state.timers.at(state.now + phase * timing.reunion_s, self._retry_dead_peer)

    def watch(self, successor: Peer | None) -> None:
        """Expect heartbeats of this peer from now on. Call it whenever the clockwise neighbour may have changed."""
        watched = None if successor is None else successor.id
        if watched != self._watched:
            self._watched = watched
            # A new neighbour does not know yet that it must send heartbeats here: its silence counts from now on.
            self._heard_at = self._state.now
            self._proof_at = float("-inf")

    def heard(self, peer: Peer) -> None:
        """Any message is proof of life. Called for every message that comes directly from a peer."""
        # Each table is tested for emptiness first: this runs for every payload, and all are nearly always empty.
        if self._concerned and peer.id in self._concerned:
            self.detours.heard(peer)
        self.lives(peer)

    def lives(self, peer: Peer) -> None:
        """The peer has sent something, or a third peer has heard it."""
        if peer.id == self._watched:
            self._heard_at = self._proof_at = self._state.now
        if self.suspects and peer.id in self.suspects:
            self.suspects.pop(peer.id).to(Event.HEARD)
            self._state.counters.refuted += 1
            self._on_back(peer, False)
        if self._probed_ahead:
            self._probed_ahead.discard(peer.id)
        if self._indirect_probes:
            for asker in self._indirect_probes.pop(peer.id, ()):
                self._result(asker, peer)
        if self.dead and peer.id in self.dead:
            del self.dead[peer.id]
            self._on_back(peer, True)

    def considers_dead(self, peer: Peer) -> bool:
        """Whether it died, and is not known to have started again since."""
        entry = self.dead.get(peer.id)
        return entry is not None and entry[0].boot >= peer.boot

    def suspect(self, peer: Peer, *, hearsay: bool = False) -> None:
        """It did not answer when it should have: find out whether it lives.

        With `hearsay` another peer found it dead, and has notified all who must know.
        """
        if peer.id in self.suspects or not self._can_be_suspected(peer):
            return
        self._ask(self._new_suspicion(peer, hearsay=hearsay))

    def link_refused(self, peer: Peer) -> None:
        """No connection can be opened to it: as good as unanswered direct probes, and at once."""
        if peer.id in self._state.detours:
            return  # that is known
        if peer.id in self._indirect_probes:
            for asker in self._indirect_probes.pop(peer.id):
                self._state.post(asker, PingResult(peer, False))
        self._replace_helper(peer)
        if not self._can_be_suspected(peer):
            return
        suspicion = self.suspects.get(peer.id) or self._new_suspicion(peer, hearsay=False)
        if suspicion.state is not State.INDIRECT and not self._ask_helpers(suspicion):
            self._declare_dead(suspicion)

    def _new_suspicion(self, peer: Peer, *, hearsay: bool) -> Suspicion:
        self._state.counters.suspicions += 1
        suspicion = self.suspects[peer.id] = Suspicion(peer, hearsay=hearsay)
        return suspicion

    def _can_be_suspected(self, peer: Peer) -> bool:
        """Excludes the dead, this peer itself, and earlier incarnations of a peer that has started again."""
        member = self._state.leaves.get(peer.id)
        restarted = member is not None and member.boot > peer.boot
        return not (restarted or self.considers_dead(peer) or peer.id == self._state.me.id)

    def withdraw_suspicions(self) -> None:
        """This peer was stopped: the silence of others meanwhile proves nothing."""
        for suspicion in self.suspects.values():
            suspicion.to(Event.PAUSED)
        self.suspects.clear()
        self._probed_ahead.clear()
        self._heard_at = self._state.now

    def _ask(self, suspicion: Suspicion) -> None:
        suspicion.ping()
        self._state.post(suspicion.peer, PING)
        self._state.timers.at(self._state.now + self._state.timing.probe_s, self._unanswered, suspicion)

    def _unanswered(self, now: float, subject: object) -> None:
        assert isinstance(subject, Suspicion)
        # The timer queue cannot cancel, so this also runs for a suspicion that is over, or past its direct probes.
        if subject.state is not State.DIRECT:
            return
        if subject.tries == 1 and subject.peer.id == self._watched:
            self._probe_ahead(now)
        if subject.tries < self._state.timing.probe_tries:
            self._ask(subject)
        elif self._ask_helpers(subject):
            pass
        elif self._is_neighbour(subject.peer):
            subject.to(Event.UNHELPED)
            self._await_suspicion_timeout(subject)
        else:
            # A peer that stood in the routing table alone owns no key of ours: dropping it in error costs little.
            self._declare_dead(subject)

    def _probe_ahead(self, now: float) -> None:
        """Ask the peers behind a silent neighbour too: waiting for the silence of each in turn would take too long."""
        state = self._state
        for peer in state.leaves.clockwise[1:]:
            if peer.id not in self.suspects:
                self._probed_ahead.add(peer.id)
                state.post(peer, PING)
                state.timers.at(now + state.timing.probe_s, self._unanswered_ahead, peer)

    def _unanswered_ahead(self, now: float, subject: object) -> None:
        assert isinstance(subject, Peer)
        if subject.id in self._probed_ahead:
            self._probed_ahead.discard(subject.id)
            self.suspect(subject)

    def _ask_helpers(self, suspicion: Suspicion) -> bool:
        """Have members of the leaf set ask a suspect that belongs there. False: no member can do it."""
        state = self._state
        suspect = suspicion.peer
        if not self._is_neighbour(suspect):
            return False
        near = [peer for peer in self._near(suspect) if peer.id != suspect.id]
        # Neighbours often die together, so suspects come last; they are better than no helper.
        helpers = sorted(near, key=lambda peer: peer.id in self.suspects)[:HELPERS]
        if not helpers:
            return False
        suspicion.enlist(peer.id for peer in helpers)
        request = PingRequest(suspect)
        for helper in helpers:
            state.post(helper, request)
        self._await_suspicion_timeout(suspicion)
        return True

    def _near(self, suspect: Peer) -> list[Peer]:
        return self._state.leaves.nearest(suspect.id, len(self._state.leaves))

    def _replace_helper(self, helper: Peer) -> None:
        """A helper cannot be reached itself: neighbours die together. Ask another peer, if there is any."""
        for suspicion in [suspicion for suspicion in self.suspects.values() if helper.id in suspicion.helpers]:
            spare = (
                peer
                for peer in self._near(suspicion.peer)
                if peer.id != suspicion.peer.id and peer.id not in suspicion.asked and peer.id not in self.suspects
            )
            substitute = next(spare, None)
            none_left = suspicion.replace(helper.id, None if substitute is None else substitute.id)
            if substitute is not None:
                self._state.post(substitute, PingRequest(suspicion.peer))
            if none_left:
                self._declare_dead(suspicion)

    def _is_neighbour(self, peer: Peer) -> bool:
        return peer.id in self._state.leaves or self._state.leaves.admits(peer.id)

    def _await_suspicion_timeout(self, suspicion: Suspicion) -> None:
        # Even without a helper no peer is declared dead sooner than `fastest_verdict_s`: a peer that was paused for
        # less than that would not notice its pause, and serve keys that others have taken over.
        suspicion.allowed_s = self.patience.of(suspicion.peer.id)
        self._state.post(suspicion.peer, PING)
        verdict_s = self._state.timing.verdict_s + suspicion.allowed_s
        self._state.timers.at(self._state.now + verdict_s, self._time_out, suspicion)

    def _time_out(self, now: float, subject: object) -> None:
        assert isinstance(subject, Suspicion)
        if subject.over:
            return
        more_s = self.patience.of(subject.peer.id) - subject.allowed_s
        if more_s > 0:
            # This peer, or the suspect, has become later meanwhile. What it sends may wait to be read.
            subject.allowed_s += more_s
            self._state.timers.at(now + more_s, self._time_out, subject)
        else:
            self._declare_dead(subject)

    def _declare_dead(self, suspicion: Suspicion) -> None:
        suspicion.to(Event.CONDEMNED)
        del self.suspects[suspicion.peer.id]
        self._remember_dead(suspicion.peer)
        self._on_dead(suspicion.peer, DeathSource.CHECKED if suspicion.hearsay else DeathSource.FOUND)

    def _remember_dead(self, peer: Peer) -> None:
        self._state.counters.deaths += 1
        self.detours.end(peer.id)
        self.detours.helper_lost(peer)
        # Removed first, as an assignment would leave the entry at its old position in the order of retries.
        self.dead.pop(peer.id, None)
        self.left.discard(peer.id)
        self.dead[peer.id] = (peer, self._state.now)
        if len(self.dead) > MAX_DEAD:
            del self.dead[next(iter(self.dead))]

    def report_dead(self, peer: Peer) -> None:
        """Another peer has declared it dead."""
        if self.considers_dead(peer) or peer.id == self._state.me.id:
            return
        suspicion = self.suspects.pop(peer.id, None)
        if suspicion is not None:
            suspicion.to(Event.REPORTED)
        self._remember_dead(peer)
        self._on_dead(peer, DeathSource.REPORTED)

    def report_left(self, peer: Peer) -> None:
        """It said that it leaves."""
        self.report_dead(peer)
        self.left.add(peer.id)
        self.left &= self.dead.keys()

    def on_ping_request(self, asker: Peer, request: PingRequest) -> None:
        """Ask a suspect for another peer, and report the result to it."""
        state, target = self._state, request.target
        if target.id == state.me.id:
            self._result(asker, target)
            return
        if self.considers_dead(target):
            state.post(asker, PingResult(target, False))
            return
        askers = self._indirect_probes.get(target.id)
        if askers is None:
            if len(self._indirect_probes) >= MAX_INDIRECT_PROBES:
                state.counters.overflowed += 1
                return
            askers = self._indirect_probes[target.id] = []
            state.post(target, PING)
            state.timers.at(state.now + state.timing.verdict_s, self._end_indirect_probe, (target.id, askers))
        if asker not in askers and len(askers) < MAX_ASKERS:
            askers.append(asker)

    def _result(self, asker: Peer, target: Peer) -> None:
        self.detours.serve(asker, target)
        self._state.post(asker, PingResult(target, True))

    def _end_indirect_probe(self, now: float, subject: object) -> None:
        # No result is sent: silence here is no denial, since the path from here to the suspect may be the broken one.
        assert isinstance(subject, tuple)
        target, askers = subject
        # Compared by identity: a later probe of the same target has its own list and its own time.
        if self._indirect_probes.get(target) is askers:
            del self._indirect_probes[target]

    def on_ping_result(self, sender: Peer, result: PingResult) -> None:
        """A helper heard the suspect, so there is no death, or cannot reach it either."""
        suspicion = self.suspects.get(result.target.id)
        if result.alive:
            self.detours.answered(sender, result.target)
            if suspicion is not None:
                if suspicion.state is State.INDIRECT:
                    # This peer has not heard it, and whatever it sends there may be lost, too.
                    self.detours.begin(result.target, sender)
                self.lives(result.target)
        elif suspicion is not None and suspicion.deny(sender.id):
            self._declare_dead(suspicion)

    def _beat(self, now: float, _: object) -> None:
        state, timing = self._state, self._state.timing
        predecessor = state.leaves.predecessor
        if predecessor is not None:
            state.post(predecessor, HEARTBEAT)
            self.patience.remind()
            successor = state.leaves.successor
            assert successor is not None
            if now - self._heard_at > timing.silence_s + self.patience.of(successor.id):
                # The silence is counted again from here, or a refuted suspect would be suspected at the next beat.
                self._heard_at = now
                self.suspect(successor)
        state.timers.at(now + timing.heartbeat_s, self._beat)

    def _retry_dead_peer(self, now: float, _: object) -> None:
        """Each in turn: a peer that was tried goes to the end of the queue."""
        timing = self._state.timing
        self.detours.try_directly()
        while self.dead:
            peer_id, (peer, since) = next(iter(self.dead.items()))
            del self.dead[peer_id]
            if now - since <= timing.forget_s:
                self.dead[peer_id] = (peer, since)
                self._state.post(peer, PING)
                break
        self._state.timers.at(now + timing.reunion_s, self._retry_dead_peer)

    def heard_recently(self, peer: Peer) -> bool:
        """Whether this peer, its watcher, has heard it within the last heartbeat."""
        return peer.id == self._watched and self._state.now - self._proof_at < self._state.timing.heartbeat_s
