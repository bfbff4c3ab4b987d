"""The disk of this machine: the effect of each operation, and its errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.collector.errors import CollectorError
from ringmq.collector.ingest.durable_files import Disk

disk = Disk()


def test_folder_is_created_with_its_parents(tmp_path: Path) -> None:
    disk.make(tmp_path / "a" / "b" / "c")
    disk.make(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_relative_folder_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    disk.make(Path("a/b"))
    disk.make(Path())
    assert (tmp_path / "a" / "b").is_dir()


def test_file_is_written_moved_and_removed(tmp_path: Path) -> None:
    file, other = tmp_path / "one", tmp_path / "two"
    other.write_bytes(b"old")
    disk.write(file, [b"a", b"b\n"])
    (tmp_path / "folder").mkdir()
    assert disk.names(tmp_path) == ["one", "two"]
    disk.move(file, other)
    assert (disk.read(file), disk.read(other)) == (None, b"ab\n")
    disk.write(other, [b"c"])
    assert disk.read(other) == b"c"
    disk.remove(other)
    disk.sync(tmp_path)
    assert disk.names(tmp_path) == []


def test_files_and_folders_are_synchronised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    disk.write(tmp_path / "file", [b"a"])
    disk.sync(tmp_path)
    disk.make(tmp_path / "new" / "newer")
    assert synced == ["file", tmp_path.name, tmp_path.name, "new"]


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (lambda file: disk.make(file / "x" / "y"), "cannot create {}: File exists"),
        (lambda file: disk.names(file / "x"), "cannot read {}/x: Not a directory"),
        (lambda file: disk.read(file / "x"), "cannot read {}/x: Not a directory"),
        (lambda file: disk.write(file / "x", []), "cannot write {}/x: Not a directory"),
        (lambda file: disk.move(file, file / "x"), "cannot write {}/x: Not a directory"),
        (lambda file: disk.remove(file / "x"), "cannot remove {}/x: Not a directory"),
        (disk.sync, "cannot write {}: Not a directory"),
    ],
)
def test_each_operation_fails_with_one_line(tmp_path: Path, operation: Callable[[Path], object], text: str) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CollectorError) as caught:
        operation(file)
    assert str(caught.value) == "data: " + text.format(file)
