"""Takes messages from listeners, lands their lines in batches, and then acknowledges the messages.

Owns the decisions when to land a batch and when to end. Knows neither MQTT nor the form of records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty
from typing import Final, Protocol

from ringmq.collector.cli.addresses import Address
from ringmq.collector.errors import CollectorError
from ringmq.collector.ingest.intake import Intake
from ringmq.collector.ingest.spool import Spool
from ringmq.collector.ingest.subscriber import RECEIVE_MAXIMUM, Arrival, Inbox, Listener, Notice, Subscribed

ROLL_S: Final = 1.0
"""The longest time until a message is landed. A shorter time makes more files, which the jobs must open one by one."""
ROLL_BYTES: Final = 4 << 20
ROLL_MESSAGES: Final = RECEIVE_MAXIMUM // 2
"""Unacknowledged messages of one peer at which a batch is landed. At RECEIVE_MAXIMUM the peer would have to wait."""
LOOK_S: Final = 0.2
"""The time between two looks at the clock while no message arrives, and between two reports of the progress."""
DRAIN_QUIET_S: Final = 0.5
"""Draining ends this long after the last message. Above the time that a message takes from a peer."""
DRAIN_S: Final = 10.0
"""The longest time that draining takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCondition:
    """When to end without a signal: after `seconds`, or when no message has arrived for `idle_s`."""

    seconds: float | None = None
    idle_s: float | None = None


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """Counts since the start of the ingest; `missing` and `earlier` count since the data folder was created."""

    records: int = 0
    dead: int = 0
    repeated: int = 0
    missing: int = 0
    earlier: int = 0
    files: int = 0
    dropped: int = 0
    """Messages with QoS 0 that were dropped because the inbox was full."""


class Reporter(Protocol):
    """Reports the state of an ingest to people."""

    def progress(self, progress: IngestProgress) -> None:
        """Called every LOOK_S, and at the end."""

    def listening(self, address: Address) -> None:
        """Called once for each peer."""

    def notice(self, text: str) -> None: ...


class Ingest:
    """One run. `end` may be called at any time, even by a signal handler."""

    def __init__(
        self,
        spool: Spool,
        listeners: Sequence[Listener],
        inbox: Inbox,
        reporter: Reporter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool = spool
        self._intake = Intake(spool.seen)
        self._listeners = listeners
        self._inbox = inbox
        self._reporter = reporter
        self._clock = clock
        self._ending = False
        self._unlanded: dict[tuple[Listener, int], list[int]] = {}
        """The packet identifiers to acknowledge after landing, by listener and connection."""
        self._oldest = 0.0
        """The arrival of the first message that is not landed."""
        self._latest = 0.0
        """The arrival of the last message."""
        self._reported_at = 0.0

    @property
    def progress(self) -> IngestProgress:
        seen = self._spool.seen
        return IngestProgress(
            records=self._intake.records,
            dead=self._intake.dead,
            repeated=self._intake.repeated,
            missing=seen.missing,
            earlier=seen.earlier,
            files=self._spool.files,
            dropped=sum([listener.dropped for listener in self._listeners]),
        )

    def end(self) -> None:
        """Land the messages that have arrived, and return from `run`. The peers keep the session of this folder."""
        self._ending = True
        # Wakes up `_take_next`.
        self._inbox.put(None)

    def run(self, until: StopCondition) -> None:
        """Listen until the end. Then exactly the acknowledged messages are in the landing folder.

        If `until` ends the run, the peers deliver their queued messages and end the session. If `end` does, they keep
        the session and queue further messages for the next run. Raises CollectorError.
        """
        for listener in self._listeners:
            listener.start()
        keep_session = True
        try:
            drained = self._serve(until) and self._drain()
            self._land()
            keep_session = not drained
        finally:
            for listener in self._listeners:
                listener.stop(keep_session=keep_session)
            self._reporter.progress(self.progress)
        if not any(listener.was_subscribed for listener in self._listeners):
            raise CollectorError("cannot listen to any peer")

    def _serve(self, until: StopCondition) -> bool:
        """Take messages until `until` holds or `end` is called. Returns whether `until` holds."""
        started = self._latest = self._clock()
        while not self._ending:
            now = self._take_next()
            # Time without a subscription is not idle: no record could have arrived.
            if not any(listener.subscribed for listener in self._listeners):
                self._latest = now
            if until.seconds is not None and now - started >= until.seconds:
                return True
            if until.idle_s is not None and now - self._latest >= until.idle_s:
                return True
        return False

    def _drain(self) -> bool:
        """Take the messages that are queued at the peers. Returns whether no more arrived for DRAIN_QUIET_S."""
        for listener in self._listeners:
            listener.unsubscribe()
        began = self._latest = now = self._clock()
        while now - self._latest < DRAIN_QUIET_S and now - began < DRAIN_S and not self._ending:
            if self._inbox.empty():
                self._land()  # the peer may send no more before it gets acknowledgements
            now = self._take_next()
        return now - self._latest >= DRAIN_QUIET_S

    def _take_next(self) -> float:
        """Wait up to LOOK_S for an event and handle it, and land the batch if it is old enough. Returns the time."""
        wait_s = min(LOOK_S, self._oldest + ROLL_S - self._clock()) if self._unlanded else LOOK_S
        try:
            event = self._inbox.get(timeout=max(wait_s, 0.0))
        except Empty:
            event = None
        now = self._clock()
        if isinstance(event, Arrival):
            self._take(event, now)
        elif isinstance(event, Subscribed):
            self._reporter.listening(event.address)
        elif isinstance(event, Notice):
            self._handle_notice(event)
        if self._unlanded and now - self._oldest >= ROLL_S:
            self._land()
        if now - self._reported_at >= LOOK_S:
            self._reported_at = now
            self._reporter.progress(self.progress)
        return now

    def _take(self, arrival: Arrival, now: float) -> None:
        if not self._unlanded:
            self._oldest = now
        self._latest = now
        self._intake.take(arrival.topic, arrival.payload, time.time())
        packet_ids = self._unlanded.setdefault((arrival.listener, arrival.connection), [])
        if arrival.packet_id:
            packet_ids.append(arrival.packet_id)
        # Messages that have arrived already are landed in the same batch, so that they share its waits for the disk.
        full = len(packet_ids) >= ROLL_MESSAGES and self._inbox.empty()
        if full or self._intake.size_bytes >= ROLL_BYTES:
            self._land()

    def _land(self) -> None:
        self._spool.land(self._intake.batch())
        for (listener, connection), packet_ids in self._unlanded.items():
            listener.acknowledge(connection, packet_ids)
        self._unlanded.clear()

    def _handle_notice(self, notice: Notice) -> None:
        if notice.final:
            self._land()
            raise CollectorError(notice.text)
        self._reporter.notice(notice.text)
