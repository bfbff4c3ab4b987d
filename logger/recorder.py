"""The records of a peer that are not yet in a sink: it chooses messages, numbers records and collects them in batches.

Knows no clock and no sink: times are arguments, and its owner takes the batches. Numbers have no gaps: a record that is
dropped here gets no number and is counted, so a gap means that a record was lost after this stage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from math import inf
from random import Random
from typing import Final

from ringmq.logger.config import RecordConfig
from ringmq.logger.histogram import bucket_of
from ringmq.logger.records import LOG_TOPICS, MAX_LINE_BYTES, Delivery, Latencies, Record, Sample, encode

MAX_BATCH_BYTES: Final = 64_000
"""Some 150 records, below the amount that sockets and clients take at once. A longer record is a batch of its own."""
MAX_WAITING_BYTES: Final = 8 << 20
"""The most bytes that wait for sinks that do not keep up: some 17,000 deliveries."""
MAX_SERIES: Final = 1000
"""The most series of latencies in one interval. At its end each becomes a record of some 400 bytes."""


def is_of_the_log(topic: str) -> bool:
    """Whether this is a topic of records. Messages to it are never chosen: each record would cause further records."""
    return topic == LOG_TOPICS or topic.startswith(LOG_TOPICS + "/")


@dataclass(slots=True)
class _Series:
    """Latencies that become one record."""

    count: int = 0
    sum_s: float = 0.0
    min_s: float = inf
    max_s: float = -inf
    bytes: int = 0
    buckets: dict[str, int] = field(default_factory=dict)


class Recorder:
    """One per start of a peer. Call `take` when `full`, and at the end of each interval."""

    def __init__(self, run: str, peer: str, boot: int, config: RecordConfig, now: float) -> None:
        """`run` is `config.run_name(...)`, `peer` the id in hexadecimal, `now` in seconds since 1970."""
        self._run, self._peer, self._boot = run, peer, boot
        self._mode = config.deliveries
        # The iterator's own `__next__`: the answer costs some 25 ns, and every published message asks for it. The seed
        # differs by peer and start, so that peers with the same traffic do not choose the same positions.
        self.chooses: Callable[[], bool] = _choices(config, Random(f"{peer} {boot}")).__next__
        """Whether to record a message. Only the origin calls it, once for each message that is published to a topic
        that is not of the log. Of each `every` messages one is chosen at random: if clients publish to several topics
        in a fixed order, all topics are recorded."""
        self.unrecorded = 0
        """Records dropped because the buffer was full or their line was too long."""
        self.waiting_bytes = 0
        self._number = 0
        self._batches: deque[bytes] = deque()
        self._open_lines: list[bytes] = []
        self._open_bytes = 0
        self._interval_began_at = now
        self._series: dict[tuple[str, str, int], _Series] = {}

    def sample(self, sample: Sample) -> None:
        """Record a sample. Sets its `number` and `unrecorded`."""
        sample.unrecorded = self.unrecorded
        self._append(sample)

    def delivered(
        self,
        origin: str,
        origin_boot: int,
        sequence: int,
        topic: str,
        dispatching: str,
        sender: str,
        sent_ns: int,
        received_ns: int,
        hops: int,
        size: int,
        clients: int,
        sends: int,
        duplicate: bool = False,
    ) -> None:
        """Record a chosen message that arrived at this peer or was published here; see `Delivery` for the arguments.

        Depending on the setting `deliveries` it becomes a record, is counted in a histogram if clients received it, or
        is ignored.
        """
        # Arguments instead of a Delivery: with a histogram no record is made (0.6 µs instead of 1.4, docs/records.md).
        if self._mode == "histogram":
            if clients and not duplicate:
                self._count_latency((topic, dispatching, hops), (received_ns - sent_ns) / 1e9, size)
        elif self._mode == "each":
            self._append(
                Delivery(
                    run=self._run,
                    peer=self._peer,
                    boot=self._boot,
                    number=0,
                    at=received_ns / 1e9,
                    origin=origin,
                    origin_boot=origin_boot,
                    sequence=sequence,
                    topic=topic,
                    dispatching=dispatching,
                    sender=sender,
                    sent_ns=sent_ns,
                    received_ns=received_ns,
                    hops=hops,
                    bytes=size,
                    clients=clients,
                    sends=sends,
                    duplicate=duplicate,
                )
            )

    def end_interval(self, now: float) -> None:
        """Record the latencies since the last call, one record per topic, dispatching and number of hops.

        Topics beyond MAX_SERIES share the topic "", which no message has.
        """
        # The wall clock may have been set back, and the schema allows no negative interval.
        interval_s = max(0.0, now - self._interval_began_at)
        self._interval_began_at = now
        ended, self._series = self._series, {}
        for (topic, dispatching, hops), series in ended.items():
            self._append(
                Latencies(
                    run=self._run,
                    peer=self._peer,
                    boot=self._boot,
                    number=0,
                    at=now,
                    interval_s=interval_s,
                    topic=topic,
                    dispatching=dispatching,
                    hops=hops,
                    count=series.count,
                    sum_s=series.sum_s,
                    min_s=series.min_s,
                    max_s=series.max_s,
                    bytes=series.bytes,
                    buckets=series.buckets,
                )
            )

    @property
    def full(self) -> bool:
        """Whether a batch has reached its maximum size."""
        return bool(self._batches)

    def take(self) -> bytes:
        """Removes and returns the oldest batch, full or not: lines, each with its line feed. Empty if there is none."""
        if not self._batches:
            self._close_batch()
        if not self._batches:
            return b""
        batch = self._batches.popleft()
        self.waiting_bytes -= len(batch)
        return batch

    def _count_latency(self, key: tuple[str, str, int], latency_s: float, size: int) -> None:
        series = self._series.get(key)
        if series is None:
            # Clients choose the topics, so their number in an interval has no other bound.
            if len(self._series) >= MAX_SERIES:
                key = ("", *key[1:])
            series = self._series.setdefault(key, _Series())
        series.count += 1
        series.sum_s += latency_s
        series.min_s = min(series.min_s, latency_s)
        series.max_s = max(series.max_s, latency_s)
        series.bytes += size
        bucket = bucket_of(latency_s)
        series.buckets[bucket] = series.buckets.get(bucket, 0) + 1

    def _append(self, record: Record) -> None:
        if self.waiting_bytes >= MAX_WAITING_BYTES:
            self.unrecorded += 1
            return
        record.number = self._number
        line = encode(record)
        if len(line) > MAX_LINE_BYTES:  # `records.decode` would refuse it
            self.unrecorded += 1
            return
        # Only now: a record that was dropped above must not leave a gap in the numbers.
        self._number += 1
        size = len(line) + 1
        if self._open_bytes + size > MAX_BATCH_BYTES:
            self._close_batch()
        self._open_lines.append(line)
        self._open_bytes += size
        self.waiting_bytes += size

    def _close_batch(self) -> None:
        if self._open_lines:
            self._open_lines.append(b"")  # so that the last line has a line feed too
            self._batches.append(b"\n".join(self._open_lines))
            self._open_lines, self._open_bytes = [], 0


def _choices(config: RecordConfig, chance: Random) -> Iterator[bool]:
    if config.deliveries == "off" or config.every == 1:
        return repeat(config.deliveries != "off")
    return chain.from_iterable(_answer_runs(config.every, chance))


def _answer_runs(every: int, chance: Random) -> Iterator[Iterator[bool]]:
    """Runs of equal answers, with one True in each `every` answers."""
    # Chained runs of `repeat` give nearly all answers without executing any Python code.
    while True:
        index = chance.randrange(every)
        yield repeat(False, index)
        yield repeat(True, 1)
        yield repeat(False, every - 1 - index)
