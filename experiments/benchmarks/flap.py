"""What peers keep of clients that have gone: memory and open files before, at most, and after it is quiet again.

What the peers have in use is told beside their resident memory, of which some stays though nothing is kept: a page
goes back to the system when nothing on it is in use.

Owns the load: one client with many filters, many retained topics, and clients that come, subscribe and go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Final

from ringmq.experiments.load.client import Client, talking
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.tally import Faults, Inbox, Say, spread_ms
from ringmq.experiments.processes.peers import Ring, RingPeer, status_of
from ringmq.experiments.processes.usage import memory_bytes

LOOK_S: Final = 0.5
"""Between two looks at the memory."""
WINDOW: Final = 500
"""Retained messages on their way at the same time."""
PER_GROUP: Final = 100
"""Retained topics that one filter with a wildcard matches."""
PAYLOAD: Final = bytes(32)
ARRIVE_S: Final = 60.0
SPARE_FILES: Final = 8
"""Links that two peers need now and did not need before."""
MB: Final = 1e6


@dataclass(frozen=True, slots=True)
class Method:
    filters: int
    retained: int
    flaps_hz: float
    flap_s: float
    quiet_s: float
    """How long is waited at most until the memory is back. What is gone is remembered for a minute."""
    ratio: float
    """Memory after, divided by that before, at the most."""
    seed: int


@dataclass(slots=True)
class Keep:
    """What one peer has."""

    name: str
    before_bytes: int
    files_before: int
    peak_bytes: int = 0
    after_bytes: int = 0
    files_peak: int = 0
    files_after: int = 0
    used_before_bytes: int = 0
    used_after_bytes: int = 0

    def line(self) -> str:
        return (
            f"{self.name:<20}{self.before_bytes / MB:>10.1f}{self.peak_bytes / MB:>10.1f}{self.after_bytes / MB:>10.1f}"
            f"{self.after_bytes / self.before_bytes:>8.2f}"
            f"{self.files_before:>8}{self.files_peak:>8}{self.files_after:>8}"
            f"{self.used_after_bytes / max(1, self.used_before_bytes):>8.2f}"
        )


HEAD: Final = f"{'memory in MB, files':<20}{'before':>10}{'peak':>10}{'after':>10}{'ratio':>8}" + "".join(
    f"{name:>8}" for name in ("before", "peak", "after", "in use")
)
"""The last is the ratio of what is in use."""


@dataclass(slots=True)
class Figures:
    keeps: list[Keep] = field(default_factory=list)
    subacks_s: list[float] = field(default_factory=list)
    """Of the clients that come and go."""
    many_filters_s: float = 0.0
    flaps: int = 0
    faults: Faults = field(default_factory=lambda: Faults("missed", "unanswered", "kept"))

    def lines(self) -> list[str]:
        return [
            f"{self.flaps} clients came and went: {self.faults}",
            f"SUBACK of many filters: {self.many_filters_s:.2f} s",
            spread_ms("SUBACK of one filter", self.subacks_s),
            HEAD,
            *(keep.line() for keep in self.keeps),
        ]


async def check(ring: Ring, method: Method, say: Say) -> Figures:
    """Raises BenchError when what is to stay connected cannot be."""
    figures = Figures(keeps=[Keep(str(one), memory_bytes(one.pid), _files(one)) for one in ring.peers])
    for keep, peer in zip(figures.keeps, ring.peers, strict=True):
        keep.peak_bytes, keep.files_peak = keep.before_bytes, keep.files_before
        keep.used_before_bytes = await _used_bytes(peer)
    looking = asyncio.create_task(_look(ring, figures))
    try:
        await _load(ring, method, figures, say)
        say("quiet")
        await _quiet(ring, method, figures)
    finally:
        looking.cancel()
    for keep, peer in zip(figures.keeps, ring.peers, strict=True):
        keep.after_bytes, keep.files_after = memory_bytes(peer.pid), _files(peer)
        keep.used_after_bytes = await _used_bytes(peer)
        if keep.after_bytes > method.ratio * keep.before_bytes:
            figures.faults.add("kept", f"{(keep.after_bytes - keep.before_bytes) / MB:.1f} MB at {keep.name}")
        if keep.files_after > keep.files_before + SPARE_FILES:
            figures.faults.add("kept", f"{keep.files_after - keep.files_before} files at {keep.name}")
    return figures


async def _load(ring: Ring, method: Method, figures: Figures, say: Say) -> None:
    async with AsyncExitStack() as stack:
        inbox = Inbox()
        many = await stack.enter_async_context(talking(ring.peers[0].mqtt, "many", inbox))
        publisher = await stack.enter_async_context(talking(ring.peers[-1].mqtt, "retaining"))
        say(f"{method.filters} filters")
        start = perf_counter()
        await many.subscribed(*(_group(number) for number in range(method.filters)))
        figures.many_filters_s = perf_counter() - start
        say(f"{method.retained} retained topics")
        await _retain(publisher, method.retained, lambda number: b"%d" % number + PAYLOAD)
        heard = min(method.retained, PER_GROUP * method.filters)
        for payload in await inbox.until((b"%d" % number + PAYLOAD for number in range(heard)), ARRIVE_S):
            figures.faults.add("missed", f"{payload[: -len(PAYLOAD)].decode()} of {_group(0)} and others")
        say(f"{method.flaps_hz:g} clients a second for {method.flap_s:g} s")
        await _flap(ring, method, figures)
        say("clearing")
        await _retain(publisher, method.retained, lambda number: b"")


def _topic(number: int) -> str:
    return f"flap/{number // PER_GROUP}/{number % PER_GROUP}"


def _group(number: int) -> str:
    return f"flap/{number}/+"


async def _retain(publisher: Client, count: int, payload: Callable[[int], bytes]) -> None:
    """Raises BenchError when the connection ends."""
    under_way: set[asyncio.Future[None]] = set()
    for number in range(count):
        under_way.add(publisher.publish_1(_topic(number), payload(number), retain=True))
        if len(under_way) >= WINDOW:
            done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
    await asyncio.gather(*under_way)


async def _flap(ring: Ring, method: Method, figures: Figures) -> None:
    """Clients come at a steady rate, however long each takes."""
    start = perf_counter()
    flaps: set[asyncio.Task[None]] = set()
    while (now_s := perf_counter() - start) < method.flap_s:
        while figures.flaps < now_s * method.flaps_hz:
            rng = Random(f"{method.seed} {figures.flaps}")
            flaps.add(asyncio.create_task(_come_and_go(figures.flaps, rng, ring, method, figures)))
            figures.flaps += 1
        flaps = {flap for flap in flaps if not flap.done()}
        await asyncio.sleep(1 / method.flaps_hz / 2)
    await asyncio.gather(*flaps)


async def _come_and_go(number: int, rng: Random, ring: Ring, method: Method, figures: Figures) -> None:
    topic = rng.randrange(max(1, method.retained))
    topic_filter = _topic(topic) if rng.random() < 0.9 else _group(topic // PER_GROUP)
    try:
        async with talking(rng.choice(ring.peers).mqtt, f"flap-{number}") as client:
            start = perf_counter()
            await client.subscribed(topic_filter, qos=rng.randrange(2))
            figures.subacks_s.append(perf_counter() - start)
    except BenchError as error:
        figures.faults.add("unanswered", f"client {number}, {topic_filter}: {error}")


async def _look(ring: Ring, figures: Figures) -> None:
    while True:
        for keep, peer in zip(figures.keeps, ring.peers, strict=True):
            keep.peak_bytes = max(keep.peak_bytes, memory_bytes(peer.pid))
            keep.files_peak = max(keep.files_peak, _files(peer))
        await asyncio.sleep(LOOK_S)


async def _quiet(ring: Ring, method: Method, figures: Figures) -> None:
    """Until all have what they had before, or the time is over."""
    for _ in range(int(method.quiet_s / LOOK_S)):
        pairs = zip(figures.keeps, ring.peers, strict=True)
        if all(memory_bytes(peer.pid) <= method.ratio * keep.before_bytes for keep, peer in pairs):
            return
        await asyncio.sleep(LOOK_S)


async def _used_bytes(peer: RingPeer) -> int:
    """0 if it does not answer."""
    used: int = (await status_of(peer)).get("memory_in_use_bytes", 0)
    return used


def _files(peer: RingPeer) -> int:
    return sum(1 for _ in Path(f"/proc/{peer.pid}/fd").iterdir())
