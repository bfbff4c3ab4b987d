"""The approaches that are compared, which are ways to spread messages: their names and the settings of their peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ringmq.dispatching.plan import UNBOUNDED
from ringmq.peer.engines.scribe.config import SCRIBE as SCRIBE_DISPATCH


@dataclass(frozen=True, slots=True)
class Approach:
    """One way to spread messages."""

    dispatch: str
    fanout: int | None = None
    """Fan-out of Guided; None for the other approaches."""

    @property
    def key(self) -> str:
        """Name in runs and in tables."""
        return self.dispatch + ("" if self.fanout is None else f"-{self._fanout.replace('∞', 'inf')}")

    @property
    def label(self) -> str:
        """Name for readers."""
        return self.dispatch.capitalize() + ("" if self.fanout is None else f" F={self._fanout}")

    @property
    def options(self) -> tuple[str, ...]:
        """Options on the command line of a peer."""
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
"""The approaches of the thesis."""
QUICK_FANOUT: Final = 3
"""Fan-out of Guided in a quick run: with a fan-out of 5, its dozen peers would hardly form a tree."""
QUICK: Final = (SCRIBE, DIRECT, guided(QUICK_FANOUT))
