"""How an ingest tells people how it goes: one line that is rewritten on a terminal, elsewhere a line now and then.

Knows nothing of how it is done.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Final, TextIO

from ringmq.collector.cli.addresses import Address
from ringmq.collector.ingest.ingest import Progress

QUIET_S: Final = 10.0
"""Between two lines where none can be rewritten."""
REWRITE: Final = "\r\x1b[K"
"""To the beginning of the line, and clear what is there."""


class Teller:
    """Writes to `stream`, which people read, and what programs wait for to `out`."""

    def __init__(self, stream: TextIO, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._out = out
        self._clock = clock
        self._rewrites = stream.isatty()
        self._last = Progress()
        self._told_at = clock()

    def progress(self, progress: Progress) -> None:
        """To be called at least as often as people are to be told."""
        now = self._clock()
        passed_s = now - self._told_at
        if passed_s <= 0 or not (self._rewrites or (passed_s >= QUIET_S and progress != self._last)):
            return
        rate = (progress.records - self._last.records) / passed_s
        text = f"{summary(progress)}, {rate:,.0f} records/s"
        # What goes on to a second line could not be rewritten.
        self._write(REWRITE + text[: shutil.get_terminal_size().columns - 1] if self._rewrites else f"{text}\n")
        self._last, self._told_at = progress, now

    def listening(self, address: Address) -> None:
        self.close()
        print(f"listening: {address}", file=self._out, flush=True)

    def notice(self, text: str) -> None:
        """A line of its own."""
        self._write(f"{REWRITE if self._rewrites else ''}ringmq: {text}\n")

    def close(self) -> None:
        """Clear the line that was rewritten."""
        if self._rewrites:
            self._write(REWRITE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def summary(progress: Progress) -> str:
    """What there always is to say, and what is not zero."""
    parts = [
        f"{progress.records:,} records in {progress.files:,} files",
        f"{progress.dead:,} dead letters",
        f"{progress.missing:,} missing",
    ]
    if progress.earlier:
        parts.append(f"{progress.earlier:,} from before it listened")
    if progress.repeated:
        parts.append(f"{progress.repeated:,} repeated")
    if progress.dropped:
        parts.append(f"{progress.dropped:,} messages of QoS 0 dropped")
    return ", ".join(parts)
