"""Usage of this process, as the system reports it."""

from __future__ import annotations

import os
import time

from ringmq.experiments.processes.usage import Usage, busy_s, memory_bytes, proportional_bytes


def test_work_is_counted_as_processor_time() -> None:
    before = Usage.of(os.getpid())
    clock = time.thread_time()
    while time.thread_time() < clock + 0.05:
        pass
    used = Usage.of(os.getpid()).since(before)
    assert 0.045 <= used.cpu_s < 10
    assert used.waited_s >= 0


def test_usage_of_several_processes_is_summed() -> None:
    once, twice = Usage.of(os.getpid()), Usage.of(os.getpid(), os.getpid())
    assert 2 * once.cpu_s - 0.001 <= twice.cpu_s < 2 * once.cpu_s + 10
    assert Usage.of() == Usage(0, 0)


def test_working_core_is_busy() -> None:
    cores = os.sched_getaffinity(0)
    before, clock = busy_s(cores), time.thread_time()
    while time.thread_time() < clock + 0.1:
        pass
    assert 0.05 <= busy_s(cores) - before < 10 * len(cores)
    assert busy_s([]) == 0


def test_allocated_memory_is_resident() -> None:
    before = memory_bytes(os.getpid())
    ballast = bytearray(b"x") * (64 << 20)
    assert memory_bytes(os.getpid()) - before > 48 << 20
    assert len(ballast) == 64 << 20


def test_proportional_memory_of_a_process_is_at_most_its_resident_memory() -> None:
    ballast = bytearray(b"x") * (64 << 20)
    found = proportional_bytes(os.getpid())
    assert 64 << 20 < found <= memory_bytes(os.getpid()) + (8 << 20)
    assert proportional_bytes(os.getpid(), os.getpid()) > 1.5 * found
    assert len(ballast) == 64 << 20
