"""Runs in which peers die: what is measured of them, on a small ring."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.benchmarks import kill
from ringmq.experiments.benchmarks.kill import NEWCOMERS, Figures, Method, check
from ringmq.experiments.benchmarks.victims import LEAST_PEERS, Kind
from ringmq.experiments.load.numbered_traffic import Traffic
from ringmq.experiments.processes.peers import Ring, ring_of

GUIDED = Choice("guided", 2)
METHOD = Method(rate_hz=200.0, served_s=60.0, seed=1, choice=GUIDED, shadows=2)


@pytest.fixture(scope="module")
def eight() -> Iterator[Ring]:
    with ring_of(LEAST_PEERS, ("--dispatch", "guided", "--fanout", "2")) as ring:
        yield ring


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill, "BEFORE_S", 0.3)
    monkeypatch.setattr(kill, "AFTER_S", 0.5)


@pytest.mark.parametrize("kind", [Kind.OWNERS, Kind.INTERIOR])
def test_nothing_is_lost_when_peers_die(eight: Ring, kind: Kind) -> None:
    pids = {peer.pid for peer in eight.peers}
    figures = Figures()
    asyncio.run(check(eight, kind, 0, METHOD, figures))
    assert not figures.faults, figures.faults.examples
    assert figures.runs == 1
    assert figures.published > 100
    assert figures.delivered > figures.published
    assert len(figures.subscribers_s) == len(figures.publishers_s) == len(figures.subacks_s) == NEWCOMERS
    assert len(pids - {peer.pid for peer in eight.peers}) == (2 if kind is Kind.OWNERS else 1)
    assert len(eight.alive) == LEAST_PEERS


def test_losses_and_late_ones_are_told(eight: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that were counted and never published."""
    send = Traffic.send

    def forgetful(flow: Traffic, publisher: int, client: object, topic: int, qos: int) -> object:
        one = send(flow, publisher, client, topic, qos)  # type: ignore[arg-type]
        if one.qos and one.number % 10 == 0:
            one.number += 1_000_000
        return one

    monkeypatch.setattr(Traffic, "send", forgetful)
    monkeypatch.setattr("ringmq.experiments.load.numbered_traffic.DELIVER_S", 0.5)
    figures = Figures()
    method = Method(rate_hz=200.0, served_s=0.0, seed=1, choice=GUIDED, shadows=2)
    asyncio.run(check(eight, Kind.COORDINATOR, 1, method, figures))
    assert figures.faults.counts["missed with QoS 1"] > 0
    assert figures.faults.counts["late"] == 2 * NEWCOMERS
    assert figures.lines("some")[0].startswith("some: 1 runs, ")
