"""What one peer records, and the way of it to clients, into a file and to Prometheus.

Owns the one timer, the sinks and how much of what was recorded is on its way. What a record is, `logger` knows; what is
in a sample, `peer.telemetry.sampling`.
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
from ringmq.peer.web.http_server import MetricsServer

MAX_UNACKNOWLEDGED: Final = 64
"""Batches that are published and not acknowledged: 4 MB. The rest waits in the recorder, which has its own bound."""
LOOK_S: Final = 0.1
"""How often it is looked for batches that are full."""
FLUSH_S: Final = 1.0
"""How long records wait for a batch to become full where no interval ends."""
STOP_S: Final = 0.5
"""How long the last batches may take: what nobody acknowledges in time is not waited for."""
LEVEL: Final = "debug"
"""Of the line in the log for each sample."""
FAILURES: Final = 0x80
"""Reasons from here on are failures (MQTT 5.0 §2.4)."""

log = structlog.get_logger()


class RecordingError(PeerError):
    """It cannot be recorded as configured."""


class Recording:
    """Create it before anything happens, for the roles to record by `recorder` if `records`; `start` it once there is
    something to sample; `stop` it before clients are told that the peer goes."""

    def __init__(self, config: RecordConfig, ring: str, peer: str, boot: int) -> None:
        self._config = config
        self.run = config.run_name(ring)
        self.recorder = Recorder(self.run, peer, boot, config, time.time())
        self.records = config.mqtt or config.file is not None
        """Whether anybody takes what is recorded."""
        self._topic = f"{LOG_TOPICS}/{peer}"
        self._file = None if config.file is None else FileSink(config.file)
        self._loop = asyncio.get_running_loop()
        self._sample: Callable[[str, float], Sample] | None = None
        self._publish: Callable[[Message, Done], None] | None = None
        self._server: MetricsServer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._interval_s = config.interval_s or FLUSH_S
        self._interval_ends_at = 0.0
        self._refused: deque[bytes] = deque()
        """To be published again."""
        self._unacknowledged = 0
        self._changed = asyncio.Event()
        """Something was acknowledged."""

    async def listen(self, sample: Callable[[str, float], Sample], counters: Callable[[], dict[str, int]]) -> None:
        """Serve Prometheus, if that is wanted. Raises PeerError, one clear line."""
        if self._config.metrics is None:
            return
        self._server = MetricsServer(lambda: exposition(self._now(sample), counters()))
        try:
            address = await self._server.listen(*self._config.metrics)
        except LoggerError as error:
            raise RecordingError(str(error)) from error
        log.info("serving metrics", address=show(address))

    def start(self, sample: Callable[[str, float], Sample], publish: Callable[[Message, Done], None]) -> None:
        """From now on samples are taken and batches go out."""
        if self.records:
            self._sample = sample
            self._publish = publish if self._config.mqtt else None
            self._interval_ends_at = self._loop.time() + self._interval_s
            self._timer = self._loop.call_later(min(LOOK_S, self._interval_s), self._look)

    async def stop(self) -> None:
        """Record a last sample, and send what there is as far as that is quick. Idempotent."""
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
        """JSON-able."""
        return {
            "run": self.run,
            "unrecorded": self.recorder.unrecorded,
            "waiting_bytes": self.recorder.waiting_bytes,
            "unacknowledged": self._unacknowledged,
            "not_written": 0 if self._file is None else self._file.lost,
        }

    def _look(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_at(min(now + LOOK_S, max(now, self._interval_ends_at)), self._look)
        if now >= self._interval_ends_at:
            self._interval_ends_at = max(self._interval_ends_at + self._interval_s, now)
            self._end_interval()
            self._send(partly=True)
        else:
            self._send(partly=False)

    def _end_interval(self) -> None:
        assert self._sample is not None, "it was started"
        now = time.time()
        if self._config.deliveries == "histogram":
            self.recorder.end_interval(now)
        if self._config.interval_s:
            sample = self._sample(self.run, now)
            self.recorder.sample(sample)
            log_sample(sample, LEVEL)

    def _now(self, sample: Callable[[str, float], Sample]) -> Sample:
        one = sample(self.run, time.time())
        one.unrecorded = self.recorder.unrecorded
        return one

    def _send(self, partly: bool) -> bool:
        """Give away batches, with `partly` those that are not full as well. Whether some had to stay."""
        again = len(self._refused)
        while self._unacknowledged < MAX_UNACKNOWLEDGED:
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
        assert self._publish is not None, "there are batches"
        self._unacknowledged += 1
        self._publish(Message(self._topic, batch, 1), partial(self._done, batch))

    def _done(self, batch: bytes, reason: Reason) -> None:
        """Refused for want of room, it is tried again with the next."""
        self._unacknowledged -= 1
        if reason >= FAILURES:
            self._refused.append(batch)
        self._changed.set()
