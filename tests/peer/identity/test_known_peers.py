"""Saves of the known peers: soon for a new one, later for one that has gone, and not without end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.overlay.config import Address
from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity import known_peers
from ringmq.peer.identity.data_folder import DataFolder
from ringmq.peer.identity.known_peers import KnownPeers

A, B, C = (("10.0.0.1", port) for port in (1, 2, 3))
MOMENT_S = 0.001
LONG_S = 600.0
"""Longer than the test may take."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with DataFolder(tmp_path, 1) as folder:
        yield folder


class Saved:
    """The known peers of a test, and what the folder has of them."""

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self.now: list[Address] = []
        self.peers = KnownPeers(folder, lambda: self.now)

    def know(self, *peers: Address) -> None:
        self.now = list(peers)
        self.peers.changed()

    async def becomes(self, *peers: Address) -> None:
        async with asyncio.timeout(10):
            while set(self._folder.remembered) != set(peers):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(MOMENT_S)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(known_peers, "SOON_S", MOMENT_S)
    monkeypatch.setattr(known_peers, "LATER_S", LONG_S)
    return monkeypatch


@pytest.mark.usefixtures("pauses")
async def test_new_peers_are_saved_soon(folder: DataFolder) -> None:
    saved = Saved(folder)
    for known in ([A], [A, B], [B, C]):
        saved.know(*known)
        await saved.becomes(*known)


async def test_peer_that_has_gone_is_removed_later(folder: DataFolder, pauses: pytest.MonkeyPatch) -> None:
    saved = Saved(folder)
    saved.know(A, B)
    await saved.becomes(A, B)
    saved.know(A)
    await asyncio.sleep(20 * MOMENT_S)
    assert set(folder.remembered) == {A, B}
    saved.know(A, C)
    await saved.becomes(A, C)
    pauses.setattr(known_peers, "LATER_S", MOMENT_S)
    saved.know(A)
    await saved.becomes(A)


async def test_ring_that_never_rests_is_saved_seldom(folder: DataFolder, pauses: pytest.MonkeyPatch) -> None:
    pauses.setattr(known_peers, "MOST_QUICK", 2)
    saved = Saved(folder)
    for known in (A, B):
        saved.know(known)
        await saved.becomes(known)
    saved.know(C)
    await asyncio.sleep(20 * MOMENT_S)
    assert folder.remembered == (B,)
    pauses.setattr(known_peers, "LATER_S", MOMENT_S)
    saved.know(C)
    await saved.becomes(C)


@pytest.mark.usefixtures("pauses")
async def test_peer_that_left_the_ring_keeps_what_it_knew(folder: DataFolder) -> None:
    saved = Saved(folder)
    saved.know(A)
    await saved.becomes(A)
    saved.know()
    await asyncio.sleep(20 * MOMENT_S)
    assert folder.remembered == (A,)


async def test_failed_save_is_repeated(folder: DataFolder, pauses: pytest.MonkeyPatch) -> None:
    pauses.setattr(known_peers, "LATER_S", MOMENT_S)
    fails = [DataFolderError("the disk is full")]
    remember = folder.remember

    def failing(peers: list[Address]) -> bool:
        if fails:
            raise fails.pop()
        return remember(peers)

    pauses.setattr(folder, "remember", failing)
    saved = Saved(folder)
    saved.know(A)
    await saved.becomes(A)
    assert not fails


async def test_save_that_is_due_is_made_at_the_stop(folder: DataFolder) -> None:
    saved = Saved(folder)
    saved.know(A)
    assert folder.remembered == ()
    saved.peers.stop()
    assert folder.remembered == (A,)
