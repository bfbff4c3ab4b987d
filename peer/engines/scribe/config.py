"""Every period of the trees, with what it trades, and presets for the three kinds of network.

All else (retries, windows, bounds, shadows) is taken from `PubSubConfig`, so that a comparison compares the algorithms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

SCRIBE: Final = "scribe"
"""Its name beside the dispatching algorithms. It is none of them: it is an engine of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeConfig:
    """Times in seconds. All peers of a ring must use the same times, as both sides of a lease count them."""

    heartbeat_s: float = 0.5
    """Period of heartbeats from a parent to its children; a multicast stands for one. Costs 1 / heartbeat_s messages a
    second for each pair of parent and child, however many trees they share."""
    silence_s: float = 1.6
    """A parent that is silent for this time is taken for dead, and its child joins again. At least 2 heartbeats.
    Messages published until then are lost to the child and all peers below it."""
    child_s: float = 5.0
    """How long a silent child stays in its parent's table. Above the longest pause that should not cost a JOIN."""
    trust_s: float = 1.0
    """How long a publisher trusts the answer of a root, and whether its tree is empty. Costs 3 / trust_s messages a
    second for each root of a topic in use; the first subscriber of a tree waits for this time if somebody publishes."""
    overdue_s: float = 2.0
    """A message that a peer holds is sent to it again after this time without a report of its subtree."""
    patience: int = 3
    """JOINs without an answer, after which the next goes to the root itself, past the peers on its route."""
    replica_s: float = 10.0
    """How long a copy of a root's state is kept without renewal."""

    def __post_init__(self) -> None:
        if self.silence_s < 2 * self.heartbeat_s:
            raise ValueError(f"silence_s must be at least 2 * heartbeat_s, got {self.silence_s}")
        if self.child_s < 2 * self.silence_s:
            raise ValueError(f"child_s must be at least 2 * silence_s, got {self.child_s}")
        if self.trust_s <= 0:
            raise ValueError(f"trust_s must be more than 0, got {self.trust_s}")

    @property
    def void_s(self) -> float:
        """How long a root waits for the trust of publishers to end: a tenth more, as clocks drift."""
        return 1.1 * self.trust_s


LAN: Final = TreeConfig()
LOCAL: Final = LAN
WAN: Final = replace(LAN, heartbeat_s=5.0, silence_s=12.0, child_s=40.0, trust_s=5.0, overdue_s=12.0, replica_s=60.0)
PRESETS: Final[dict[str, TreeConfig]] = {"local": LOCAL, "lan": LAN, "wan": WAN}
