"""Saves of the known peers: soon for a new one, later for one that has gone, and not without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringmq.overlay.config import Address
from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity.data_folder import DataFolder
from ringmq.peer.identity.known_peers import LATER_S, MOST_QUICK, SOON_S, KnownPeers

A, B, C = (("10.0.0.1", port) for port in (1, 2, 3))


class FakeTimer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[FakeTimer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], /) -> FakeTimer:
        self.timers.append(FakeTimer(self.now + delay, callback))
        return self.timers[-1]

    def run(self, span_s: float) -> None:
        until = self.now + span_s
        while due := [timer for timer in self.timers if timer.at <= until and not timer.cancelled]:
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.now = first.at
            first.call()
        self.now = until


class Scene:
    """The known peers of a test, and what the folder has of them."""

    def __init__(self, folder: DataFolder) -> None:
        self.folder = folder
        self.loop = FakeLoop()
        self.now: list[Address] = []
        self.peers = KnownPeers(folder, lambda: self.now, self.loop)

    def know(self, *peers: Address) -> None:
        self.now = list(peers)
        self.peers.changed()

    @property
    def saved(self) -> set[Address]:
        return set(self.folder.remembered)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with DataFolder(tmp_path, 1) as folder:
        yield Scene(folder)


def test_new_peers_are_saved_soon(scene: Scene) -> None:
    for known in ({A}, {A, B}, {B, C}):
        scene.know(*known)
        assert scene.saved != known
        scene.loop.run(SOON_S)
        assert scene.saved == known


def test_peers_that_come_together_are_saved_once(scene: Scene) -> None:
    for known in ([A], [A, B], [A, B, C]):
        scene.know(*known)
    assert len(scene.loop.timers) == 1
    scene.loop.run(SOON_S)
    assert scene.saved == {A, B, C}
    assert not scene.loop.timers


def test_peer_that_has_gone_is_removed_later(scene: Scene) -> None:
    scene.know(A, B)
    scene.loop.run(SOON_S)
    scene.know(A)
    scene.loop.run(0.9 * LATER_S)
    assert scene.saved == {A, B}
    scene.loop.run(0.2 * LATER_S)
    assert scene.saved == {A}


def test_new_peer_does_not_wait_for_the_removal_of_another(scene: Scene) -> None:
    scene.know(A, B)
    scene.loop.run(SOON_S)
    scene.know(A)
    scene.know(A, C)
    scene.loop.run(SOON_S)
    assert scene.saved == {A, C}


def test_peer_that_is_back_in_time_costs_no_save(scene: Scene) -> None:
    scene.know(A, B)
    scene.loop.run(SOON_S)
    scene.know(A)
    scene.know(A, B)
    written = scene.folder._file.stat().st_ino
    scene.loop.run(2 * LATER_S)
    assert scene.folder._file.stat().st_ino == written


def test_ring_that_never_rests_is_saved_seldom(scene: Scene) -> None:
    saves, before, hours = 0, scene.saved, 3
    for number in range(hours * 3600):
        scene.know(("10.0.0.1", 1 + number % 60_000))
        scene.loop.run(1.0)
        saves += scene.saved != before
        before = scene.saved
    assert MOST_QUICK < saves <= MOST_QUICK + hours * 3600 / LATER_S + 1


def test_peer_that_left_the_ring_keeps_what_it_knew(scene: Scene) -> None:
    scene.know(A)
    scene.loop.run(SOON_S)
    scene.know()
    scene.loop.run(2 * LATER_S)
    assert scene.saved == {A}


def test_failed_save_is_repeated(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(peers: list[Address]) -> bool:
        raise DataFolderError("the disk is full")

    scene.know(A)
    with monkeypatch.context() as full:
        full.setattr(scene.folder, "remember", fail)
        scene.loop.run(SOON_S)
    assert scene.saved == set()
    scene.loop.run(LATER_S)
    assert scene.saved == {A}


def test_save_that_is_due_is_made_at_the_stop(scene: Scene) -> None:
    scene.know(A)
    assert scene.saved == set()
    scene.peers.stop()
    assert scene.saved == {A}
    scene.peers.stop()
