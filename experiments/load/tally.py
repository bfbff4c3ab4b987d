"""What clients got of what they were to get: missed, twice, too late. Knows no socket."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ringmq.mqtt_front.codec.packets import Publish

SHOWN: Final = 10
"""So many faults are told in words; all are counted."""
PERCENTS: Final = (50, 90, 99)
SAY_EACH: Final = 1000
"""How often those who wait are told how far it is."""

Say = Callable[[str], None]


def silent(text: str) -> None:
    """Nobody waits."""


class Inbox:
    """Hears for one client. Payloads tell messages apart."""

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
        """Return when all these have come, or the time is over: what is missing then. One call at a time."""
        self._missing = {payload for payload in wanted if payload not in self.times}
        if self._missing:
            self._complete = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._complete,), timeout=within_s)
        return set(self._missing)

    @property
    def repeated(self) -> list[bytes]:
        """What came more than once."""
        return [payload for payload, times in self.times.items() if times > 1]


class Faults:
    """What went wrong, counted by kind; the first of each kind in words."""

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
    """Of sorted values; none have none."""
    return values[min(len(values) - 1, int(len(values) * percent / 100))] if values else float("nan")


def spread_ms(name: str, seconds: Iterable[float]) -> str:
    """A line of the percentiles of times."""
    values = sorted(seconds)
    if not values:
        return f"{name:<28} none"
    cells = [f"p{percent} {percentile(values, percent) * 1000:8.1f}" for percent in PERCENTS]
    return f"{name:<28}{len(values):>7} times  {'  '.join(cells)}  max {values[-1] * 1000:8.1f} ms"
