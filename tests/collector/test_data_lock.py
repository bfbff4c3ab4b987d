"""The lock that gives a folder to one process at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.collector.data_lock import hold, lock_folder
from ringmq.collector.errors import CollectorError


def test_two_processes_of_a_kind_cannot_share_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    with lock_folder(folder, "ingest"):
        with pytest.raises(CollectorError) as caught:
            lock_folder(folder, "ingest")
        assert str(caught.value) == f"data: {folder} is in use by another ingest: each needs its own"
        with lock_folder(folder, "stream"):
            pass
    with lock_folder(folder, "ingest"):
        pass


def test_folder_elsewhere_is_not_locked(tmp_path: Path) -> None:
    with hold("hdfs://host/data", "stream"), hold("hdfs://host/data", "stream"):
        pass
    with (
        hold(str(tmp_path), "stream"),
        pytest.raises(CollectorError, match="in use by another stream"),
        hold(f"file://{tmp_path}", "stream"),
    ):
        pytest.fail("two processes hold the lock")
    with hold(str(tmp_path), "stream"):
        pass


def test_missing_folder_raises_and_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(CollectorError, match=r"there is no folder .*/none: run ringmq collect ingest first"):
        hold(f"{tmp_path}/none", "reduce").__enter__()
    assert list(tmp_path.iterdir()) == []


def test_lock_file_stays_after_close(tmp_path: Path) -> None:
    lock = lock_folder(tmp_path, "ingest")
    lock.close()
    lock.close()
    assert [file.name for file in tmp_path.iterdir()] == ["ingest.lock"]


def test_unusable_folder_raises_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CollectorError, match=f"^data: cannot create {file}: File exists$"):
        lock_folder(file / "x", "ingest")
    (tmp_path / "ingest.lock").mkdir()
    with pytest.raises(CollectorError, match=f"^data: cannot use {tmp_path}: Is a directory$"):
        lock_folder(tmp_path, "ingest")
