"""Every period and timeout of the ring, with its trade-off, and presets for three kinds of network.

The cores are given a `Timing`; they never ask for the time themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """All in seconds. Shorter finds failures sooner and costs messages in inverse proportion."""

    heartbeat_s: float
    """Period of the heartbeats to the counterclockwise neighbour: 1/heartbeat_s messages/s."""
    silence_s: float
    """A clockwise neighbour that was not heard for this time is suspected. At least 2 heartbeats, or a single lost
    heartbeat causes a suspicion."""
    fence_s: float
    """A peer that did nothing at all for this long was paused: it asks its leaf set before it serves a key again.
    More than heartbeat_s, and less than it takes the others to find and replace it (`fastest_verdict_s`)."""
    probe_s: float
    """How long a probe may take before it is sent again or counts as failed. Above the longest round trip."""
    probe_tries: int
    """Direct probes of a silent peer before members of the leaf set are asked for an indirect probe."""
    verdict_s: float
    """SWIM's suspicion timeout: time for the indirect probes until the suspect is declared dead. At least 2 round
    trips."""
    most_late_s: float
    """The most that a peer waits longer for others because it is late itself, or they say that they are. Below the
    time for which leases wait for a silent peer."""
    hop_s: float
    """The longest wait for the acknowledgement of a hop; after it the message is routed around."""
    receipt_s: float
    """The origin of a routed message sends it again when no receipt came for this long."""
    receipt_tries: int
    """After this many sendings a routed message is given up and counted, and its sender is notified."""
    stabilise_s: float
    """Period of the comparison of leaf sets with a neighbour, which repairs the damage of lost messages."""
    table_s: float
    """How often a peer asks one entry of its routing table for that row: probes and fills the table."""
    reunion_s: float
    """Period of the retries of dead peers, which merge a split ring. 1/reunion_s messages/s."""
    forget_s: float
    """After this time a dead peer is no longer tried."""
    join_s: float
    """A joining peer that has heard nothing asks again after this."""
    found_s: float
    """A joining peer that finds no ring for this time founds one. More than the 4 join_s after which a seed is asked
    again, and than the start of a peer takes, or peers found rings that must merge later. Shorter lets the others serve
    sooner when a peer stays away."""
    grant_s: float
    """For how long the gap between two neighbours is reserved for one joining peer. Above the time of a join."""

    def __post_init__(self) -> None:
        # A paused peer must notice its pause before others can declare it dead, or two peers would serve the same keys.
        if not self.heartbeat_s < self.fence_s < self.fastest_verdict_s:
            raise ValueError(
                f"fence_s must be more than heartbeat_s ({self.heartbeat_s})"
                f" and less than probe_tries * probe_s + verdict_s ({self.fastest_verdict_s}), got {self.fence_s}"
            )
        if self.silence_s < 2 * self.heartbeat_s:
            raise ValueError(
                f"silence_s must be at least 2 * heartbeat_s ({2 * self.heartbeat_s}), got {self.silence_s}"
            )

    @property
    def fastest_verdict_s(self) -> float:
        """The shortest time in which a silent peer can be declared dead."""
        return self.probe_tries * self.probe_s + self.verdict_s


LOCAL: Final = Timing(
    heartbeat_s=0.5,
    silence_s=1.6,
    fence_s=1.2,
    probe_s=0.4,
    probe_tries=2,
    verdict_s=0.8,
    most_late_s=3.0,
    hop_s=0.4,
    receipt_s=1.5,
    receipt_tries=8,
    stabilise_s=4.0,
    table_s=5.0,
    reunion_s=2.0,
    forget_s=3600.0,
    join_s=1.5,
    found_s=8.0,
    grant_s=2.0,
)
"""Many peers on one machine: no network delay, but processes that wait for a core."""

LAN: Final = Timing(
    heartbeat_s=0.5,
    silence_s=1.5,
    fence_s=1.2,
    probe_s=0.4,
    probe_tries=2,
    verdict_s=0.8,
    most_late_s=3.0,
    hop_s=0.3,
    receipt_s=1.5,
    receipt_tries=8,
    stabilise_s=10.0,
    table_s=10.0,
    reunion_s=5.0,
    forget_s=24 * 3600.0,
    join_s=1.5,
    found_s=15.0,
    grant_s=2.0,
)
"""One site: round trips of some milliseconds, hardly a lost packet. The default."""

WAN: Final = Timing(
    heartbeat_s=5.0,
    silence_s=12.0,
    fence_s=6.5,
    probe_s=1.5,
    probe_tries=3,
    verdict_s=3.0,
    most_late_s=6.0,
    hop_s=1.5,
    receipt_s=6.0,
    receipt_tries=8,
    stabilise_s=30.0,
    table_s=30.0,
    reunion_s=25.0,
    forget_s=24 * 3600.0,
    join_s=6.0,
    found_s=60.0,
    grant_s=8.0,
)
"""Sites joined over the internet: round trips of 100 ms and more, losses in bursts, traffic that costs."""

PRESETS: Final[dict[str, Timing]] = {"local": LOCAL, "lan": LAN, "wan": WAN}
