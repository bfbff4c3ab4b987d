"""From listeners into the landing folder: takes messages, lands batches of their lines, and acknowledges then.

Owns when a batch is landed and when the ingest ends. Knows neither MQTT nor the form of records.
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
from ringmq.collector.ingest.subscriber import RECEIVE_MAXIMUM, Arrival, Inbox, Listener, Listening, Notice

ROLL_S: Final = 1.0
"""A message is landed no later. Shorter would make more files, which the jobs behind have to open one by one."""
ROLL_BYTES: Final = 4 << 20
ROLL_MESSAGES: Final = RECEIVE_MAXIMUM // 2
"""Of one peer: it must not come to wait for acknowledgements."""
LOOK_S: Final = 0.2
"""Between two looks at the clock while nothing comes, and between two words about the progress."""
DRAIN_QUIET_S: Final = 0.5
"""After the last message that a peer was left with has come. Above what a message takes from a peer."""
DRAIN_S: Final = 10.0
"""As long at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """When to end without being told: after so long, or when nothing has come for so long."""

    seconds: float | None = None
    idle_s: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it has come since its start; `missing` and `earlier` as far back as the data folder knows."""

    records: int = 0
    dead: int = 0
    repeated: int = 0
    missing: int = 0
    earlier: int = 0
    files: int = 0
    dropped: int = 0
    """Messages with QoS 0 for which there was no room."""


class Teller(Protocol):
    """Tells people how it goes."""

    def progress(self, progress: Progress) -> None:
        """Called now and then, and at the end."""

    def listening(self, address: Address) -> None:
        """Called once for each peer."""

    def notice(self, text: str) -> None: ...


class Ingest:
    """One run. `end` may be called at any time, by a signal handler too."""

    def __init__(
        self,
        spool: Spool,
        listeners: Sequence[Listener],
        inbox: Inbox,
        teller: Teller,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool = spool
        self._intake = Intake(spool.seen)
        self._listeners = listeners
        self._inbox = inbox
        self._teller = teller
        self._clock = clock
        self._ending = False
        self._unlanded: dict[tuple[Listener, int], list[int]] = {}
        """The packet identifiers to be acknowledged, by listener and connection."""
        self._oldest = 0.0
        """When the first message came that is not landed."""
        self._latest = 0.0
        """When the last message came."""
        self._looked = 0.0

    @property
    def progress(self) -> Progress:
        seen = self._spool.seen
        return Progress(
            records=self._intake.records,
            dead=self._intake.dead,
            repeated=self._intake.repeated,
            missing=seen.missing,
            earlier=seen.earlier,
            files=self._spool.files,
            dropped=sum([listener.dropped for listener in self._listeners]),
        )

    def end(self) -> None:
        """Land what has come and return from `run`; the peers go on collecting for this folder."""
        self._ending = True
        self._inbox.put(None)

    def run(self, until: Until) -> None:
        """Listen until the end; then all that was acknowledged is in the landing folder, and nothing else is.

        Who ends by `until` wants no more: the peers send what waits for it, and forget it. Raises CollectorError.
        """
        for listener in self._listeners:
            listener.start()
        keep_session = True
        try:
            all_here = self._serve(until) and self._drain()
            self._land()
            keep_session = not all_here
        finally:
            for listener in self._listeners:
                listener.stop(keep_session=keep_session)
            self._teller.progress(self.progress)
        if not any(listener.was_subscribed for listener in self._listeners):
            raise CollectorError("no peer could be listened to")

    def _serve(self, until: Until) -> bool:
        """Whether it ends by itself."""
        started = self._latest = self._clock()
        while not self._ending:
            now = self._take_next()
            if not any(listener.subscribed for listener in self._listeners):
                self._latest = now
            if until.seconds is not None and now - started >= until.seconds:
                return True
            if until.idle_s is not None and now - self._latest >= until.idle_s:
                return True
        return False

    def _drain(self) -> bool:
        """Take what the peers have left. Whether that was all of it."""
        for listener in self._listeners:
            listener.leave()
        began = self._latest = now = self._clock()
        while now - self._latest < DRAIN_QUIET_S and now - began < DRAIN_S and not self._ending:
            if self._inbox.empty():
                self._land()  # a peer may wait for acknowledgements
            now = self._take_next()
        return now - self._latest >= DRAIN_QUIET_S

    def _take_next(self) -> float:
        """Wait a little for one message and take it, and land what is due. Returns the time."""
        due = bool(self._unlanded)
        wait_s = min(LOOK_S, self._oldest + ROLL_S - self._clock()) if due else LOOK_S
        try:
            found = self._inbox.get(timeout=max(wait_s, 0.0))
        except Empty:
            found = None
        now = self._clock()
        if isinstance(found, Arrival):
            self._take(found, now)
        elif isinstance(found, Listening):
            self._teller.listening(found.address)
        elif isinstance(found, Notice):
            self._heed(found)
        if self._unlanded and now - self._oldest >= ROLL_S:
            self._land()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._teller.progress(self.progress)
        return now

    def _take(self, arrival: Arrival, now: float) -> None:
        if not self._unlanded:
            self._oldest = now
        self._latest = now
        self._intake.take(arrival.topic, arrival.payload, time.time())
        waiting = self._unlanded.setdefault((arrival.listener, arrival.connection), [])
        if arrival.packet_id:
            waiting.append(arrival.packet_id)
        # What is here already shares the wait for the disk.
        many = len(waiting) >= ROLL_MESSAGES and self._inbox.empty()
        if many or self._intake.size_bytes >= ROLL_BYTES:
            self._land()

    def _land(self) -> None:
        self._spool.land(self._intake.batch())
        for (listener, connection), packet_ids in self._unlanded.items():
            listener.acknowledge(connection, packet_ids)
        self._unlanded.clear()

    def _heed(self, notice: Notice) -> None:
        if notice.final:
            self._land()
            raise CollectorError(notice.text)
        self._teller.notice(notice.text)
