"""Every period of the trees, with what it trades, and presets for the three kinds of network.

What is not about trees (retries, windows, bounds, shadows) is taken from `PubSubConfig`, so that a comparison compares
the algorithms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

SCRIBE: Final = "scribe"
"""The name among those of the dispatching algorithms. It is none of them: it brings its own roles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeConfig:
    """Times in seconds. Those of all peers of a ring must be the same: a lease is what both sides count."""

    heartbeat_s: float = 0.5
    """How often a parent tells its children that it lives; a multicast counts as one. Costs 1 / heartbeat_s messages a
    second for each pair of parent and child, however many trees they share."""
    silence_s: float = 1.6
    """A parent not heard for so long is taken for dead, and its child joins again. At least 2
    heartbeats. What is published until then is lost to the child and those below."""
    child_s: float = 5.0
    """How long a child that is not heard stays in its parent's table. Above the longest pause
    that should not cost a JOIN."""
    trust_s: float = 1.0
    """How long a publisher believes what a root told it: that it is the root, and whether
    anybody is there. Costs 3 / trust_s messages a second for each root of a topic in use; the first subscriber of a
    tree waits so long if somebody publishes."""
    overdue_s: float = 2.0
    """A message that a subtree has but did not report as reached is sent there again after so long."""
    patience: int = 3
    """JOINs that nobody answered, after which the next goes to the root itself, past those on the way."""
    replica_s: float = 10.0
    """How long a copy of a root's state is kept that is not renewed."""

    def __post_init__(self) -> None:
        if self.silence_s < 2 * self.heartbeat_s:
            raise ValueError(f"silence_s is {self.silence_s}, right would be at least 2 * heartbeat_s")
        if self.child_s < 2 * self.silence_s:
            raise ValueError(f"child_s is {self.child_s}, right would be at least 2 * silence_s")
        if self.trust_s <= 0:
            raise ValueError(f"trust_s is {self.trust_s}, right would be more than 0")

    @property
    def void_s(self) -> float:
        """How long a root waits for the trust of publishers to end: a tenth more, for clocks that do not run alike."""
        return 1.1 * self.trust_s


LAN: Final = TreeConfig()
LOCAL: Final = LAN
WAN: Final = replace(LAN, heartbeat_s=5.0, silence_s=12.0, child_s=40.0, trust_s=5.0, overdue_s=12.0, replica_s=60.0)
PRESETS: Final[dict[str, TreeConfig]] = {"local": LOCAL, "lan": LAN, "wan": WAN}
