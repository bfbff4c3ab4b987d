"""Memory and open files that peers keep after clients have gone: before, at the peak, and when it is quiet again.

The memory in use is reported beside the resident memory, which stays larger: a page goes back to the system only when
nothing on it is in use.

Owns the load: one client with many filters, many retained topics, and clients that connect, subscribe and disconnect.
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

from ringmq.experiments.load.client import Client, connected_client
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.tally import Faults, Inbox, Say, percentile_line
from ringmq.experiments.processes.peers import Ring, RingPeer, status_of
from ringmq.experiments.processes.usage import memory_bytes

LOOK_S: Final = 0.5
"""Time between two looks at the memory."""
WINDOW: Final = 500
"""Retained messages in flight."""
PER_GROUP: Final = 100
"""Retained topics that one filter with a wildcard matches."""
PAYLOAD: Final = bytes(32)
ARRIVE_S: Final = 60.0
"""Longest wait for the retained messages of the client with many filters."""
SPARE_FILES: Final = 8
"""Open files that may be added, such as links that two peers need only during the load."""
MB: Final = 1e6


@dataclass(frozen=True, slots=True)
class FlapMethod:
    filters: int
    retained: int
    flaps_hz: float
    flap_s: float
    quiet_s: float
    """Longest wait until the memory is back. Peers remember removed entries for a minute."""
    ratio: float
    """Limit of the memory after the load, divided by the memory before it."""
    seed: int


@dataclass(slots=True)
class Footprint:
    """Memory and open files of one peer."""

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
"""Heads of the columns of a footprint; the last column is the ratio of the memory in use."""


@dataclass(slots=True)
class FlapFigures:
    footprints: list[Footprint] = field(default_factory=list)
    subacks_s: list[float] = field(default_factory=list)
    """Times from SUBSCRIBE to SUBACK of the clients that come and go."""
    many_filters_s: float = 0.0
    flaps: int = 0
    faults: Faults = field(default_factory=lambda: Faults("missed", "unanswered", "kept"))

    def lines(self) -> list[str]:
        return [
            f"{self.flaps} clients came and went: {self.faults}",
            f"SUBACK of many filters: {self.many_filters_s:.2f} s",
            percentile_line("SUBACK of one filter", self.subacks_s),
            HEAD,
            *(footprint.line() for footprint in self.footprints),
        ]


async def check(ring: Ring, method: FlapMethod, say: Say) -> FlapFigures:
    """Run the load and measure the peers. Raises BenchError if a client that stays loses its connection."""
    figures = FlapFigures(
        footprints=[Footprint(str(peer), memory_bytes(peer.pid), _files(peer)) for peer in ring.peers]
    )
    for footprint, peer in zip(figures.footprints, ring.peers, strict=True):
        footprint.peak_bytes, footprint.files_peak = footprint.before_bytes, footprint.files_before
        footprint.used_before_bytes = await _used_bytes(peer)
    looking = asyncio.create_task(_look(ring, figures))
    try:
        await _load(ring, method, figures, say)
        say("quiet")
        await _quiet(ring, method, figures)
    finally:
        looking.cancel()
    for footprint, peer in zip(figures.footprints, ring.peers, strict=True):
        footprint.after_bytes, footprint.files_after = memory_bytes(peer.pid), _files(peer)
        footprint.used_after_bytes = await _used_bytes(peer)
        if footprint.after_bytes > method.ratio * footprint.before_bytes:
            kept_bytes = footprint.after_bytes - footprint.before_bytes
            figures.faults.add("kept", f"{kept_bytes / MB:.1f} MB at {footprint.name}")
        if footprint.files_after > footprint.files_before + SPARE_FILES:
            figures.faults.add("kept", f"{footprint.files_after - footprint.files_before} files at {footprint.name}")
    return figures


async def _load(ring: Ring, method: FlapMethod, figures: FlapFigures, say: Say) -> None:
    async with AsyncExitStack() as stack:
        inbox = Inbox()
        many = await stack.enter_async_context(connected_client(ring.peers[0].mqtt, "many", inbox))
        publisher = await stack.enter_async_context(connected_client(ring.peers[-1].mqtt, "retaining"))
        say(f"{method.filters} filters")
        start = perf_counter()
        await many.subscribe_and_wait(*(_group(number) for number in range(method.filters)))
        figures.many_filters_s = perf_counter() - start
        say(f"{method.retained} retained topics")
        await _retain(publisher, method.retained, lambda number: b"%d" % number + PAYLOAD)
        matching = min(method.retained, PER_GROUP * method.filters)
        for payload in await inbox.until((b"%d" % number + PAYLOAD for number in range(matching)), ARRIVE_S):
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
    """Publish a retained message to each topic. Raises BenchError if the connection ends."""
    in_flight: set[asyncio.Future[None]] = set()
    for number in range(count):
        in_flight.add(publisher.publish_qos1(_topic(number), payload(number), retain=True))
        if len(in_flight) >= WINDOW:
            done, in_flight = await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED)
            for answer in done:
                answer.result()
    await asyncio.gather(*in_flight)


async def _flap(ring: Ring, method: FlapMethod, figures: FlapFigures) -> None:
    """Start clients at a steady rate, however long each of them takes."""
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


async def _come_and_go(number: int, rng: Random, ring: Ring, method: FlapMethod, figures: FlapFigures) -> None:
    topic = rng.randrange(max(1, method.retained))
    topic_filter = _topic(topic) if rng.random() < 0.9 else _group(topic // PER_GROUP)
    try:
        async with connected_client(rng.choice(ring.peers).mqtt, f"flap-{number}") as client:
            start = perf_counter()
            await client.subscribe_and_wait(topic_filter, qos=rng.randrange(2))
            figures.subacks_s.append(perf_counter() - start)
    except BenchError as error:
        figures.faults.add("unanswered", f"client {number}, {topic_filter}: {error}")


async def _look(ring: Ring, figures: FlapFigures) -> None:
    while True:
        for footprint, peer in zip(figures.footprints, ring.peers, strict=True):
            footprint.peak_bytes = max(footprint.peak_bytes, memory_bytes(peer.pid))
            footprint.files_peak = max(footprint.files_peak, _files(peer))
        await asyncio.sleep(LOOK_S)


async def _quiet(ring: Ring, method: FlapMethod, figures: FlapFigures) -> None:
    """Wait until the memory of all peers is back, but no longer than `quiet_s`."""
    for _ in range(int(method.quiet_s / LOOK_S)):
        pairs = zip(figures.footprints, ring.peers, strict=True)
        if all(memory_bytes(peer.pid) <= method.ratio * footprint.before_bytes for footprint, peer in pairs):
            return
        await asyncio.sleep(LOOK_S)


async def _used_bytes(peer: RingPeer) -> int:
    """Memory in use, as the peer reports it; 0 if it does not answer."""
    used: int = (await status_of(peer)).get("memory_in_use_bytes", 0)
    return used


def _files(peer: RingPeer) -> int:
    return sum(1 for _ in Path(f"/proc/{peer.pid}/fd").iterdir())
