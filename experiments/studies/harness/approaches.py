"""The ways to spread messages that are compared: how each is called, and what peers are told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ringmq.dispatching.plan import UNBOUNDED
from ringmq.peer.engines.scribe.config import SCRIBE as SCRIBE_DISPATCH


@dataclass(frozen=True, slots=True)
class Approach:
    """One of them."""

    dispatch: str
    fanout: int | None = None
    """Of Guided alone."""

    @property
    def key(self) -> str:
        """In names of runs and in tables."""
        return self.dispatch + ("" if self.fanout is None else f"-{self._fanout.replace('∞', 'inf')}")

    @property
    def label(self) -> str:
        """For people."""
        return self.dispatch.capitalize() + ("" if self.fanout is None else f" F={self._fanout}")

    @property
    def options(self) -> tuple[str, ...]:
        """On the command line of a peer."""
        return ("--dispatch", self.dispatch, *(() if self.fanout is None else ("--fanout", str(self.fanout))))

    @property
    def _fanout(self) -> str:
        return "∞" if self.fanout == UNBOUNDED else str(self.fanout)


def guided(fanout: int) -> Approach:
    return Approach("guided", fanout)


SCRIBE: Final = Approach(SCRIBE_DISPATCH)
DIRECT: Final = Approach("direct")
WITHOUT_BOUND: Final = guided(UNBOUNDED)
ALL: Final = (SCRIBE, DIRECT, guided(5), guided(10), guided(25), WITHOUT_BOUND)
"""Those of the thesis."""
QUICK_FANOUT: Final = 3
"""Where a quick run has few peers: with 5 a dozen of them would hardly be a tree."""
QUICK: Final = (SCRIBE, DIRECT, guided(QUICK_FANOUT))
