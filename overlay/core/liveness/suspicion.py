"""The life of a suspicion: its states, its events and the table of transitions between them.

A suspicion is created in SUSPECTED by the failure detector, which knows time and messages and reports the events; this
module knows neither. SWIM's protocol (Das, Gupta, Motivala 2002: direct probe, indirect probe, suspicion timeout):

    SUSPECTED ──PINGED──▶ DIRECT ──HELPED────▶ INDIRECT ──┐
        │                 │    │                  ▲       ├── HEARD ──▶ REFUTED
        └────HELPED───────┼────┼──────────────────┤       ├── CONDEMNED, REPORTED ──▶ DEAD
                          │    └──UNHELPED──▶ UNAIDED ────┤
                          └───────────────────────────────┴── PAUSED ──▶ WITHDRAWN

SUSPECTED lasts no longer than one call. A peer without a suspicion is trusted, or is among the dead. DEAD is the end of
the suspicion, not of the peer: a dead peer that is heard is trusted again, and may be suspected again.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer


class State(Enum):
    SUSPECTED = auto()
    """There is evidence, and nobody has asked the suspect yet."""
    DIRECT = auto()
    """This peer asks the suspect itself, up to `probe_tries` times."""
    INDIRECT = auto()
    """Members of the leaf set ask it for this peer; the suspicion timeout runs."""
    UNAIDED = auto()
    """No member of the leaf set can ask it; the suspicion timeout runs."""
    DEAD = auto()
    REFUTED = auto()
    """The suspect was heard."""
    WITHDRAWN = auto()
    """This peer was stopped itself, so the silence proves nothing."""


class Event(Enum):
    PINGED = auto()
    """This peer sends a `Ping` to the suspect."""
    HELPED = auto()
    """Members of the leaf set are asked for an indirect probe."""
    UNHELPED = auto()
    """The direct probes are used up, and no member of the leaf set is left to ask."""
    HEARD = auto()
    """A message of the suspect came, or a helper has heard it."""
    CONDEMNED = auto()
    """This peer declares it dead: the suspicion timeout is over, or no peer that was asked can reach it."""
    REPORTED = auto()
    """Another peer declares it dead, or it says itself that it leaves."""
    PAUSED = auto()
    """This peer finds that it was stopped for longer than `fence_s`."""


FINAL: Final = frozenset({State.DEAD, State.REFUTED, State.WITHDRAWN})

TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.SUSPECTED, Event.PINGED): State.DIRECT,
    # A refused connection is as good as unanswered direct probes, which are left out then.
    (State.SUSPECTED, Event.HELPED): State.INDIRECT,
    (State.SUSPECTED, Event.CONDEMNED): State.DEAD,
    (State.DIRECT, Event.PINGED): State.DIRECT,
    (State.DIRECT, Event.HELPED): State.INDIRECT,
    (State.DIRECT, Event.UNHELPED): State.UNAIDED,
    # Members may have entered the leaf set since, and a refused connection asks for helpers again.
    (State.UNAIDED, Event.HELPED): State.INDIRECT,
    **{(asked, Event.CONDEMNED): State.DEAD for asked in (State.DIRECT, State.INDIRECT, State.UNAIDED)},
    **{(asked, Event.REPORTED): State.DEAD for asked in (State.DIRECT, State.INDIRECT, State.UNAIDED)},
    **{(asked, Event.HEARD): State.REFUTED for asked in (State.DIRECT, State.INDIRECT, State.UNAIDED)},
    **{(asked, Event.PAUSED): State.WITHDRAWN for asked in (State.DIRECT, State.INDIRECT, State.UNAIDED)},
}


class Suspicion:
    """One peer that did not answer, on its way to being refuted or declared dead."""

    __slots__ = ("allowed_s", "asked", "denied", "hearsay", "helpers", "peer", "state", "tries")

    def __init__(self, peer: Peer, *, hearsay: bool) -> None:
        self.peer = peer
        self.hearsay = hearsay
        """Whether another peer found it dead, and has notified all who must know."""
        self.state = State.SUSPECTED
        self.tries = 0
        self.helpers: set[Id] = set()
        """Peers asked for an indirect probe that have not denied yet that the suspect can be reached."""
        self.asked: set[Id] = set()
        """All peers ever asked for an indirect probe."""
        self.allowed_s = 0.0
        """How much longer the suspicion timeout is, for peers that are late."""
        self.denied = False
        """Whether any helper has denied it."""

    def to(self, event: Event) -> None:
        """Move on by the table. An event that the state does not expect is our own mistake."""
        after = TRANSITIONS.get((self.state, event))
        assert after is not None, f"no transition by {event.name} from {self.state.name}"
        self.state = after

    @property
    def over(self) -> bool:
        return self.state in FINAL

    def ping(self) -> int:
        """Ask directly once more; returns how often that has been done."""
        self.to(Event.PINGED)
        self.tries += 1
        return self.tries

    def enlist(self, helpers: Iterable[Id]) -> None:
        """Begin the indirect probe."""
        self.to(Event.HELPED)
        self.helpers = set(helpers)
        self.asked = set(self.helpers)

    def replace(self, helper: Id, substitute: Id | None) -> bool:
        """Drop a helper that cannot be reached itself. True: no helper is left, so the suspect must be declared dead.

        The last one stays if there is no substitute and nobody denied: the silence of all helpers proves nothing.
        """
        if substitute is not None:
            self.helpers.add(substitute)
            self.asked.add(substitute)
        elif len(self.helpers) == 1 and not self.denied:
            return False
        self.helpers.discard(helper)
        return not self.helpers

    def deny(self, helper: Id) -> bool:
        """A helper cannot reach the suspect either. True: it was the last helper."""
        if helper not in self.helpers:
            return False
        self.denied = True
        self.helpers.discard(helper)
        return not self.helpers
