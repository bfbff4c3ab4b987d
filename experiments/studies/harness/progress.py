"""The progress of an experiment: one line that is rewritten on a terminal, a line for each step elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TextIO

CLEAR: Final = "\r\033[K"
MINUTE_S: Final = 60


class ProgressLine:
    """Prints the progress of one experiment. Close it before other output."""

    def __init__(self, name: str, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._out = out
        self._clock = clock
        self._rewrites = out.isatty()
        self._steps = self._done = 0
        self._began = clock()

    def begin(self, steps: int) -> None:
        self._steps, self._done = steps, 0
        self._began = self._clock()
        self._line(f"{self._name}: 0/{steps}")

    def step(self, done: str) -> None:
        self._done += 1
        left_s = (self._clock() - self._began) / self._done * max(0, self._steps - self._done)
        left = f", {duration(left_s)} left" if self._done < self._steps else ""
        self._line(f"{self._name}: {self._done}/{self._steps}{left} ({done})")

    def say(self, text: str) -> None:
        self.close()
        self._write(f"{self._name}: {text}\n")

    def close(self) -> None:
        """Clear the line for other output."""
        if self._rewrites:
            self._write(CLEAR)

    def _line(self, text: str) -> None:
        self._write(f"{CLEAR}{text}" if self._rewrites else f"{text}\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def duration(seconds: float) -> str:
    """A time left in words, rounded since it is an estimate: to 5 s below a minute, to minutes above."""
    if seconds < MINUTE_S:
        return f"{5 * max(1, round(seconds / 5))} s"
    return f"{round(seconds / MINUTE_S)} min"
