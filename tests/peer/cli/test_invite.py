"""`ringmq invite`: what it says without a peer, and how long a token may last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.peer.cli.invite import parse_duration
from ringmq.peer.cli.local_peer import caller_of, socket_of
from ringmq.peer.errors import ConfigError, PeerError
from tests.identities import Authority


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("30min", 1800.0), ("1h", 3600.0), ("366d", 31622400.0)])
def test_times_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "0s", "-1h", "367d", "1 h", "h", "1e3s", "99999999999s"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--for must be a time such as 30min"):
        parse_duration(text)


def test_a_folder_without_a_peer_is_one_line(ringmq: Callable[..., Any], tmp_path: Path) -> None:
    process = ringmq("invite", "--data", str(tmp_path))
    assert process.popen.returncode == 1
    assert process.err == f"ringmq: data: no peer runs with {tmp_path}: start it, or name its data folder with --data\n"


def test_a_socket_that_nobody_serves_is_no_peer(tmp_path: Path) -> None:
    (tmp_path / "control.sock").write_text("a file")
    with pytest.raises(PeerError, match="no peer runs with"):
        socket_of(tmp_path)


def test_a_folder_has_an_identity_or_none(tmp_path: Path) -> None:
    assert caller_of(tmp_path) is None
    certified = Authority(tmp_path).certified()
    caller = caller_of(certified.files.folder.parent)
    assert caller is not None
    assert caller.read(b"garbage") is None
