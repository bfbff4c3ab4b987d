"""Reports the progress of an ingest: on a terminal one line that is rewritten, elsewhere a line every ten seconds.

Knows nothing about the ingest itself.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Final, TextIO

from ringmq.collector.cli.addresses import Address
from ringmq.collector.ingest.ingest import IngestProgress

QUIET_S: Final = 10.0
"""The least time between two lines, if the stream is no terminal."""
REWRITE: Final = "\r\x1b[K"
"""Return to the beginning of the line, and clear it."""


class StreamReporter:
    """Writes progress and notices for people to `stream`, and the lines that programs wait for to `out`."""

    def __init__(self, stream: TextIO, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._out = out
        self._clock = clock
        self._rewrites = stream.isatty()
        self._last = IngestProgress()
        self._reported_at = clock()

    def progress(self, progress: IngestProgress) -> None:
        """Report the progress if a report is due. Call this more often than every QUIET_S."""
        now = self._clock()
        passed_s = now - self._reported_at
        if passed_s <= 0 or not (self._rewrites or (passed_s >= QUIET_S and progress != self._last)):
            return
        rate = (progress.records - self._last.records) / passed_s
        text = f"{summary(progress)}, {rate:,.0f} records/s"
        # Text that wraps to a second line could not be rewritten.
        self._write(REWRITE + text[: shutil.get_terminal_size().columns - 1] if self._rewrites else f"{text}\n")
        self._last, self._reported_at = progress, now

    def listening(self, address: Address) -> None:
        self.close()
        print(f"listening: {address}", file=self._out, flush=True)

    def notice(self, text: str) -> None:
        """Write a notice on a line of its own."""
        self._write(f"{REWRITE if self._rewrites else ''}ringmq: {text}\n")

    def close(self) -> None:
        """Clear the progress line of a terminal."""
        if self._rewrites:
            self._write(REWRITE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def summary(progress: IngestProgress) -> str:
    """The counts as text. Rare counts are omitted while they are zero."""
    parts = [
        f"{progress.records:,} records in {progress.files:,} files",
        f"{progress.dead:,} dead letters",
        f"{progress.missing:,} missing",
    ]
    if progress.earlier:
        parts.append(f"{progress.earlier:,} from before the ingest began")
    if progress.repeated:
        parts.append(f"{progress.repeated:,} repeated")
    if progress.dropped:
        parts.append(f"{progress.dropped:,} messages with QoS 0 dropped")
    return ", ".join(parts)
