"""The folder for what is written on the way: gone after its owner, however that ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringmq.collector.spark.scratch import LEFT_S, LOCK, PREFIX, scratch
from tests.conftest import wait_until


def test_it_is_gone_afterwards(tmp_path: Path) -> None:
    with scratch(tmp_path) as folder:
        (folder / "a").mkdir()
        (folder / "a" / "b").write_text("b")
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_it_is_gone_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), scratch(tmp_path):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_those_in_use_are_left_alone(tmp_path: Path) -> None:
    with scratch(tmp_path) as one, scratch(tmp_path) as other:
        assert one != other
        assert one.is_dir()
        assert other.is_dir()


def test_one_that_is_just_being_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}new").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / LOCK).write_bytes(b"")
    with scratch(tmp_path):
        pass
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other", f"{PREFIX}new"]


def test_one_that_was_made_again_after_it_was_removed_is_removed(tmp_path: Path) -> None:
    old = tmp_path / f"{PREFIX}old"
    (old / "blockmgr").mkdir(parents=True)
    os.utime(old, (time.time() - 2 * LEFT_S,) * 2)
    with scratch(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_an_heir_that_still_lives_keeps_it(tmp_path: Path) -> None:
    code = "import sys, os, signal, pathlib, subprocess\nfrom ringmq.collector.spark.scratch import scratch\n"
    code += "with scratch(pathlib.Path(sys.argv[1])):\n"
    code += " subprocess.Popen(['cat'], close_fds=False)\n os.kill(os.getpid(), signal.SIGKILL)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE) as killed:
        assert killed.wait(60) == -9
        (left,) = tmp_path.iterdir()
        with scratch(tmp_path):
            assert left.is_dir()
    wait_until(lambda: gone(left, tmp_path))


def gone(left: Path, parent: Path) -> bool:
    """After one more has looked."""
    with scratch(parent):
        return not left.exists()


def test_what_a_killed_owner_has_left_is_removed(tmp_path: Path) -> None:
    code = "import sys, os, signal, pathlib\nfrom ringmq.collector.spark.scratch import scratch\n"
    code += "with scratch(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=60)
    assert killed.returncode == -9
    (left,) = tmp_path.iterdir()
    with scratch(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert not left.exists()
