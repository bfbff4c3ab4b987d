"""The scenarios of one peer's disk and clock: no room, no right to write, damaged files, another time of day.

Each damage is a copy that is put back afterwards: the promises to clients must hold as if nothing had been.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from ringmq.experiments.chaos import promises
from ringmq.experiments.chaos.history import FaultKind
from ringmq.experiments.chaos.promises import Promise
from ringmq.experiments.chaos.run import ChaosRun
from ringmq.experiments.chaos.site import SitePeer
from ringmq.experiments.hosts.disk import SmallDisk
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.peers import Program

DISK_PEER: Final = 1
"""The peer with the small disk. Not the first, which founds the ring."""
DISK_BYTES: Final = 48 << 20
END_S: Final = 20.0
"""A peer that cannot write, or cannot read its files, ends within this time."""
REFUSAL: Final = "ringmq: "
"""The beginning of the line with which a peer ends."""
FILES: Final = ("clients.sqlite", "retained.sqlite", "peer.json")
HEAD_BYTES: Final = 4096
CLOCK_LIBRARIES: Final = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
)
CLOCK_LIBRARY: Final = "RINGMQ_LIBFAKETIME"
"""The environment variable that names libfaketime, where it is elsewhere."""


def _small_disk(run: ChaosRun) -> tuple[SitePeer, SmallDisk]:
    peer = run.site.peers[DISK_PEER]
    assert isinstance(peer.place, SmallDisk), "this scenario is run with a small disk"
    return peer, peer.place


async def _ends_in_order(run: ChaosRun, peer: SitePeer, promise: Promise, why: str) -> bool:
    """Check that a peer ends by itself with status 1 and one line; kill it if it does not end."""
    seen = len(peer.logged())
    if not await asyncio.to_thread(peer.await_end, END_S):
        run.recorder.incident(promise, f"{peer} goes on {why}")
        await asyncio.to_thread(run.site.kill, peer.number)
        return False
    lines = peer.logged()[max(0, seen - HEAD_BYTES) :].splitlines()
    status, last = peer.exit_status(), lines[-1] if lines else ""
    if status != 1 or not last.startswith(REFUSAL) or any("Traceback" in line for line in lines):
        run.recorder.incident(promise, f"{peer} ended with status {status} {why}, and the line: {last}")
    return True


async def disk_full(run: ChaosRun) -> None:
    """The disk of one peer has no room; the peer ends, and is started again with room."""
    peer, disk = _small_disk(run)
    while not run.is_over:
        await run.wait(2.0, 6.0)
        run.falls(peer.number, f"disk full of {peer.number}")
        await asyncio.to_thread(disk.fill)
        await _ends_in_order(run, peer, promises.DISK, "on a full disk")
        await asyncio.to_thread(disk.make_room)
        await run.start(peer.number)
        await run.settle()


async def read_only(run: ChaosRun) -> None:
    """The disk of one peer is write-protected while the peer is down; the start ends, and then succeeds."""
    peer, disk = _small_disk(run)
    while not run.is_over:
        await run.wait(2.0, 6.0)
        await run.kill(peer.number)
        await asyncio.to_thread(disk.protect, True)
        await asyncio.to_thread(run.site.start, peer.number, ready=False)
        await _ends_in_order(run, peer, promises.DISK, "on a write-protected disk")
        await asyncio.to_thread(disk.protect, False)
        await run.start(peer.number)
        await run.settle()


def _emptied(content: bytes, chance: Random) -> bytes:
    return b""


def _halved(content: bytes, chance: Random) -> bytes:
    return content[: len(content) // 2]


def _scrambled(content: bytes, chance: Random) -> bytes:
    return chance.randbytes(min(HEAD_BYTES, len(content))) + content[HEAD_BYTES:]


DAMAGES: Final[dict[str, Callable[[bytes, Random], bytes]]] = {
    "emptied": _emptied,
    "halved": _halved,
    "scrambled at its beginning": _scrambled,
}


async def damaged_files(run: ChaosRun) -> None:
    """A file of a peer is damaged while it is down; the start must end with a line and leave the file as it is."""
    while not run.is_over:
        (number,) = run.some(1)
        await run.stop(number)  # or its write-ahead logs would have a sound copy of a damaged page
        peer = run.site.peers[number]
        copy = peer.folder / "copy"
        await asyncio.to_thread(shutil.copytree, peer.data, copy, ignore=shutil.ignore_patterns("*.sock"))
        file = peer.data / run.chance.choice(FILES)
        how = run.chance.choice([*DAMAGES])
        damaged = await asyncio.to_thread(_damage, file, how, run.chance)
        has_log = file.with_name(f"{file.name}-wal").exists()
        await asyncio.to_thread(run.site.start, number, ready=False)
        why = f"with {file.name} {how}"
        if await _ends_in_order(run, peer, promises.DAMAGE, why):
            now = await asyncio.to_thread(file.read_bytes)
            if now != damaged and not has_log:  # SQLite takes over what its log has
                run.recorder.incident(promises.DAMAGE, f"{peer} changed its file when it was started {why}")
        await asyncio.to_thread(_put_back, copy, peer.data)
        await run.start(number)
        await run.settle()
        await run.wait(0.5, 2.0)


def _damage(file: Path, how: str, chance: Random) -> bytes:
    damaged = DAMAGES[how](file.read_bytes(), chance)
    file.write_bytes(damaged)
    return damaged


def _put_back(copy: Path, data: Path) -> None:
    shutil.rmtree(data)
    copy.rename(data)


def clock_library() -> str:
    """The path of libfaketime; empty if it is not installed."""
    places = (os.environ.get(CLOCK_LIBRARY, ""), *CLOCK_LIBRARIES)
    return next((place for place in places if place and Path(place).exists()), "")


def lacking_clocks() -> str:
    """Why no peer can have a clock of its own; empty where one can."""
    if clock_library():
        return ""
    return f"libfaketime is not installed (Debian: apt-get install libfaketime); {CLOCK_LIBRARY} may name its file"


async def clocks(run: ChaosRun) -> None:
    """The time of day of one peer is hours ahead or behind, and then right again; its monotonic clock is right."""
    if why := lacking_clocks():
        raise BenchError(why)
    while not run.is_over:
        (number,) = run.some(1)
        peer = run.site.peers[number]
        program = peer.ring_peer.program
        wrong = f"{run.chance.choice('+-')}{run.chance.randint(1, 5)}h"
        for env in ({"LD_PRELOAD": clock_library(), "FAKETIME": wrong, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}, {}):
            fault = run.recorder.injected(
                FaultKind.OTHER, (number,), text=f"clock of {number} {wrong if env else 'right'}"
            )
            await run.stop(number)
            peer.ring_peer.program = Program(program.command, {**program.env, **env}, program.name)
            await run.start(number)
            await run.settle()
            await run.wait(3.0, 8.0)
            fault.end = run.recorder.now
        peer.ring_peer.program = program
