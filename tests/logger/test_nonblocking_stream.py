"""Log lines whose reader has stopped reading: writes never block, and a notice counts the dropped lines."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import TextIO

import pytest
import structlog

from ringmq.logger.log_setup import configure
from ringmq.logger.nonblocking_stream import ATOMIC_BYTES, NonBlockingStream, may_block


class Pipe:
    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.stream: TextIO = os.fdopen(writer, "w")

    def read(self) -> str:
        """All bytes that are in the pipe now."""
        os.set_blocking(self.reader, False)
        found = b""
        while True:
            try:
                found += os.read(self.reader, 65536)
            except BlockingIOError:
                return found.decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self.reader)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_full_pipe_drops_lines_and_counts_them(pipe: Pipe) -> None:
    log = NonBlockingStream(pipe.stream)
    for number in range(20_000):
        log.write(f"line {number}\n")
    assert log.dropped > 0
    missing = log.dropped
    lines = pipe.read().splitlines()
    assert lines == [f"line {number}" for number in range(20_000 - missing)]
    log.write("again\n")
    assert pipe.read() == f"{missing} lines were dropped: nobody read them\nagain\n"
    assert log.dropped == 0


def test_long_line_is_cut(pipe: Pipe) -> None:
    NonBlockingStream(pipe.stream).write("ä" * ATOMIC_BYTES + "\n")
    text = pipe.read()
    assert text.endswith("ä…\n")
    assert len(text.encode()) <= ATOMIC_BYTES


def test_closed_reader_raises_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        log = NonBlockingStream(stream)
        for _ in range(3):
            log.write("line\n")
        assert log.dropped > 0


def test_pipes_may_block_and_files_do_not(pipe: Pipe, tmp_path: os.PathLike[str]) -> None:
    assert may_block(pipe.stream)
    with open(os.path.join(tmp_path, "log"), "w") as file:  # noqa: PTH118, PTH123
        assert not may_block(file)
    assert not may_block(io.StringIO())


def test_log_lines_to_a_full_pipe_do_not_block(pipe: Pipe) -> None:
    configure(stream=pipe.stream)
    for number in range(20_000):
        structlog.get_logger().info("something", number=number)
    came = len(pipe.read().splitlines())
    structlog.get_logger().info("the last")
    assert pipe.read().startswith(f"{20_000 - came} lines were dropped: ")
    structlog.reset_defaults()
