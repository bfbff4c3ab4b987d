"""What one turn of the event loop may set going: for each connection, and for all of them together.

Work is counted in bytes that go out, and all else is put in their terms: 2000 of them take about a microsecond, on a
core of 2020. No clock is asked, so the same packets are cut into the same turns everywhere.
"""

from __future__ import annotations

from typing import Final

TURN_BYTES: Final = 32 << 20
"""What the packets of one connection may do in one turn, some 15 ms; the rest of them waits for the next. A chunk of
small publications would else be multiplied by all receivers before the first byte leaves."""
ALL_BYTES: Final = 64 << 20
"""The same for all connections together, some 30 ms: an answer to anybody else may have to wait for two such turns."""
SLICE_BYTES: Final = 256 << 10
"""What each may do in any case, a hundred packets or so: nobody starves, however many there are."""

DELIVERY_BYTES: Final = 128
"""What a delivery counts for beside its bytes."""
FAST_BYTES: Final = 1000
"""What a publication on the fast path counts for."""
PACKET_BYTES: Final = 6000
"""What any other packet counts for."""
NEW_TOPIC_BYTES: Final = 24_000
"""What it takes to find out who receives a topic, once."""
FILTER_BYTES: Final = 16_000
"""What a filter of a SUBSCRIBE or UNSUBSCRIBE counts for."""
REFUSED_FILTER_BYTES: Final = 600
"""What one counts for that is beyond those a packet may have: it is passed over."""
STEP_BYTES: Final = 4000
"""What a step on the way through the retained messages counts for."""


class Work:
    """What is left of a turn, and what one connection's share in it is. One per broker."""

    __slots__ = ("behind", "left", "share", "turn")

    def __init__(self) -> None:
        self.turn = -1
        self.left = ALL_BYTES
        """Of what all may do in this turn; negative if single packets took more."""
        self.share = TURN_BYTES
        self.behind = 0
        """How many connections had more to do than they might, in this turn."""

    def begin(self, turn: int) -> None:
        """A turn begins: those who are behind and all others, as if these were one more, share it."""
        self.turn, self.left = turn, ALL_BYTES
        self.share = max(SLICE_BYTES, min(TURN_BYTES, ALL_BYTES // (self.behind + 1)))
        self.behind = 0
