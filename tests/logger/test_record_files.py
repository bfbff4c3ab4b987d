"""Records in files: complete lines in order, bounded files, and disks that are full."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ringmq.logger.record_files import QUIET_S, FileSink

ROOT = Path(__file__).resolve().parents[2]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.jsonl"


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Limit the files of this process to `size`: like a full disk, the system writes as much as fits and then fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def parts(path: Path) -> list[Path]:
    """All parts, oldest first."""
    older = sorted(path.parent.glob(f"{path.name}.*"), key=lambda part: -int(part.suffix[1:]))
    return [*older, *([path] if path.exists() else [])]


def test_batches_are_appended_in_order(path: Path) -> None:
    for sink in (FileSink(path), FileSink(path)):
        sink.write(b'{"a":1}\n{"a":2}\n')
        sink.write(b'{"a":3}\n')
        assert sink.lost == 0
    assert path.read_bytes() == b'{"a":1}\n{"a":2}\n{"a":3}\n' * 2
    assert parts(path) == [path]


@settings(deadline=None)
@given(st.lists(st.integers(0, 150), max_size=30), st.integers(1, 300))
def test_parts_keep_their_size_and_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], max_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("parts") / "records.jsonl"
    sink = FileSink(path, max_bytes=max_bytes, kept=100)
    batches = [b"x" * length + b"\n" for length in lengths]
    for batch in batches:
        sink.write(batch)
    contents = [part.read_bytes() for part in parts(path)]
    assert b"".join(contents) == b"".join(batches)
    for content in contents:
        assert len(content) <= max_bytes or content.count(b"\n") == 1
    for first, second in pairwise(contents):
        assert len(first) + second.index(b"\n") + 1 > max_bytes, "the first part had space left"


@pytest.mark.parametrize("kept", [1, 3])
def test_oldest_parts_are_deleted(path: Path, kept: int) -> None:
    sink = FileSink(path, max_bytes=10, kept=kept)
    for number in range(8):
        sink.write(b"number %d\n" % number)
    assert sink.lost == 0
    newest = [b"number %d\n" % number for number in range(7 - kept, 8)]
    assert [part.read_bytes() for part in parts(path)] == newest


def test_rotation_continues_when_a_part_was_deleted(path: Path) -> None:
    sink = FileSink(path, max_bytes=10, kept=3)
    for number in range(6):
        sink.write(b"number %d\n" % number)
        if number == 3:
            path.with_name("records.jsonl.2").unlink()
    assert [part.read_bytes() for part in parts(path)] == [b"number %d\n" % number for number in (2, 3, 4, 5)]


def test_incomplete_line_is_ended_by_the_next_write(path: Path) -> None:
    path.write_bytes(b'{"a":1}\n{"a"')
    for _ in range(2):
        FileSink(path).write(b'{"a":2}\n')
    assert path.read_bytes() == b'{"a":1}\n{"a"\n{"a":2}\n{"a":2}\n'


def test_missing_folder_is_logged_once_and_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "records.jsonl"
    sink = FileSink(path)
    with capture_logs() as lines:
        for _ in range(3):
            sink.write(b"1\n2\n")
        assert sink.lost == 6
        path.parent.mkdir()
        sink.write(b"3\n")
        sink.write(b"4\n")
    assert path.read_bytes() == b"3\n4\n"
    assert lines == [
        {
            "event": "cannot write records",
            "log_level": "warning",
            "file": str(path),
            "why": "No such file or directory",
        },
        {"event": "writing records again", "log_level": "info", "file": str(path), "lost": 6},
    ]


def test_repeated_failures_are_logged_once_a_minute(tmp_path: Path) -> None:
    path, clock = tmp_path / "missing" / "records.jsonl", Clock()
    sink = FileSink(path, clock=clock)
    with capture_logs() as lines:
        for clock.now in (0.0, 1.0, QUIET_S - 1, QUIET_S, QUIET_S + 1):
            sink.write(b"lost\n")
            path.parent.mkdir()
            sink.write(b"kept\n")
            path.unlink()
            path.parent.rmdir()
    assert [line["log_level"] for line in lines] == ["warning", "info"] * 2
    assert (lines[1]["lost"], lines[3]["lost"], sink.lost) == (1, 4, 5)


def test_full_disk_keeps_no_partial_batch(path: Path) -> None:
    sink = FileSink(path)
    batch = b"".join(b'{"a":%d}\n' % number for number in range(1000))
    sink.write(batch)
    with file_size_limit(len(batch) + 500), capture_logs() as lines:
        sink.write(batch)
        sink.write(batch)
        assert path.read_bytes() == batch
        sink.write(b"small\n")
    assert sink.lost == 2000
    assert [line["log_level"] for line in lines] == ["warning", "info"]
    sink.write(batch)
    assert path.read_bytes() == batch + b"small\n" + batch


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_folder_or_fifo_is_left_untouched(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    before = path.stat()
    sink = FileSink(path, max_bytes=1)
    with capture_logs() as lines:
        sink.write(b"1\n")
    assert sink.lost == 1
    assert lines[0]["why"] == "not a regular file"
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)


def test_moved_file_is_created_again(path: Path) -> None:
    sink = FileSink(path)
    sink.write(b"1\n")
    path.rename(path.with_name("elsewhere"))
    sink.write(b"2\n")
    assert path.read_bytes() == b"2\n"


WRITER = """
import itertools, pathlib, sys
from ringmq.logger.record_files import FileSink
sink = FileSink(pathlib.Path(sys.argv[1]), max_bytes=1 << 40)
for batch in itertools.count():
    sink.write(b"".join(b'{"number":%d}\\n' % number for number in range(batch * 4000, (batch + 1) * 4000)))
"""


def test_killed_writer_spoils_at_most_one_line(path: Path, eventually: Callable[..., object]) -> None:
    for round_number in range(1, 4):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], cwd=ROOT)
        try:
            before = path.stat().st_size if path.exists() else 0
            eventually(lambda before=before: path.exists() and path.stat().st_size > before + 500_000, 20.0)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait(10)
        FileSink(path).write(b'{"number":-1}\n')
        lines = path.read_bytes().split(b"\n")
        assert lines.pop() == b""
        assert json.loads(lines[-1]) == {"number": -1}
        assert sum(not _whole(line) for line in lines) <= round_number
        assert lines.count(b'{"number":0}') == lines.count(b'{"number":-1}') == round_number


def _whole(line: bytes) -> bool:
    try:
        return list(json.loads(line)) == ["number"]
    except ValueError:
        return False
