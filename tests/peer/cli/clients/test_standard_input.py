"""Standard input as a whole and by lines, also when it comes in pieces, slowly, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator

import pytest

from ringmq.peer.cli.clients import standard_input
from ringmq.peer.cli.clients.standard_input import CHUNK_BYTES, StandardInput
from ringmq.peer.errors import PeerError

WITHIN_S = 10.0


class Typist:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reading, self._writing = os.pipe()
        monkeypatch.setattr(standard_input, "STDIN", reading)

    def type(self, text: bytes) -> None:
        os.write(self._writing, text)

    def end(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
        self._writing = -1


@pytest.fixture
def typist(monkeypatch: pytest.MonkeyPatch) -> Iterator[Typist]:
    made = Typist(monkeypatch)
    yield made
    made.end()


async def lines() -> list[bytes]:
    async with asyncio.timeout(WITHIN_S):
        return [line async for line in StandardInput().lines()]


async def test_lines_are_read_without_their_ends_and_without_empty_ones(typist: Typist) -> None:
    typist.type(b"a\n\nb\r\n\xff\0\nlast")
    typist.end()
    assert await lines() == [b"a", b"b\r", b"\xff\0", b"last"]


async def test_input_that_is_empty_has_no_lines(typist: Typist) -> None:
    typist.end()
    assert await lines() == []


async def test_a_line_is_there_before_the_next_is_typed(typist: Typist) -> None:
    reading = StandardInput().lines()
    async with asyncio.timeout(WITHIN_S):
        for text in (b"one", b"two"):
            typist.type(text + b"\nbegun ")
            assert (await anext(reading)).removeprefix(b"begun ") == text
        typist.end()
        assert await anext(reading) == b"begun "


async def test_a_line_may_be_longer_than_a_chunk(typist: Typist) -> None:
    long = bytes(range(1, 10)) * 10_000 + b"x" * CHUNK_BYTES
    reading = asyncio.create_task(lines())
    await asyncio.to_thread(typist.type, long + b"\nend\n")
    typist.end()
    assert await reading == [long, b"end"] if b"\n" not in long else await reading == [*long.split(b"\n"), b"end"]


async def test_input_is_read_no_faster_than_it_is_taken(typist: Typist) -> None:
    typist.type(b"a\nb\n")
    reading = StandardInput().lines()
    async with asyncio.timeout(WITHIN_S):
        assert await anext(reading) == b"a"
    size = 0
    os.set_blocking(typist._writing, False)
    with contextlib.suppress(BlockingIOError):
        while size < 10 * CHUNK_BYTES:
            size += os.write(typist._writing, bytes(1000))
    assert 0 < size < 10 * CHUNK_BYTES


async def test_a_line_beyond_any_message_is_refused(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_input, "MAX_PAYLOAD_BYTES", 10)
    typist.type(b"0123456789\n0123456789x\n" + b"x" * 11)
    typist.end()
    with pytest.raises(PeerError, match="standard input: a message has at most 10 bytes, a line has more"):
        await lines()


def test_input_as_a_whole(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    typist.type(b"a\n\xff\n")
    typist.end()
    assert StandardInput().whole() == b"a\n\xff\n"


def test_input_beyond_any_message_is_refused(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_input, "MAX_PAYLOAD_BYTES", 10)
    typist.type(b"0123456789x")
    with pytest.raises(PeerError, match="standard input: a message has at most 10 bytes"):
        StandardInput().whole()


async def test_input_that_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.open("/", os.O_RDONLY)
    monkeypatch.setattr(standard_input, "STDIN", folder)
    try:
        with pytest.raises(PeerError, match="cannot read standard input: Is a directory"):
            await lines()
        with pytest.raises(PeerError, match="cannot read standard input: Is a directory"):
            StandardInput().whole()
    finally:
        os.close(folder)
