"""Classifies the lines of a message on a topic of records: a new record, a repetition, or a dead letter.

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
"""The most lines of one message, many times the number that a peer sends. A longer message becomes a single dead
letter: otherwise a message of a million bytes could become a million letters of a hundred bytes each."""


@dataclass(slots=True)
class Batch:
    """Complete lines that are landed together."""

    records: list[bytes] = field(default_factory=list)
    dead: list[bytes] = field(default_factory=list)
    size_bytes: int = 0


class Intake:
    """Takes messages one by one. Land each `batch` before acknowledging any of its messages."""

    def __init__(self, seen: Seen) -> None:
        self.records = 0
        self.dead = 0
        self.repeated = 0
        self._seen = seen
        self._batch = Batch()

    @property
    def size_bytes(self) -> int:
        """Size of the lines that are not yet in a batch."""
        return self._batch.size_bytes

    def batch(self) -> Batch:
        """The lines taken since the last call."""
        batch, self._batch = self._batch, Batch()
        return batch

    def take(self, topic: str, payload: bytes, now: float) -> None:
        """Take one message that arrived `now`, in seconds since 1970."""
        lines = payload.split(b"\n")
        if len(lines) > MAX_LINES:
            self._refuse(f"a message must have at most {MAX_LINES} lines, got {len(lines)}", topic, now, payload)
        elif not payload or payload.isspace():
            self._refuse("an empty message", topic, now, payload)
        else:
            self._take_lines(lines, topic, now)

    def _take_lines(self, lines: list[bytes], topic: str, now: float) -> None:
        # The record is encoded again, so that members which a sender added do not pass. `end` replaces its closing
        # brace, since `landed` is no member of the schema of records.
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
                self._refuse(f"a record of peer {record.peer} under the topic of another peer", topic, now, line)
                continue
            verdict = add(record.peer, record.boot, record.number)
            if verdict is Verdict.NEW:
                landed = encode(record)[:-1] + end
                batch.records.append(landed)
                batch.size_bytes += len(landed)
                self.records += 1
            elif verdict is Verdict.REPEATED:
                self.repeated += 1
            else:
                self._refuse("too late: its number is lower than all remembered numbers", topic, now, line)

    def _refuse(self, reason: str, topic: str, now: float, line: bytes) -> None:
        refused = letter(reason, topic, now, line)
        self._batch.dead.append(refused)
        self._batch.size_bytes += len(refused)
        self.dead += 1
