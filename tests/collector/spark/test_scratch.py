"""The folder of temporary files: removed after its owner, however the owner ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringmq.collector.spark.scratch import ABANDONED_S, LOCK, PREFIX, scratch
from tests.conftest import wait_until


def test_folder_is_removed_at_the_end(tmp_path: Path) -> None:
    with scratch(tmp_path) as folder:
        (folder / "a").mkdir()
        (folder / "a" / "b").write_text("b")
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_folder_is_removed_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), scratch(tmp_path):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_folders_in_use_stay(tmp_path: Path) -> None:
    with scratch(tmp_path) as first, scratch(tmp_path) as second:
        assert first != second
        assert first.is_dir()
        assert second.is_dir()


def test_young_folder_without_a_lock_stays(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}new").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / LOCK).write_bytes(b"")
    with scratch(tmp_path):
        pass
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["other", f"{PREFIX}new"]


def test_old_folder_without_a_lock_is_removed(tmp_path: Path) -> None:
    old = tmp_path / f"{PREFIX}old"
    (old / "blockmgr").mkdir(parents=True)
    os.utime(old, (time.time() - 2 * ABANDONED_S,) * 2)
    with scratch(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_live_child_keeps_the_folder(tmp_path: Path) -> None:
    code = "import sys, os, signal, pathlib, subprocess\nfrom ringmq.collector.spark.scratch import scratch\n"
    code += "with scratch(pathlib.Path(sys.argv[1])):\n"
    code += " subprocess.Popen(['cat'], close_fds=False)\n os.kill(os.getpid(), signal.SIGKILL)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE) as killed:
        assert killed.wait(60) == -9
        (left,) = tmp_path.iterdir()
        with scratch(tmp_path):
            assert left.is_dir()
    wait_until(lambda: removed_by_next_owner(left, tmp_path))


def removed_by_next_owner(left: Path, parent: Path) -> bool:
    """Whether the folder is gone after a further owner has cleaned up."""
    with scratch(parent):
        return not left.exists()


def test_folder_of_a_killed_owner_is_removed(tmp_path: Path) -> None:
    code = "import sys, os, signal, pathlib\nfrom ringmq.collector.spark.scratch import scratch\n"
    code += "with scratch(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=60)
    assert killed.returncode == -9
    (left,) = tmp_path.iterdir()
    with scratch(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert not left.exists()
