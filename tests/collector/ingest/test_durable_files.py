"""The disk of this machine: what each step does, and how each one fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.collector.errors import CollectorError
from ringmq.collector.ingest.durable_files import Disk

disk = Disk()


def test_folders_are_made_with_those_above(tmp_path: Path) -> None:
    disk.make(tmp_path / "a" / "b" / "c")
    disk.make(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_a_relative_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    disk.make(Path("a/b"))
    disk.make(Path())
    assert (tmp_path / "a" / "b").is_dir()


def test_a_file_is_written_moved_and_removed(tmp_path: Path) -> None:
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


def test_what_is_written_is_synchronised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    ("step", "text"),
    [
        (lambda place: disk.make(place / "x" / "y"), "cannot make {}: File exists"),
        (lambda place: disk.names(place / "x"), "cannot read {}/x: Not a directory"),
        (lambda place: disk.read(place / "x"), "cannot read {}/x: Not a directory"),
        (lambda place: disk.write(place / "x", []), "cannot write {}/x: Not a directory"),
        (lambda place: disk.move(place, place / "x"), "cannot write {}/x: Not a directory"),
        (lambda place: disk.remove(place / "x"), "cannot remove {}/x: Not a directory"),
        (disk.sync, "cannot write {}: Not a directory"),
    ],
)
def test_each_step_fails_in_one_line(tmp_path: Path, step: Callable[[Path], object], text: str) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CollectorError) as caught:
        step(file)
    assert str(caught.value) == "data: " + text.format(file)
