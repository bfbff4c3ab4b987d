"""The load generator against one real front, and its counts after the end of a server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.servers import Server, running
from ringmq.experiments.studies.harness import load as loading
from ringmq.experiments.studies.harness.load import TrialLoad
from ringmq.experiments.studies.harness.traffic import counts
from tests.experiments.studies.making import plan


@pytest.fixture
def front() -> Iterator[Server]:
    with running("ringmq", min(os.sched_getaffinity(0))) as server:
        yield server


def test_every_message_reaches_every_subscriber(front: Server) -> None:
    made = plan(publishers=(0, 2), subscribers=(0, 1, 2), rate_hz=100.0, warm_s=0.0, measured_s=0.1)

    async def play() -> TrialLoad:
        async with TrialLoad(made, [front.address] * 3) as load:
            load.begin()
            await load.run()
            await load.drain()
        return load

    observed = asyncio.run(play()).traffic
    found = counts(observed)
    assert found.published == made.messages == 40
    assert (found.wanted, found.missed, found.twice) == (120, 0, 0)
    assert list(observed.publishers[:4]) == [0, 2, 0, 2]
    assert [arrivals.position for arrivals in observed.arrivals] == [0, 1, 2]
    assert 0 < found.p50_s <= found.p99_s < 10
    times = list(observed.published_at)
    assert times == sorted(times)
    assert times[-1] >= 39 / made.published_hz


def test_disconnected_publishers_are_skipped(front: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "QUIET_S", 0.1)
    made = plan(publishers=(0, 1), subscribers=(1,), rate_hz=500.0, measured_s=0.05)

    async def play() -> TrialLoad:
        async with TrialLoad(made, [front.address] * 3) as load:
            load.begin()
            await load.run()
            await load.drain()
            before = load.traffic.published
            front.kill()
            front.wait()
            for client in load._publishers:
                with suppress(BenchError):
                    await client.subscribe("a")
            await load.run()
            assert load.traffic.published == before
            await load.drain()
        return load

    assert asyncio.run(play()).traffic.published == made.messages


def test_drain_gives_up_on_missing_messages(front: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "QUIET_S", 0.1)
    made = plan(publishers=(0,), subscribers=(1,), measured_s=0.1)

    async def play() -> TrialLoad:
        async with TrialLoad(made, [front.address] * 3) as load:
            load.begin()
            load.traffic.published_at.append(0.0)
            async with asyncio.timeout(10):
                await load.drain()
        return load

    assert counts(asyncio.run(play()).traffic).missed == 1


def test_unreachable_server_is_an_error(closed_port: int) -> None:
    async def play() -> None:
        async with TrialLoad(plan(), [("127.0.0.1", closed_port)] * 3):
            pass

    with pytest.raises(BenchError, match="cannot connect"):
        asyncio.run(play())
