"""What a peer has recorded and not yet given away: it chooses messages, numbers records and gathers them in batches.

Knows no clock and no sink: times are arguments, and whoever owns it takes the batches. Numbers have no gaps: what is
given up for want of room gets none and is counted, so that a gap means that a record was lost behind this.
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
"""Some 150 records: below what sockets and clients take at once. A single longer one is a batch of its own."""
MAX_WAITING_BYTES: Final = 8 << 20
"""What may wait for sinks that do not keep up: some 17,000 deliveries."""
MAX_SERIES: Final = 1000
"""Of latencies in one interval. Each is a record of some 400 bytes at its end."""


def is_of_the_log(topic: str) -> bool:
    """Whether records are published there: such messages are never chosen, or each record would make others."""
    return topic == LOG_TOPICS or topic.startswith(LOG_TOPICS + "/")


@dataclass(slots=True)
class _Series:
    """Latencies that make one record."""

    count: int = 0
    sum_s: float = 0.0
    min_s: float = inf
    max_s: float = -inf
    bytes: int = 0
    buckets: dict[str, int] = field(default_factory=dict)


class Recorder:
    """One per peer and start. Ask it for batches when `full`, and at the end of each interval."""

    def __init__(self, run: str, peer: str, boot: int, config: RecordConfig, now: float) -> None:
        """`run` is that of `config.run_in`, `peer` the id in hexadecimal, `now` in seconds since 1970."""
        self._run, self._peer, self._boot = run, peer, boot
        self._mode = config.deliveries
        self.chooses: Callable[[], bool] = _choices(config, Random(f"{peer} {boot}")).__next__
        """Whether a message is to be recorded; to be asked by its origin alone, once for each message that is published
        to a topic that is not of the log. Of each `every` messages one at random is, so that what is published in turns
        is not chosen in turns."""
        self.unrecorded = 0
        """Records that were given up for want of room."""
        self.waiting_bytes = 0
        self._number = 0
        self._batches: deque[bytes] = deque()
        self._open: list[bytes] = []
        self._open_bytes = 0
        self._since = now
        self._series: dict[tuple[str, str, int], _Series] = {}

    def sample(self, sample: Sample) -> None:
        """Record it. Its `number` and `unrecorded` are set here, whatever they were."""
        sample.unrecorded = self.unrecorded
        self._put(sample)

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
        """Record a chosen message that came to this peer, or began here: the members of `Delivery`. As `deliveries`
        says, it becomes a record, is counted among the latencies if clients were given it, or is left out."""
        if self._mode == "histogram":
            if clients and not duplicate:
                self._fold((topic, dispatching, hops), (received_ns - sent_ns) / 1e9, size)
        elif self._mode == "each":
            self._put(
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
        """Record the latencies since the last call. Beyond MAX_SERIES, they stand under the topic "", which no message
        has, in one series for each dispatching and number of hops."""
        interval_s = max(0.0, now - self._since)
        self._since = now
        series, self._series = self._series, {}
        for (topic, dispatching, hops), one in series.items():
            self._put(
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
                    count=one.count,
                    sum_s=one.sum_s,
                    min_s=one.min_s,
                    max_s=one.max_s,
                    bytes=one.bytes,
                    buckets=one.buckets,
                )
            )

    @property
    def full(self) -> bool:
        """Whether a batch is as large as batches become."""
        return bool(self._batches)

    def take(self) -> bytes:
        """The oldest batch: lines, each with its end. Empty: there is none."""
        if not self._batches:
            self._close()
        if not self._batches:
            return b""
        batch = self._batches.popleft()
        self.waiting_bytes -= len(batch)
        return batch

    def _fold(self, key: tuple[str, str, int], latency_s: float, size: int) -> None:
        series = self._series.get(key)
        if series is None:
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

    def _put(self, record: Record) -> None:
        if self.waiting_bytes >= MAX_WAITING_BYTES:
            self.unrecorded += 1
            return
        record.number = self._number
        line = encode(record)
        if len(line) > MAX_LINE_BYTES:  # nobody would read it
            self.unrecorded += 1
            return
        self._number += 1
        size = len(line) + 1
        if self._open_bytes + size > MAX_BATCH_BYTES:
            self._close()
        self._open.append(line)
        self._open_bytes += size
        self.waiting_bytes += size

    def _close(self) -> None:
        if self._open:
            self._open.append(b"")
            self._batches.append(b"\n".join(self._open))
            self._open, self._open_bytes = [], 0


def _choices(config: RecordConfig, chance: Random) -> Iterator[bool]:
    if config.deliveries == "off" or config.every == 1:
        return repeat(config.deliveries != "off")
    return chain.from_iterable(_runs(config.every, chance))


def _runs(every: int, chance: Random) -> Iterator[Iterator[bool]]:
    """Of each `every` answers one is yes. To be chained, so that nearly all answers are given without any Python."""
    while True:
        place = chance.randrange(every)
        yield repeat(False, place)
        yield repeat(True, 1)
        yield repeat(False, every - 1 - place)
