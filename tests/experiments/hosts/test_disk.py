"""A small disk: it is seen only inside, gets full, and can be write-protected. Needs root; else it is skipped."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.experiments.hosts.disk import SmallDisk, lacking_disks

SIZE_BYTES = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    why = lacking_disks()
    if why:
        pytest.skip(why)
    with contextlib.ExitStack() as stack:
        try:
            made = SmallDisk(tmp_path / "disk", SIZE_BYTES, stack)
        except OSError as error:
            pytest.skip(f"this machine lets nobody mount: {error}")
        yield made


def test_files_are_seen_only_inside(disk: SmallDisk) -> None:
    disk.inside(lambda: (disk.folder / "a").write_text("x", encoding="utf-8"))
    assert list(disk.folder.iterdir()) == []
    assert disk.inside(lambda: [file.name for file in disk.folder.iterdir()]) == ["a"]


def test_a_full_disk_takes_nothing_until_there_is_room(disk: SmallDisk) -> None:
    disk.fill()
    with pytest.raises(OSError, match="No space") as raised:
        disk.inside(lambda: (disk.folder / "a").write_text("x", encoding="utf-8"))
    assert raised.value.errno == errno.ENOSPC
    disk.make_room()
    disk.inside(lambda: (disk.folder / "a").write_text("x", encoding="utf-8"))


def test_a_protected_disk_can_be_read(disk: SmallDisk) -> None:
    disk.inside(lambda: (disk.folder / "a").write_text("x", encoding="utf-8"))
    disk.protect(True)
    assert disk.inside(lambda: (disk.folder / "a").read_text(encoding="utf-8")) == "x"
    with pytest.raises(OSError, match="Read-only"):
        disk.inside(lambda: (disk.folder / "a").write_text("y", encoding="utf-8"))
    disk.protect(False)
    disk.inside(lambda: (disk.folder / "a").write_text("y", encoding="utf-8"))
