"""Runs in which peers die, on a small ring."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.benchmarks import kill
from ringmq.experiments.benchmarks.kill import NEWCOMERS, KillFigures, KillMethod, check
from ringmq.experiments.benchmarks.victims import LEAST_PEERS, Kind
from ringmq.experiments.load.numbered_traffic import NumberedTraffic
from ringmq.experiments.processes.peers import Ring, ring_of

GUIDED = Choice("guided", 2)
METHOD = KillMethod(rate_hz=200.0, served_s=60.0, seed=1, choice=GUIDED, shadows=2)


@pytest.fixture(scope="module")
def eight() -> Iterator[Ring]:
    with ring_of(LEAST_PEERS, ("--dispatch", "guided", "--fanout", "2")) as ring:
        yield ring


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill, "BEFORE_S", 0.3)
    monkeypatch.setattr(kill, "AFTER_S", 0.5)


@pytest.mark.parametrize("kind", [Kind.OWNERS, Kind.INTERIOR])
def test_kill_of_peers_loses_no_messages(eight: Ring, kind: Kind) -> None:
    pids = {peer.pid for peer in eight.peers}
    figures = KillFigures()
    asyncio.run(check(eight, kind, 0, METHOD, figures))
    assert not figures.faults, figures.faults.examples
    assert figures.runs == 1
    assert figures.published > 100
    assert figures.delivered > figures.published
    assert len(figures.subscribers_s) == len(figures.publishers_s) == len(figures.subacks_s) == NEWCOMERS
    assert len(pids - {peer.pid for peer in eight.peers}) == (2 if kind is Kind.OWNERS else 1)
    assert len(eight.alive) == LEAST_PEERS


def test_losses_and_late_clients_are_faults(eight: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some messages are counted under numbers that were never published."""
    send = NumberedTraffic.send

    def forgetful(flow: NumberedTraffic, publisher: int, client: object, topic: int, qos: int) -> object:
        message = send(flow, publisher, client, topic, qos)  # type: ignore[arg-type]
        if message.qos and message.number % 10 == 0:
            message.number += 1_000_000
        return message

    monkeypatch.setattr(NumberedTraffic, "send", forgetful)
    monkeypatch.setattr("ringmq.experiments.load.numbered_traffic.DELIVER_S", 0.5)
    figures = KillFigures()
    method = KillMethod(rate_hz=200.0, served_s=0.0, seed=1, choice=GUIDED, shadows=2)
    asyncio.run(check(eight, Kind.COORDINATOR, 1, method, figures))
    assert figures.faults.counts["missed with QoS 1"] > 0
    assert figures.faults.counts["late"] == 2 * NEWCOMERS
    assert figures.lines("some")[0].startswith("some: 1 runs, ")
