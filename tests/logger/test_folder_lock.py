"""The lock of a folder: exclusive for each lock file, and free again once it is closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.logger.errors import LoggerError
from ringmq.logger.folder_lock import FolderLock


def test_second_lock_on_the_same_file_is_refused(tmp_path: Path) -> None:
    with FolderLock(tmp_path, "lock", "peer"):
        with pytest.raises(LoggerError) as caught:
            FolderLock(tmp_path, "lock", "peer")
        assert str(caught.value) == f"data: {tmp_path} is in use by another peer: each needs its own"
        FolderLock(tmp_path, "other.lock", "other").close()
    FolderLock(tmp_path, "lock", "peer").close()


def test_close_keeps_the_lock_file_and_is_idempotent(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, "lock", "peer")
    lock.close()
    lock.close()
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]


def test_unusable_folder_fails_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(LoggerError, match=f"^data: cannot use {tmp_path / 'none'}: No such file or directory$"):
        FolderLock(tmp_path / "none", "lock", "peer")
