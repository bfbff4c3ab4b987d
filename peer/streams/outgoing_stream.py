"""The sending side of a stream: queued items, batches in flight, and batches whose effect the receiver still owes.

Decides which batches to send, and when silence is over. Sends nothing, and knows neither timers nor messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

from ringmq.overlay.core.messages import Peer
from ringmq.peer.streams.stream_messages import Lane

Done = Callable[[], None]

WINDOW: Final = 4
"""Unacknowledged batches of one lane. Further items join meanwhile, as with Nagle's rule (RFC 896): more batches would
make each smaller, fewer would leave the link empty for most of a round trip."""
BATCH_BYTES: Final = 1 << 15
"""Bytes of items in one batch: the most that an item of another lane waits behind on a link, WINDOW times. A larger
item has a batch to itself."""
BATCH_ITEMS: Final = 512
"""Items of one batch, as a receiver handles a batch without a pause."""
PATIENCE: Final = 10
"""A batch of answers that repeat themselves, as those to renewals, is sent again after this factor of the usual wait:
longer than the time between two of them, so that its acknowledgement can ride on the next question."""
MAX_OWED: Final = 4096
"""Batches of one lane that the receiver has processed and not applied. Every acknowledgement names all of them. Beyond,
the stream is lost."""
MOST_DOUBLINGS: Final = 16
LATE_S: Final = 1.0
"""The most that answers which have not come make the next wait longer."""
LATEST_S: Final = 5.0
"""The longest time that an answer is waited for before it counts as late, however slow the earlier ones were."""

NOTHING: Final[frozenset[int]] = frozenset()


class QueuedBatch:
    """Items under one sequence number. Once sent, it never changes: the receiver may have processed it."""

    __slots__ = ("again", "dones", "items", "patient", "sent_at", "seq", "size_bytes", "urgent")

    def __init__(self) -> None:
        self.seq = 0
        self.sent_at = 0.0
        self.again = False
        """Whether it was sent again: its answer may be that to any of its copies, so its time says nothing (Karn)."""
        self.items: list[bytes] = []
        self.size_bytes = 0
        self.dones: list[Done] = []
        self.urgent = False
        self.patient = True
        """Whether the acknowledgement of all its items may wait for the next message of the receiver."""


class OutgoingLane:
    """One lane: batches in flight, full batches that wait for the window, and the open batch."""

    __slots__ = ("_full", "_sent", "deadline", "in_flight", "lane", "open", "owed", "patient", "since", "tries")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.open = QueuedBatch()
        self._full: deque[QueuedBatch] | None = None
        """Most lanes never have one, and an empty deque takes 600 bytes."""
        self.in_flight: list[QueuedBatch] = []
        self._sent = 0
        """The last sequence number."""
        self.owed: dict[int, list[Done]] = {}
        """Batches that the receiver has processed but not applied. Their items are not kept: a question with the number
        alone repeats a lost answer."""
        self.tries = 0
        self.deadline = inf
        """If nothing is acknowledged until then, the receiver is silent."""
        self.patient = False
        """Whether that time is a late one, since only patient batches are in flight."""
        self.since = 0.0
        """When the first batch after a rest was sent."""

    def next_batch(self) -> QueuedBatch:
        """The open batch is full: the next item begins another."""
        if self._full is None:
            self._full = deque()
        self._full.append(self.open)
        self.open = QueuedBatch()
        return self.open

    @property
    def queued(self) -> bool:
        """Whether items wait for the window. A full batch always has the open one behind it."""
        return bool(self.open.items)

    @property
    def idle(self) -> bool:
        return not (self.in_flight or self.owed or self.open.items)

    def launch(self, now: float, wait_s: float) -> list[QueuedBatch]:
        """The batches that the window admits now; they are in flight from now on."""
        launched: list[QueuedBatch] = []
        in_flight = self.in_flight
        while len(in_flight) < WINDOW:
            if self._full:
                batch = self._full.popleft()
            elif self.open.items:
                batch, self.open = self.open, QueuedBatch()
            else:
                break
            self._sent += 1
            batch.seq = self._sent
            batch.sent_at = now
            # A delayed acknowledgement would stop a window that is half full, so a sender of much asks for it at once.
            batch.urgent = bool(batch.dones) or 2 * len(in_flight) >= WINDOW
            batch.patient = batch.patient and not batch.urgent
            in_flight.append(batch)
            launched.append(batch)
        if launched and (self.deadline == inf or self.patient):
            if self.deadline == inf:
                self.since = now
            self.patient = all(batch.patient for batch in in_flight)
            # A late deadline stays as it is, or becomes an early one.
            self.deadline = min(self.deadline, now + self._wait(wait_s))
        return launched

    def acknowledge(self, seq: int, owed: frozenset[int], now: float, wait_s: float) -> Acknowledged | None:
        """The receiver has processed all batches up to `seq`, and applied all of them but `owed`. None: nothing new.

        Each acknowledgement is true for ever, so acknowledgements may overtake each other.
        """
        dones: list[Done] = []
        news = False
        # First the older batches, so that calls are in order unless the receiver released holds out of order.
        if self.owed:
            for number in [number for number in self.owed if number <= seq and number not in owed]:
                dones += self.owed.pop(number)
                news = True
        freed_bytes = freed_items = 0
        answered_s = None
        in_flight = self.in_flight
        while in_flight and in_flight[0].seq <= seq:
            batch = in_flight.pop(0)
            if not batch.patient and not batch.again:
                answered_s = now - batch.sent_at
            freed_bytes += batch.size_bytes
            freed_items += len(batch.items)
            news = True
            if batch.dones:
                if batch.seq in owed:
                    self.owed[batch.seq] = batch.dones
                else:
                    dones += batch.dones
        if not news:
            # An answer to a question about holds that still last must not shorten the wait before the next question.
            return None
        # Batches that were not sent again with the oldest one follow at once, without another wait.
        again = in_flight[:] if self.tries > 1 else []
        self.tries = 0
        self.patient = not self.owed and all(batch.patient for batch in in_flight)
        self.deadline = now + self._wait(wait_s) if in_flight or self.owed else inf
        return Acknowledged(dones, freed_bytes, freed_items, again, answered_s)

    def _wait(self, wait_s: float) -> float:
        return PATIENCE * wait_s if self.patient else wait_s

    def silent(self, now: float, wait_s: float, most_s: float) -> list[QueuedBatch]:
        """The deadline has passed: the batches to send again. A batch without items asks for an answer alone."""
        self.tries += 1
        self.patient = False
        self.deadline = now + min(most_s, wait_s * (1 << min(self.tries, MOST_DOUBLINGS)))
        if self.in_flight:
            # Go back N at the first silence. A receiver that stays silent is paused or gone: the oldest batch is
            # enough to hear of its return, and a window for each lane would fill the buffer of its link.
            return self.in_flight[:] if self.tries == 1 else self.in_flight[:1]
        question = QueuedBatch()
        question.seq = next(iter(self.owed))
        return [question]


class Acknowledged:
    """The effect of an acknowledgement on the sender."""

    __slots__ = ("again", "answered_s", "dones", "freed_bytes", "freed_items")

    def __init__(
        self,
        dones: list[Done],
        freed_bytes: int,
        freed_items: int,
        again: list[QueuedBatch],
        answered_s: float | None,
    ) -> None:
        self.answered_s = answered_s
        """How long the last of the batches has taken. None: nobody was waiting for the answer."""
        self.dones = dones
        self.freed_bytes = freed_bytes
        self.freed_items = freed_items
        self.again = again


class OutgoingStream:
    """All lanes towards one boot of one peer, under one number."""

    __slots__ = (
        "_deviation_s", "_usual_s", "closed", "dirty", "heard_at", "held_bytes", "known", "lanes", "late_s",
        "number", "peer", "timer_at",
    )  # fmt: skip

    def __init__(self, peer: Peer, number: int) -> None:
        self.peer = peer
        self.number = number
        self.lanes: list[OutgoingLane | None] = [None] * len(Lane)
        """Made when first used: most pairs use CONTROL alone."""
        self.known = False
        """Whether the receiver has ever acknowledged a batch."""
        self.held_bytes = 0
        """Memory of items that are queued or in flight."""
        self.heard_at = 0.0
        """When the last acknowledgement came, with or without news."""
        self.dirty = False
        """Whether the next flush must look at it."""
        self.closed = False
        self.timer_at = inf
        """When the only valid timer of this stream is due. An older timer than that does nothing."""
        self._usual_s = 0.0
        self._deviation_s = 0.0
        self.late_s = 0.0
        """If more than 0, the first wait for an answer of the next batches: none has come in time lately."""

    def answered(self, answered_s: float) -> None:
        """A batch was acknowledged this long after it was sent."""
        self.late_s = 0.0
        off = answered_s - self._usual_s
        self._usual_s += off / 8
        self._deviation_s += (abs(off) - self._deviation_s) / 4

    def late(self, waited_s: float) -> None:
        """No acknowledgement has come for so long. If all answers are slow, none of a batch that was not sent again
        would ever be seen, so the next wait is longer until there is one."""
        self.late_s = min(2 * max(self.late_s, waited_s), LATE_S)

    @property
    def answer_s(self) -> float:
        """An answer that takes longer is late (RFC 6298): when a machine is busy, all answers are slow, and to send
        everything again would make it busier."""
        return min(self._usual_s + 4 * self._deviation_s, LATEST_S)

    def open_lane(self, lane: Lane) -> OutgoingLane:
        opened = self.lanes[lane] = OutgoingLane(lane)
        return opened

    def close(self) -> None:
        """Forget everything: no call of `done` follows."""
        self.closed = True
        self.lanes = [None] * len(Lane)
        self.held_bytes = 0

    @property
    def deadline(self) -> float:
        return min([lane.deadline for lane in self.lanes if lane is not None], default=inf)

    @property
    def idle(self) -> bool:
        return all(lane is None or lane.idle for lane in self.lanes)
