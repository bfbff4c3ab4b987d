"""Log lines whose reader has stopped reading: nobody waits for it, and it is told what it missed."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import TextIO

import pytest
import structlog

from ringmq.logger.log_setup import configure
from ringmq.logger.nonblocking_stream import ATOMIC_BYTES, Impatient, waits


class Pipe:
    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.stream: TextIO = os.fdopen(writer, "w")

    def read(self) -> str:
        """All there is now."""
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


def test_a_full_pipe_is_not_waited_for(pipe: Pipe) -> None:
    log = Impatient(pipe.stream)
    for number in range(20_000):
        log.write(f"line {number}\n")
    assert log.left_out > 0
    missing = log.left_out
    lines = pipe.read().splitlines()
    assert lines == [f"line {number}" for number in range(20_000 - missing)]
    log.write("again\n")
    assert pipe.read() == f"{missing} lines were left out: nobody read them\nagain\n"
    assert log.left_out == 0


def test_a_long_line_is_cut(pipe: Pipe) -> None:
    Impatient(pipe.stream).write("ä" * ATOMIC_BYTES + "\n")
    text = pipe.read()
    assert text.endswith("ä…\n")
    assert len(text.encode()) <= ATOMIC_BYTES


def test_a_reader_that_has_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        log = Impatient(stream)
        for _ in range(3):
            log.write("line\n")
        assert log.left_out > 0


def test_what_waits_and_what_does_not(pipe: Pipe, tmp_path: os.PathLike[str]) -> None:
    assert waits(pipe.stream)
    with open(os.path.join(tmp_path, "log"), "w") as file:  # noqa: PTH118, PTH123
        assert not waits(file)
    assert not waits(io.StringIO())


def test_log_lines_to_a_pipe_do_not_wait(pipe: Pipe) -> None:
    configure(stream=pipe.stream)
    for number in range(20_000):
        structlog.get_logger().info("something", number=number)
    pipe.read()
    structlog.get_logger().info("the last")
    assert "lines were left out" in pipe.read()
    structlog.reset_defaults()
