"""A small takeover, and the reports of its faults."""

from __future__ import annotations

import asyncio

import pytest

from ringmq.experiments.benchmarks import takeover
from ringmq.experiments.benchmarks.takeover import TakeoverFigures, TakeoverMethod, check
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.peers import RingPeer, ring_of

METHOD = TakeoverMethod(topics=30, subscribers=2, lease_bytes=10**9, taken_s=60.0, seed=1)


def test_first_shadow_takes_over() -> None:
    with ring_of(4) as ring:
        reports: list[str] = []
        figures = asyncio.run(check(ring, METHOD, reports.append))
        assert len(ring.alive) == 3
    assert not figures.faults, figures.faults.examples
    assert (figures.leases, figures.published) == (60, 30)
    assert 0 < figures.taken_s < 60
    assert reports[0].startswith("60 leases at peer ")


def test_shadow_that_never_takes_over_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(peer: RingPeer) -> dict[str, object]:
        return {}

    monkeypatch.setattr(takeover, "GIVE_UP_S", 0.1)
    monkeypatch.setattr(takeover, "status_of", nothing)
    with ring_of(4) as ring, pytest.raises(BenchError, match=r"coordinates 0 partitions after 0.1 s, not (2\d|30)"):
        asyncio.run(check(ring, METHOD, lambda text: None))


def test_lines_have_the_memory_of_a_lease() -> None:
    figures = TakeoverFigures(leases=10, memory_before=1000, memory_after=21_000, taken_s=3.0)
    assert figures.lease_bytes == 2000
    assert "2000 B a lease" in figures.lines()[1]
