"""What becomes of a message on the topics of records: each line a record to be landed, a repetition, or a dead letter.

Pure: messages and the time go in, batches of lines come out. Knows neither files nor connections.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ringmq.collector.ingest.dead_letters import letter
from ringmq.collector.ingest.seen import Seen, Verdict
from ringmq.logger.records import LOG_TOPICS, decode, encode

FILTER: Final = f"{LOG_TOPICS}/#"
MAX_LINES: Final = 10_000
"""Of one message: many times what a peer sends. A message of more is set aside as a whole, or each of a million bytes
could become a letter of a hundred."""


@dataclass(slots=True)
class Batch:
    """What is to be landed together; whole lines."""

    records: list[bytes] = field(default_factory=list)
    dead: list[bytes] = field(default_factory=list)
    size_bytes: int = 0


class Intake:
    """Takes messages one by one; what was taken since the last `batch` is to be landed before any is acknowledged."""

    def __init__(self, seen: Seen) -> None:
        self.records = 0
        self.dead = 0
        self.repeated = 0
        self._seen = seen
        self._batch = Batch()

    @property
    def size_bytes(self) -> int:
        """Of what is to be landed."""
        return self._batch.size_bytes

    def batch(self) -> Batch:
        """What was taken since the last call."""
        batch, self._batch = self._batch, Batch()
        return batch

    def take(self, topic: str, payload: bytes, now: float) -> None:
        """Take one message that came `now`, in seconds since 1970."""
        lines = payload.split(b"\n")
        if len(lines) > MAX_LINES:
            self._refuse(f"{len(lines)} lines are more than a message has", topic, now, payload)
        elif not payload or payload.isspace():
            self._refuse("an empty message", topic, now, payload)
        else:
            self._take_lines(lines, topic, now)

    def _take_lines(self, lines: list[bytes], topic: str, now: float) -> None:
        # Encoded once more, so that nothing passes that a sender wrote in addition; then the brace makes room.
        end = b',"landed":%.6f}\n' % now
        above, _, peer = topic.rpartition("/")
        peer = peer if above == LOG_TOPICS else ""
        batch, add = self._batch, self._seen.add
        for line in lines:
            if not line or line.isspace():
                continue
            try:
                record = decode(line)
            except ValueError as error:
                self._refuse(str(error), topic, now, line)
                continue
            if record.peer != peer:
                self._refuse(f"a record of peer {record.peer}, which is not the one of the topic", topic, now, line)
                continue
            verdict = add(record.peer, record.boot, record.number)
            if verdict is Verdict.NEW:
                landed = encode(record)[:-1] + end
                batch.records.append(landed)
                batch.size_bytes += len(landed)
                self.records += 1
            elif verdict is Verdict.AGAIN:
                self.repeated += 1
            else:
                self._refuse("too late: its number is below what is remembered", topic, now, line)

    def _refuse(self, reason: str, topic: str, now: float, line: bytes) -> None:
        refused = letter(reason, topic, now, line)
        self._batch.dead.append(refused)
        self._batch.size_bytes += len(refused)
        self.dead += 1
