"""Counts of missed, duplicate and late messages of clients. Knows no socket."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ringmq.mqtt_front.codec.packets import Publish

SHOWN: Final = 10
"""Faults of each kind that are described; all are counted."""
PERCENTS: Final = (50, 90, 99)
SAY_EACH: Final = 1000
"""Tries between two reports of the progress."""

Say = Callable[[str], None]
"""Reports the progress to the user."""


def silent(text: str) -> None:
    """Report nothing."""


class Inbox:
    """Receives the messages of a client, which are identified by their payloads."""

    def __init__(self) -> None:
        self.times: Counter[bytes] = Counter()
        self._missing: set[bytes] = set()
        self._complete: asyncio.Future[None] | None = None

    def __call__(self, message: Publish) -> None:
        payload = bytes(message.payload)
        self.times[payload] += 1
        self._missing.discard(payload)
        if not self._missing and self._complete is not None and not self._complete.done():
            self._complete.set_result(None)

    async def until(self, wanted: Iterable[bytes], within_s: float) -> set[bytes]:
        """Wait until all these messages have come, or time is over. Returns the missing ones. One call at a time."""
        self._missing = {payload for payload in wanted if payload not in self.times}
        if self._missing:
            self._complete = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._complete,), timeout=within_s)
        return set(self._missing)

    @property
    def repeated(self) -> list[bytes]:
        """Payloads that came more than once."""
        return [payload for payload, times in self.times.items() if times > 1]


class Faults:
    """Faults, counted by kind, with descriptions of the first faults of each kind."""

    def __init__(self, *kinds: str) -> None:
        self.counts = dict.fromkeys(kinds, 0)
        self.examples: list[str] = []

    def __bool__(self) -> bool:
        return any(self.counts.values())

    def add(self, kind: str, example: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= SHOWN:
            self.examples.append(f"{kind}: {example}")

    def absorb(self, others: Faults) -> None:
        for kind, count in others.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
        self.examples += others.examples

    def __str__(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in self.counts.items())


def percentile(values: Sequence[float], percent: float) -> float:
    """Percentile of sorted values; NaN without values."""
    return values[min(len(values) - 1, int(len(values) * percent / 100))] if values else float("nan")


def percentile_line(name: str, seconds: Iterable[float]) -> str:
    """A line with the percentiles of times, in milliseconds."""
    values = sorted(seconds)
    if not values:
        return f"{name:<28} none"
    cells = [f"p{percent} {percentile(values, percent) * 1000:8.1f}" for percent in PERCENTS]
    return f"{name:<28}{len(values):>7} times  {'  '.join(cells)}  max {values[-1] * 1000:8.1f} ms"
