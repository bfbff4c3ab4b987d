"""Standard output that is slow, full or gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest

from ringmq.peer.cli.clients import standard_output
from ringmq.peer.cli.clients.standard_output import FULL_BYTES, StandardOutput

WITHIN_S = 10.0


class Pipe:
    """Standard output, and the end where a test reads it."""

    def __init__(self) -> None:
        reading, self.writing = os.pipe()
        self._reader = os.fdopen(reading, "rb", buffering=0)

    def read(self) -> bytes:
        return self._reader.read(1 << 16)

    def leave(self) -> None:
        self._reader.close()


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    made = Pipe()
    monkeypatch.setattr(standard_output, "STDOUT", made.writing)
    yield made
    made.leave()
    os.close(made.writing)


def no_room() -> None:
    pytest.fail("there was room all the time")


async def within(awaited: asyncio.Future[OSError | None]) -> OSError | None:
    async with asyncio.timeout(WITHIN_S):
        return await asyncio.shield(awaited)


async def test_texts_are_written_in_order_and_told(pipe: Pipe) -> None:
    output, told = StandardOutput(no_room), list[int]()
    calls: list[Callable[[], None]] = [lambda: told.append(1), lambda: told.append(2)]
    output.put(b"a", calls[0])
    output.put(b"")
    output.put(b"\xff\0", calls[1])
    async with asyncio.timeout(WITHIN_S):
        await output.drained()
    assert told == [1, 2]
    assert pipe.read() == b"a\xff\0"


async def test_it_is_full_while_nobody_reads_and_says_when_there_is_room(pipe: Pipe) -> None:
    room, told = asyncio.Event(), list[int]()
    output = StandardOutput(room.set)
    text = bytes(10_000)
    count = 2 * FULL_BYTES // len(text)
    for number in range(count):
        output.put(text, lambda number=number: told.append(number))  # type: ignore[misc]
    assert output.is_full
    assert not room.is_set()
    size = 0
    while size < count * len(text):
        size += len(await asyncio.to_thread(pipe.read))
    async with asyncio.timeout(WITHIN_S):
        await output.drained()
        await room.wait()
    assert not output.is_full
    assert told == list(range(count))


async def test_it_is_closed_when_the_reader_of_a_pipe_goes(pipe: Pipe) -> None:
    output = StandardOutput(no_room)
    pipe.leave()
    assert await within(output.closed) is None


async def test_it_is_closed_when_the_reader_goes_while_it_writes(pipe: Pipe) -> None:
    output = StandardOutput(no_room)
    for _ in range(20):
        output.put(bytes(10_000), no_room)
    pipe.leave()
    assert await within(output.closed) is None
    async with asyncio.timeout(WITHIN_S):
        await output.drained()


async def test_a_fault_of_writing_is_told(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(standard_output, "STDOUT", full)
    try:
        output = StandardOutput(no_room)
        output.put(b"a", no_room)
        fault = await within(output.closed)
    finally:
        os.close(full)
    assert fault is not None
    assert fault.strerror == "No space left on device"


async def test_a_pipe_that_does_not_block_is_waited_for(pipe: Pipe) -> None:
    os.set_blocking(pipe.writing, False)
    output = StandardOutput(lambda: None)
    text = os.urandom(500_000)
    output.put(text)
    found = b""
    while len(found) < len(text):
        found += await asyncio.to_thread(pipe.read)
    assert found == text
