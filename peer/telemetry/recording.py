"""Recording of one peer: sends its records to MQTT clients and into a file, and serves metrics to Prometheus.

Owns the timer, the sinks and the number of batches in flight. `logger` knows the form of records,
`peer.telemetry.sampling` the content of a sample.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog
from msgspec import structs

from ringmq.logger.config import RecordConfig
from ringmq.logger.errors import LoggerError
from ringmq.logger.prometheus import exposition
from ringmq.logger.record_files import FileSink
from ringmq.logger.recorder import Recorder
from ringmq.logger.records import LOG_TOPICS, Sample
from ringmq.logger.sample_line import log_sample
from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.overlay.config import show
from ringmq.peer.errors import PeerError
from ringmq.peer.web.http_server import HttpServer
from ringmq.peer.web.metrics_site import MetricsSite

MAX_UNACKNOWLEDGED: Final = 64
"""Maximum published batches without acknowledgement: 4 MB. Others wait in the recorder, which has its own limit."""
LOOK_S: Final = 0.1
"""Period of the check for full batches."""
FLUSH_S: Final = 1.0
"""Maximum wait for a batch to fill up if samples are off, so that no interval ends."""
STOP_S: Final = 0.5
"""Maximum wait for the acknowledgements of the last batches when the peer stops."""
LEVEL: Final = "debug"
"""Log level of the line for each sample."""
FAILURES: Final = 0x80
"""Lowest reason code of a failure (MQTT 5.0 §2.4)."""

log = structlog.get_logger()


class RecordingError(PeerError):
    """Recording is impossible as configured."""


class Recording:
    """Create it first, so that the engine can write to `recorder` if `records`; `start` it once samples can be taken;
    `stop` it before the front and the node stop."""

    def __init__(self, config: RecordConfig, ring: str, peer: str, boot: int) -> None:
        self._config = config
        self.run = config.run_name(ring)
        self.recorder = Recorder(self.run, peer, boot, config, time.time())
        self.records = config.mqtt or config.file is not None
        """Whether there is a sink for records."""
        self.insecure = False
        """Whether strangers can join this peer's ring, for the metrics."""
        self._topic = f"{LOG_TOPICS}/{peer}"
        self._file = None if config.file is None else FileSink(config.file)
        self._loop = asyncio.get_running_loop()
        self._sample: Callable[[str, float], Sample] | None = None
        self._publish: Callable[[Message, Done], None] | None = None
        self._server: HttpServer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._interval_s = config.interval_s or FLUSH_S
        self._interval_ends_at = 0.0
        self._refused: deque[bytes] = deque()
        """Batches to publish again."""
        self._unacknowledged = 0
        self._changed = asyncio.Event()
        """Set when a batch is acknowledged."""

    async def listen(self, sample: Callable[[str, float], Sample], counters: Callable[[], dict[str, int]]) -> None:
        """Serve Prometheus if configured. Raises PeerError with one line."""
        if self._config.metrics is None:
            return
        self._server = HttpServer(MetricsSite(lambda: self.metrics(sample, counters)))
        try:
            address = await self._server.listen(*self._config.metrics, what="metrics")
        except LoggerError as error:
            raise RecordingError(str(error)) from error
        log.info("serving metrics", address=show(address))

    def start(self, sample: Callable[[str, float], Sample], publish: Callable[[Message, Done], None]) -> None:
        """Begin to take samples and send batches."""
        if self.records:
            self._sample = sample
            self._publish = publish if self._config.mqtt else None
            self._interval_ends_at = self._loop.time() + self._interval_s
            self._timer = self._loop.call_later(min(LOOK_S, self._interval_s), self._look)

    async def stop(self) -> None:
        """Record a last sample, and send all batches within STOP_S. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._end_interval()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    while self._send(partly=True) or self._unacknowledged:
                        self._changed.clear()
                        await self._changed.wait()
        if self._server is not None:
            await self._server.close()

    def status(self) -> dict[str, Any]:
        """JSON-able: the run and the counts of records in each state."""
        return {
            "run": self.run,
            "unrecorded": self.recorder.unrecorded,
            "waiting_bytes": self.recorder.waiting_bytes,
            "unacknowledged": self._unacknowledged,
            "not_written": 0 if self._file is None else self._file.lost,
        }

    def metrics(self, sample: Callable[[str, float], Sample], counters: Callable[[], dict[str, int]]) -> str:
        """The page for Prometheus."""
        return exposition(self._now(sample), counters(), insecure=self.insecure)

    def _look(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_at(min(now + LOOK_S, max(now, self._interval_ends_at)), self._look)
        if now >= self._interval_ends_at:
            # After a pause of the event loop the missed intervals are skipped, not recorded one after the other.
            self._interval_ends_at = max(self._interval_ends_at + self._interval_s, now)
            self._end_interval()
            self._send(partly=True)
        else:
            self._send(partly=False)

    def _end_interval(self) -> None:
        assert self._sample is not None, "only `start` sets the timer"
        now = time.time()
        if self._config.deliveries == "histogram":
            self.recorder.end_interval(now)
        if self._config.interval_s:
            sample = self._sample(self.run, now)
            self.recorder.sample(sample)
            log_sample(sample, LEVEL)

    def _now(self, sample: Callable[[str, float], Sample]) -> Sample:
        return structs.replace(sample(self.run, time.time()), unrecorded=self.recorder.unrecorded)

    def _send(self, partly: bool) -> bool:
        """Send full batches, with `partly` also partial ones. Returns whether MAX_UNACKNOWLEDGED stopped it."""
        # Only the batches refused before this call: a batch that is refused again at once must not be retried for ever.
        again = len(self._refused)
        while self._unacknowledged < MAX_UNACKNOWLEDGED:
            # A refused batch is in the file already.
            if again:
                again -= 1
                self._publish_batch(self._refused.popleft())
                continue
            batch = self.recorder.take() if partly or self.recorder.full else b""
            if not batch:
                break
            if self._file is not None:
                self._file.write(batch)
            if self._publish is not None:
                self._publish_batch(batch)
        return self._unacknowledged >= MAX_UNACKNOWLEDGED

    def _publish_batch(self, batch: bytes) -> None:
        assert self._publish is not None, "only batches for MQTT come here"
        self._unacknowledged += 1
        # QoS 1, as MAX_UNACKNOWLEDGED needs acknowledgements: with QoS 0 `done` only says that a message was sent.
        self._publish(Message(self._topic, batch, 1), partial(self._done, batch))

    def _done(self, batch: bytes, reason: Reason) -> None:
        self._unacknowledged -= 1
        # A refusal means that a queue was full, so the batch is published again with the next batches.
        if reason >= FAILURES:
            self._refused.append(batch)
        self._changed.set()
