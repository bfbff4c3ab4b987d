"""The alarm of a core: in time, never too fast, and after what lies unread."""

from __future__ import annotations

import asyncio
import socket
import time
from math import inf

import pytest

from ringmq.overlay.timer import HELD_UP_S, SOONEST_S, Timer

WITHIN_S = 10


class Rings:
    """Events in order; each ring once more is waited for with `next`."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.timer = Timer(self._ring)
        self._rung = asyncio.Event()

    def _ring(self) -> None:
        self.told.append("ring")
        self._rung.set()

    async def next(self) -> None:
        await asyncio.wait_for(self._rung.wait(), WITHIN_S)
        self._rung.clear()


async def test_it_rings_when_the_time_has_come() -> None:
    rings, loop = Rings(), asyncio.get_running_loop()
    due = loop.time() + 0.05
    rings.timer.set(due)
    await rings.next()
    assert due - 2 * SOONEST_S <= loop.time()
    assert rings.timer.at == inf


async def test_the_soonest_deadline_counts() -> None:
    rings, loop = Rings(), asyncio.get_running_loop()
    rings.timer.set(loop.time() + 1000)
    soon = loop.time() + 0.01
    rings.timer.set(soon)
    rings.timer.set(loop.time() + 2000)
    assert rings.timer.at == soon
    await rings.next()
    assert rings.told == ["ring"]


async def test_after_the_end_it_does_not_ring() -> None:
    rings, loop = Rings(), asyncio.get_running_loop()
    rings.timer.set(loop.time())
    rings.timer.stop()
    rings.timer.set(loop.time())
    other = Rings()
    other.timer.set(loop.time() + 0.05)
    await other.next()
    assert rings.told == []


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_unread_messages_come_before_an_overdue_call(name: str) -> None:
    """Each time anew. The loop of a peer, uvloop, has its timers before what can be read."""
    loops = pytest.importorskip(name)
    with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
        runner.run(_hold_up(3))


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_unread_messages_come_first_when_the_overdue_call_is_interrupted(name: str) -> None:
    """The process loses its core each time that the overdue timer has read the clock."""
    loops = pytest.importorskip(name)
    with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
        runner.run(_hold_up(3, interrupted=True))


class InterruptedLoop:
    """An event loop whose clock goes on for 3 ms after each time that it is read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.call_at, self.call_soon = loop.call_at, loop.call_soon

    def time(self) -> float:
        now = self._loop.time()
        _keep_busy(3 * SOONEST_S)
        return now


def _keep_busy(for_s: float) -> None:
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        pass


async def _hold_up(times: int, *, interrupted: bool = False) -> None:
    rings, loop = Rings(), asyncio.get_running_loop()
    ours, theirs = socket.socketpair()

    class Reader(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            rings.told.append(data.decode())
            if data == b"long":
                rings.timer._loop = loop
                rings.timer.set(loop.time() + SOONEST_S)
                if interrupted:
                    rings.timer._loop = InterruptedLoop(loop)  # type: ignore[assignment]
                theirs.send(b"unread")
                _keep_busy(2 * HELD_UP_S)

    transport, _ = await loop.create_connection(Reader, sock=ours)
    with theirs:
        for _ in range(times):
            theirs.send(b"long")
            await rings.next()
    transport.close()
    assert rings.told == ["long", "unread", "ring"] * times
