"""Rings of real peers: kills, restarts and logs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringmq.experiments.load.raw_clients import BenchError, connected
from ringmq.experiments.processes import peers
from ringmq.experiments.processes.peers import Ring, RingPeer, ring_of
from ringmq.overlay.core.ids import Id

CORE = min(os.sched_getaffinity(0))


def test_peers_are_one_ring_with_ids_and_listeners(ring: Ring) -> None:
    assert len({peer.id for peer in ring.peers} - {Id(0)}) == 4
    for peer in ring.peers:
        connected(peer.mqtt, "a").close()
    assert asyncio.run(ring.trouble_counts()).startswith("0 silent, ")


def test_killed_peers_leave_the_ring_and_come_back(ring: Ring) -> None:
    first, second, *rest = ring.peers
    ids = {peer: peer.id for peer in ring.peers}
    ring.kill(first, second)
    assert ring.alive == rest
    asyncio.run(ring.settle())
    ring.start(first, second)
    asyncio.run(ring.settle())
    assert ring.alive == ring.peers
    assert {peer: peer.id for peer in ring.peers} == ids


def test_ring_leaves_no_process_and_no_log() -> None:
    with ring_of(2, ("--shadows", "1"), core=CORE) as ring:
        pids = [peer.pid for peer in ring.peers]
        logs = [peer.log for peer in ring.peers]
        assert all(os.sched_getaffinity(pid) == {CORE} for pid in pids)
        assert all(log.exists() for log in logs)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(log.exists() for log in logs)


def test_peer_that_does_not_start_is_an_error() -> None:
    with pytest.raises(BenchError, match="does not accept"), ring_of(1, ("--no-such-option",)):
        pass


def test_process_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "./no-such-python")
    with pytest.raises(BenchError, match="cannot start peer 1"), ring_of(1):
        pass


def test_interrupt_while_a_peer_is_started_ends_that_peer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self.pid)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(peers.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt), ring_of(2):
        pass
    (pid,) = started
    assert not Path(f"/proc/{pid}").exists()


def test_logged_errors_have_errors_and_tracebacks_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    failing = RingPeer(1, ("127.0.0.1", 1), ("127.0.0.1", 2), log)
    quiet = RingPeer(2, ("127.0.0.1", 3), ("127.0.0.1", 4), tmp_path / "other")
    quiet.log.write_text("")
    log.write_text(
        "2026 [warning  ] few files\n2026 [error    ] the roles failed\nTraceback (most recent call last):\n"
    )
    lines = ["2026 [error    ] the roles failed", "Traceback (most recent call last):"]
    assert failing.logged_errors() == lines
    assert Ring([failing, quiet], (), None).logged_errors() == [f"peer 1 (00000000): {line}" for line in lines]


def test_ring_that_does_not_settle_is_an_error(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SETTLE_S", 0.05)
    monkeypatch.setattr(peers, "SETTLE_S_PER_PEER", 0.0)
    monkeypatch.setattr(peers, "is_settled", lambda status, ids: False)
    with pytest.raises(BenchError, match=r"4 peers were not one ring after 0.05 s"):
        asyncio.run(ring.settle())
