"""The work budget of one iteration of the event loop: for each connection, and for all connections together.

The unit is a byte that goes out; other work is converted: 2000 bytes take about a microsecond on a core of 2020. No
clock is read, so the same packets are cut into the same iterations everywhere.
"""

from __future__ import annotations

from typing import Final

CONNECTION_BYTES: Final = 32 << 20
"""The budget of one connection, some 15 ms; packets beyond it wait for the next iteration. Without it, a chunk of small
publications would be multiplied by all receivers before the first byte leaves."""
ALL_BYTES: Final = 64 << 20
"""The budget of all connections, some 30 ms: an answer to any other client may wait for two such iterations."""
SLICE_BYTES: Final = 256 << 10
"""The least budget of each connection, about a hundred packets: none starves, however many there are."""

DELIVERY_BYTES: Final = 128
"""Price of a delivery, beside its bytes."""
FAST_BYTES: Final = 1000
"""Price of a publication on the fast path."""
PACKET_BYTES: Final = 6000
"""Price of any other packet."""
NEW_TOPIC_BYTES: Final = 24_000
"""Price of finding the receivers of a topic, once."""
CONNECT_BYTES: Final = 400_000
"""Price of a CONNECT: its session, and that in the journal."""
FILTER_BYTES: Final = 160_000
"""Price of a filter of a SUBSCRIBE or UNSUBSCRIBE, with its registration in a ring and in the journal."""
REFUSED_FILTER_BYTES: Final = 600
"""Price of a filter beyond the limit of a packet: it is skipped."""
STEP_BYTES: Final = 4000
"""Price of a step through the tree of retained messages."""


class Work:
    """The rest of an iteration's budget, and the share of one connection. One per broker."""

    __slots__ = ("behind", "iteration", "left", "share")

    def __init__(self) -> None:
        self.iteration = -1
        self.left = ALL_BYTES
        """The rest of `ALL_BYTES` in this iteration; negative if single packets took more."""
        self.share = CONNECTION_BYTES
        self.behind = 0
        """How many connections have used up their share in this iteration."""

    def begin(self, iteration: int) -> None:
        """An iteration begins. Connections that are behind share it with all others, which count as one connection."""
        self.iteration, self.left = iteration, ALL_BYTES
        self.share = max(SLICE_BYTES, min(CONNECTION_BYTES, ALL_BYTES // (self.behind + 1)))
        self.behind = 0
