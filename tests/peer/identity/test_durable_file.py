"""Small files of the data folder are replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity.durable_file import SECRET_MODE, replace_durably


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    for content in (b"one", b"another"):
        replace_durably(file, content)
        assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


def test_a_secret_is_for_its_user_alone_whatever_was_left_behind(tmp_path: Path) -> None:
    file = tmp_path / "peer.key"
    (tmp_path / "peer.new").write_text("left by a crash")
    (tmp_path / "peer.new").chmod(0o666)
    replace_durably(file, b"key", SECRET_MODE)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataFolderError, match=r"data: cannot write .*: No such file or directory"):
        replace_durably(tmp_path / "missing" / "file", b"")
