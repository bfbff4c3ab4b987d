"""One peer as a child process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ringmq.experiments.processes.children import Child
from ringmq.experiments.processes.ports import choose_ports

OPTIONS = ["--timing", "local", "--no-discovery", "--log-level", "warning"]


@asynccontextmanager
async def child(*options: str) -> AsyncIterator[tuple[Child, int]]:
    """A running child and the parent's end of its pipe, which the caller may close."""
    end, parents_end = os.pipe()
    started = await Child.start(("127.0.0.1", choose_ports(0, 1)[0]), [*OPTIONS, *options], end)
    os.close(end)
    try:
        yield started, parents_end
    finally:
        started.send(signal.SIGKILL)
        async with asyncio.timeout(10):
            await started.ended.wait()


async def test_child_reports_when_it_is_active_and_how_it_ended() -> None:
    async with child() as (started, _), asyncio.timeout(20):
        await started.active.wait()
        assert not started.ended.is_set()
        started.send(signal.SIGTERM)
        await started.ended.wait()
        assert (started.process.returncode, started.fate) == (0, "exit status 0")


async def test_fate_of_a_killed_child_is_its_signal() -> None:
    async with child() as (started, _), asyncio.timeout(20):
        await started.active.wait()
        started.send(signal.SIGKILL)
        await started.ended.wait()
        assert started.fate == "killed by SIGKILL"


async def test_fate_of_a_failed_child_is_its_last_line() -> None:
    async with child("--ring", "") as (started, _), asyncio.timeout(20):
        await started.ended.wait()
        assert not started.active.is_set()
        assert started.fate.startswith("--ring must be a printable name")


@pytest.mark.parametrize("paused", [False, True])
async def test_child_ends_when_its_parent_closes_the_pipe(
    paused: bool, usage: Callable[[int], Any], eventually: Callable[..., Any]
) -> None:
    async with child() as (started, parents_end), asyncio.timeout(20):
        await started.active.wait()
        if paused:
            started.send(signal.SIGSTOP)
            eventually(lambda: usage(started.process.pid).state == "T")
        os.close(parents_end)
        if paused:
            started.send(signal.SIGCONT)
        await started.ended.wait()
        assert started.process.returncode == 0
