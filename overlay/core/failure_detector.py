"""Who lives: heartbeats, suspicions, the verdict, and the dead that may come back.

Each peer tells its counterclockwise neighbour that it lives, so each is watched by one. Silence, a lost connection
or an unacknowledged hop makes a suspect. A suspect is asked directly, then through other members of the leaf set
(SWIM's indirect probe), and whatever it says ends the suspicion. Only then it is declared dead: buried, announced to
the leaf set and to itself. The dead are tried again now and then, which is how the halves of a split ring meet.

This part decides; what a death or a return means for leaf sets and messages is told upward, not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Heartbeat, Peer, Ping, PingRequest, PingResult, Pong

HELPERS: Final = 3
"""Peers asked to ask a suspect (memberlist's default)."""
MAX_DEAD: Final = 128
"""Dead peers remembered: four leaf sets; the one whose last try is longest ago is forgotten first."""
MAX_ERRANDS: Final = 256
"""Suspects of others that are being asked for them at one time; more are not taken on."""

MAX_ASKERS: Final = 64
"""Peers that one errand is run for: more than two leaf sets cannot be asking."""

HEARTBEAT: Final = Heartbeat()
PING: Final = Ping()
PONG: Final = Pong()


class Source(Enum):
    """How a death became known here."""

    FOUND = auto()
    """This peer found it out; the others have to be told."""
    CHECKED = auto()
    """Another held it for dead, and it did not answer us either."""
    TOLD = auto()
    """The finder's notice came, or its own farewell."""


class Suspicion:
    """One peer that did not answer, on its way to being cleared or declared dead."""

    __slots__ = ("asked", "denied", "hearsay", "helpers", "peer", "tries")

    def __init__(self, peer: Peer, hearsay: bool) -> None:
        self.peer = peer
        self.hearsay = hearsay
        self.tries = 0
        self.helpers: set[Id] = set()
        """Those asked to ask it who have not denied that it can be reached."""
        self.asked: set[Id] = set()
        """All that were."""
        self.denied = False
        """Whether any of them has."""


class FailureDetector:
    """Feeds on evidence (`heard`, `suspect`, `refused`) and reports `on_dead` and `on_back`."""

    __slots__ = (
        "_asked",
        "_errands",
        "_heard_at",
        "_on_back",
        "_on_dead",
        "_proof_at",
        "_started",
        "_state",
        "_watched",
        "dead",
        "suspects",
    )

    def __init__(
        self, state: RingContext, on_dead: Callable[[Peer, Source], None], on_back: Callable[[Peer, bool], None]
    ) -> None:
        self._state = state
        self._on_dead = on_dead
        self._on_back = on_back
        self.suspects: dict[Id, Suspicion] = {}
        self.dead: dict[Id, tuple[Peer, float]] = {}
        self._watched: Id | None = None
        self._heard_at = 0.0
        """From when the silence of the watched one is counted: its last message, or since it is watched."""
        self._proof_at = float("-inf")
        """When the watched one was really heard last."""
        self._asked: set[Id] = set()
        self._errands: dict[Id, list[Peer]] = {}
        self._started = False

    def start(self) -> None:
        """Begin the periodic work, each peer at its own phase so that a ring does not beat in step."""
        if self._started:
            return
        self._started = True
        state, timing = self._state, self._state.timing
        phase = (state.me.id & 0xFFFF) / 0x10000
        state.timers.at(state.now + phase * timing.heartbeat_s, self._beat)
        state.timers.at(state.now + phase * timing.reunion_s, self._try_a_dead_one)

    def watch(self, successor: Peer | None) -> None:
        """From now on expect heartbeats of this one; to be called whenever the clockwise neighbour may be another."""
        watched = None if successor is None else successor.id
        if watched != self._watched:
            self._watched = watched
            self._heard_at = self._state.now
            self._proof_at = float("-inf")

    def heard(self, peer: Peer) -> None:
        """Any message is proof of life. Called for every one that comes in."""
        if peer.id == self._watched:
            self._heard_at = self._proof_at = self._state.now
        if self.suspects and peer.id in self.suspects:
            del self.suspects[peer.id]
            self._state.counters.refuted += 1
            self._on_back(peer, False)
        if self._asked:
            self._asked.discard(peer.id)
        if self._errands:
            for asker in self._errands.pop(peer.id, ()):
                self._state.post(asker, PingResult(peer, True))
        if self.dead and peer.id in self.dead:
            del self.dead[peer.id]
            self._on_back(peer, True)

    def holds_for_dead(self, peer: Peer) -> bool:
        """Whether it died, and has not started again since as far as is known."""
        buried = self.dead.get(peer.id)
        return buried is not None and buried[0].boot >= peer.boot

    def suspect(self, peer: Peer, *, hearsay: bool = False) -> None:
        """It did not answer when it should have: find out whether it lives.

        With `hearsay` somebody else found it dead, and has told those whom it concerns.
        """
        if peer.id in self.suspects or not self._may_be_accused(peer):
            return
        self._state.counters.suspicions += 1
        suspicion = self.suspects[peer.id] = Suspicion(peer, hearsay)
        self._ask(suspicion)

    def refused(self, peer: Peer) -> None:
        """No connection can be opened to it: as good as a silent probe, and at once."""
        if peer.id in self._errands:
            for asker in self._errands.pop(peer.id):
                self._state.post(asker, PingResult(peer, False))
        self._replace_helper(peer)
        if not self._may_be_accused(peer):
            return
        suspicion = self.suspects.get(peer.id)
        if suspicion is None:
            self._state.counters.suspicions += 1
            suspicion = self.suspects[peer.id] = Suspicion(peer, False)
        if not suspicion.helpers and not self._ask_others(suspicion):
            self._bury(suspicion)

    def _may_be_accused(self, peer: Peer) -> bool:
        """Not the dead, not this peer itself, and not somebody who has started again since."""
        member = self._state.leaves.get(peer.id)
        restarted = member is not None and member.boot > peer.boot
        return not (restarted or self.holds_for_dead(peer) or peer.id == self._state.me.id)

    def start_over(self) -> None:
        """This peer was stopped: what it did not hear meanwhile proves nothing."""
        self.suspects.clear()
        self._asked.clear()
        self._heard_at = self._state.now

    def _ask(self, suspicion: Suspicion) -> None:
        suspicion.tries += 1
        self._state.post(suspicion.peer, PING)
        self._state.timers.at(self._state.now + self._state.timing.probe_s, self._unanswered, suspicion)

    def _unanswered(self, now: float, subject: object) -> None:
        assert isinstance(subject, Suspicion)
        if self.suspects.get(subject.peer.id) is not subject or subject.helpers:
            return
        if subject.tries == 1 and subject.peer.id == self._watched:
            self._look_ahead(now)
        if subject.tries < self._state.timing.probe_tries:
            self._ask(subject)
        elif not self._ask_others(subject):
            self._last_chance(subject)

    def _look_ahead(self, now: float) -> None:
        """Ask those behind a silent neighbour too: waiting for the silence of each in turn would take too long."""
        state = self._state
        for peer in state.leaves.clockwise[1:]:
            if peer.id not in self.suspects:
                self._asked.add(peer.id)
                state.post(peer, PING)
                state.timers.at(now + state.timing.probe_s, self._unanswered_ahead, peer)

    def _unanswered_ahead(self, now: float, subject: object) -> None:
        assert isinstance(subject, Peer)
        if subject.id in self._asked:
            self._asked.discard(subject.id)
            self.suspect(subject)

    def _ask_others(self, suspicion: Suspicion) -> bool:
        """Have members of the leaf set ask a suspect that belongs there. False: nobody is there to do it."""
        state = self._state
        suspect = suspicion.peer
        if not self._is_neighbour(suspect):
            return False
        near = [peer for peer in self._near(suspect) if peer.id != suspect.id]
        helpers = sorted(near, key=lambda peer: peer.id in self.suspects)[:HELPERS]
        if not helpers:
            return False
        suspicion.helpers = {peer.id for peer in helpers}
        suspicion.asked = set(suspicion.helpers)
        request = PingRequest(suspect)
        for helper in helpers:
            state.post(helper, request)
        self._last_chance(suspicion)
        return True

    def _near(self, suspect: Peer) -> list[Peer]:
        return self._state.leaves.nearest(suspect.id, len(self._state.leaves))

    def _replace_helper(self, helper: Peer) -> None:
        """One that was to help cannot be reached itself: neighbours die together. Somebody else is asked, if there is
        anybody; if not, what the others say counts, but not the silence of all."""
        for suspicion in [one for one in self.suspects.values() if helper.id in one.helpers]:
            spare = (
                peer
                for peer in self._near(suspicion.peer)
                if peer.id != suspicion.peer.id and peer.id not in suspicion.asked and peer.id not in self.suspects
            )
            other = next(spare, None)
            if other is not None:
                suspicion.helpers.add(other.id)
                suspicion.asked.add(other.id)
                self._state.post(other, PingRequest(suspicion.peer))
            elif len(suspicion.helpers) == 1 and not suspicion.denied:
                continue
            suspicion.helpers.discard(helper.id)
            if not suspicion.helpers:
                self._bury(suspicion)

    def _is_neighbour(self, peer: Peer) -> bool:
        return peer.id in self._state.leaves or self._state.leaves.admits(peer.id)

    def _last_chance(self, suspicion: Suspicion) -> None:
        """Nobody's verdict comes sooner than `fastest_verdict_s`, or a paused peer would not notice it; but who only
        stood in the routing table is no owner, and is dropped at once."""
        if not self._is_neighbour(suspicion.peer):
            self._bury(suspicion)
            return
        self._state.post(suspicion.peer, PING)
        self._state.timers.at(self._state.now + self._state.timing.verdict_s, self._give_verdict, suspicion)

    def _give_verdict(self, now: float, subject: object) -> None:
        assert isinstance(subject, Suspicion)
        if self.suspects.get(subject.peer.id) is subject:
            self._bury(subject)

    def _bury(self, suspicion: Suspicion) -> None:
        del self.suspects[suspicion.peer.id]
        self._remember_dead(suspicion.peer)
        self._on_dead(suspicion.peer, Source.CHECKED if suspicion.hearsay else Source.FOUND)

    def _remember_dead(self, peer: Peer) -> None:
        self._state.counters.deaths += 1
        self.dead.pop(peer.id, None)
        self.dead[peer.id] = (peer, self._state.now)
        if len(self.dead) > MAX_DEAD:
            del self.dead[next(iter(self.dead))]

    def told_dead(self, peer: Peer) -> None:
        """Others have found it dead, or it said that it leaves."""
        if self.holds_for_dead(peer) or peer.id == self._state.me.id:
            return
        self.suspects.pop(peer.id, None)
        self._remember_dead(peer)
        self._on_dead(peer, Source.TOLD)

    def take_errand(self, asker: Peer, request: PingRequest) -> None:
        """Ask a suspect for another peer, and tell it what came of it."""
        state, target = self._state, request.target
        if target.id == state.me.id:
            state.post(asker, PingResult(target, True))
            return
        if self.holds_for_dead(target):
            state.post(asker, PingResult(target, False))
            return
        askers = self._errands.get(target.id)
        if askers is None:
            if len(self._errands) >= MAX_ERRANDS:
                state.counters.overflowed += 1
                return
            askers = self._errands[target.id] = []
            state.post(target, PING)
            state.timers.at(state.now + state.timing.verdict_s, self._end_errand, (target.id, askers))
        if asker not in askers and len(askers) < MAX_ASKERS:
            askers.append(asker)

    def _end_errand(self, now: float, subject: object) -> None:
        assert isinstance(subject, tuple)
        target, askers = subject
        if self._errands.get(target) is askers:
            del self._errands[target]

    def errand_done(self, sender: Peer, result: PingResult) -> None:
        """What a helper found out: it lives, so there is no death, or it cannot be reached from there either."""
        suspicion = self.suspects.get(result.target.id)
        if suspicion is None:
            return
        if result.alive:
            self.heard(result.target)
            return
        if sender.id in suspicion.helpers:
            suspicion.denied = True
            suspicion.helpers.discard(sender.id)
            if not suspicion.helpers:
                self._bury(suspicion)

    def _beat(self, now: float, _: object) -> None:
        state, timing = self._state, self._state.timing
        predecessor = state.leaves.predecessor
        if predecessor is not None:
            state.post(predecessor, HEARTBEAT)
            if now - self._heard_at > timing.silence_s:
                successor = state.leaves.successor
                assert successor is not None
                self._heard_at = now
                self.suspect(successor)
        state.timers.at(now + timing.heartbeat_s, self._beat)

    def _try_a_dead_one(self, now: float, _: object) -> None:
        """Each in turn: the one tried goes to the end of the row."""
        timing = self._state.timing
        while self.dead:
            point, (peer, since) = next(iter(self.dead.items()))
            del self.dead[point]
            if now - since <= timing.forget_s:
                self.dead[point] = (peer, since)
                self._state.post(peer, PING)
                break
        self._state.timers.at(now + timing.reunion_s, self._try_a_dead_one)

    def heard_lately(self, peer: Peer) -> bool:
        """Whether this peer itself, its watcher, has heard it within the last heartbeat."""
        return peer.id == self._watched and self._state.now - self._proof_at < self._state.timing.heartbeat_s
