"""What the system says about a process: this one."""

from __future__ import annotations

import os
import time

from experiments.benchmarks.usage import Usage, memory_bytes


def test_work_is_seen() -> None:
    before = Usage.of(os.getpid())
    clock = time.thread_time()
    while time.thread_time() < clock + 0.05:
        pass
    used = Usage.of(os.getpid()).since(before)
    assert 0.045 <= used.cpu_s < 10
    assert used.waited_s >= 0


def test_memory_is_seen() -> None:
    before = memory_bytes(os.getpid())
    ballast = bytearray(b"x") * (64 << 20)
    assert memory_bytes(os.getpid()) - before > 48 << 20
    assert len(ballast) == 64 << 20
