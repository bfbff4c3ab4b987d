"""The receiving side of a stream: the batches of each lane that were processed, committed, and are held back.

Makes their acknowledgements. Sends nothing.
"""

from __future__ import annotations

from ringmq.overlay.core.messages import Peer
from ringmq.peer.streams.stream_messages import BatchAck, Lane


class IncomingLane:
    """The position in one lane. Acknowledgements are cumulative, so there is never more than one to send."""

    __slots__ = ("_committed", "_holds", "_lane", "asked", "delayed", "hurried", "last", "pending", "stream",
                 "touched")  # fmt: skip

    def __init__(self, stream: IncomingStream, lane: Lane) -> None:
        self.stream = stream
        self._lane = lane
        self.last = 0
        """The last batch that was processed."""
        self._committed = 0
        """The last batch whose effect is on the disk: no acknowledgement goes further."""
        self._holds: dict[int, int] = {}
        """The number of holds of each batch that is held back."""
        self.touched = False
        """Whether the next commit changes the acknowledgement."""
        self.asked = False
        """Whether the acknowledgement after the next commit must not be delayed."""
        self.hurried = False
        """Whether the acknowledgement after the next commit may be delayed, but not until the next message goes."""
        self.pending = False
        """Whether an acknowledgement is due; it rides on the next batch to the peer, or goes alone later."""
        self.delayed = False
        """Whether the timer of delayed acknowledgements will look at this lane."""

    def hold(self, seq: int) -> None:
        self._holds[seq] = self._holds.get(seq, 0) + 1

    def release(self, seq: int) -> bool:
        """End one hold of a batch; whether it was the last."""
        # Several items of one batch may each be held back.
        self._holds[seq] -= 1
        if self._holds[seq]:
            return False
        del self._holds[seq]
        return True

    def commit(self) -> None:
        # Also after a duplicate or a released hold, when nothing new was committed: the answer must be repeated.
        self._committed = self.last
        self.touched = False
        self.pending = True

    def take_ack(self) -> BatchAck:
        """The acknowledgement of now. It is not due any more."""
        self.pending = False
        seq = self._committed
        stream = self.stream
        # A hold of a batch that is not committed yet says nothing that the sender could use.
        owed = tuple([held for held in self._holds if held <= seq]) if self._holds else ()
        return BatchAck(self._lane, stream.peer.boot, stream.number, seq, owed)


class IncomingStream:
    """All lanes from one boot of one peer, under one number."""

    __slots__ = ("closed", "lanes", "number", "peer")

    def __init__(self, peer: Peer, number: int) -> None:
        self.peer = peer
        self.number = number
        self.lanes: list[IncomingLane | None] = [None] * len(Lane)
        self.closed = False

    def open_lane(self, lane: Lane) -> IncomingLane:
        opened = self.lanes[lane] = IncomingLane(self, lane)
        return opened

    @property
    def used(self) -> bool:
        """Whether a batch was processed."""
        return any(lane is not None and lane.last > 0 for lane in self.lanes)

    def take_acks(self) -> tuple[BatchAck, ...]:
        """All acknowledgements that are due."""
        return tuple([lane.take_ack() for lane in self.lanes if lane is not None and lane.pending])
