"""The data folder: an id that stays, a boot number that grows, and what happens to bad folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ringmq.overlay.core.ids import key_of
from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity.data_folder import MAX_REMEMBERED, STORED, DataFolder, check_folder, passing_id

NOW_MS = 1_800_000_000_000


def stored(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "peer.json").read_text())
    return found


def start(folder: Path, now_ms: int = NOW_MS) -> tuple[int, int]:
    with DataFolder(folder, now_ms) as data:
        return data.id, data.boot


def test_id_stays_and_boot_number_grows(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    first, boot = start(folder)
    assert boot == NOW_MS
    assert start(folder, NOW_MS + 5000) == (first, NOW_MS + 5000)
    assert start(folder, NOW_MS) == (first, NOW_MS + 5001), "the clock went back"
    assert start(folder, 0) == (first, NOW_MS + 5002)


def test_new_folders_get_different_ids(tmp_path: Path) -> None:
    assert start(tmp_path / "a")[0] != start(tmp_path / "b")[0]


def test_second_peer_in_a_folder_is_refused(tmp_path: Path) -> None:
    with DataFolder(tmp_path, NOW_MS), pytest.raises(DataFolderError, match="in use by another peer"):
        DataFolder(tmp_path, NOW_MS)
    start(tmp_path)


def test_refused_peer_changes_nothing(tmp_path: Path) -> None:
    with DataFolder(tmp_path, NOW_MS):
        before = stored(tmp_path)
        with pytest.raises(DataFolderError):
            DataFolder(tmp_path, NOW_MS + 1)
        assert stored(tmp_path) == before


def test_known_peers_are_remembered(tmp_path: Path) -> None:
    with DataFolder(tmp_path, NOW_MS) as data:
        assert data.remembered == ()
        data.remember([("10.0.0.1", 4883), ("::1", 4883), ("10.0.0.1", 4883)])
    with DataFolder(tmp_path, NOW_MS) as data:
        assert data.remembered == (("10.0.0.1", 4883), ("::1", 4883))
        data.remember([])
        assert len(data.remembered) == 2, "alone for a while is no reason to forget"


def test_number_of_remembered_peers_is_limited(tmp_path: Path) -> None:
    with DataFolder(tmp_path, NOW_MS) as data:
        data.remember(("10.0.0.1", port) for port in range(1, 1000))
        assert data.remembered == tuple(("10.0.0.1", port) for port in range(1, MAX_REMEMBERED + 1))


def test_unchanged_peers_are_not_written_again(tmp_path: Path) -> None:
    with DataFolder(tmp_path, NOW_MS) as data:
        data.remember([("a", 1), ("b", 2)])
        written = (tmp_path / "peer.json").stat().st_ino
        assert not data.remember([("b", 2), ("a", 1)])
        assert (tmp_path / "peer.json").stat().st_ino == written
        assert data.remember([("b", 2)])
        assert (tmp_path / "peer.json").stat().st_ino != written


GOOD = {"id": "0" * 32, "boot": 1, "peers": ["a:1"]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\x00",
        b"[]",
        b"{}",
        *(
            json.dumps(GOOD | wrong).encode()
            for wrong in (
                {"id": "0" * 31},
                {"id": "g" * 32},
                {"boot": -1},
                {"boot": "1"},
                {"boot": 1 << 63},
                {"peers": ["a"]},
                {"peers": ["a:1"] * (MAX_REMEMBERED + 1)},
                {"more": 1},
            )
        ),
    ],
)
def test_damaged_file_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "peer.json"
    file.write_bytes(content)
    for _ in range(2):  # the lock must be free again
        with pytest.raises(DataFolderError, match="damaged") as caught:
            DataFolder(tmp_path, NOW_MS)
        assert str(file) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert file.read_bytes() == content


def test_valid_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "peer.json").write_text(json.dumps(GOOD))
    assert start(tmp_path) == (0, NOW_MS)


def test_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, boot = start(tmp_path)

    def crash(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(DataFolderError, match="Input/output error"):
        DataFolder(tmp_path, NOW_MS + 1)
    monkeypatch.undo()
    assert start(tmp_path, 0) == (first, boot + 1)


def test_failed_write_is_repeated_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with DataFolder(tmp_path, NOW_MS) as data:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(DataFolderError, match="No space left"):
            data.remember([("a", 1)])
        assert stored(tmp_path)["peers"] == []
        monkeypatch.undo()
        assert data.remember([("a", 1)])
        assert stored(tmp_path)["peers"] == ["a:1"]


def test_file_as_data_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DataFolderError, match=f"cannot use {file}: "):
        DataFolder(file, NOW_MS)
    with pytest.raises(DataFolderError, match="cannot use"):
        DataFolder(file / "below", NOW_MS)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_forbidden_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataFolderError, match="Permission denied"):
        DataFolder(tmp_path, NOW_MS)


def test_peer_json_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "peer.json").mkdir()
    with pytest.raises(DataFolderError, match="cannot read"):
        DataFolder(tmp_path, NOW_MS)


def test_id_without_data_folder_is_the_key_of_the_address() -> None:
    assert passing_id("10.0.0.1", 4883) == key_of("10.0.0.1:4883")
    assert passing_id("10.0.0.1", 0) != passing_id("10.0.0.1", 0), "such ports say nothing, so chance decides"


def test_check_folder_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    check_folder(folder)
    assert not folder.parent.exists()
    with DataFolder(folder, NOW_MS):
        before = stored(folder)
        check_folder(folder)
        assert stored(folder) == before


def test_check_folder_refuses_unusable_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "folder"):
        with pytest.raises(DataFolderError) as caught:
            check_folder(folder)
        assert str(caught.value) == f"data: cannot use {folder}: Not a directory"
    (tmp_path / STORED).write_text("{}")
    with pytest.raises(DataFolderError, match="is damaged"):
        check_folder(tmp_path)
    # Root, as whom tests may run, is refused nothing.
    monkeypatch.setattr(os, "access", lambda place, _: Path(place) != tmp_path)
    with pytest.raises(DataFolderError) as caught:
        check_folder(tmp_path / "new" / "folder")
    assert str(caught.value) == f"data: cannot use {tmp_path / 'new' / 'folder'}: Permission denied"
