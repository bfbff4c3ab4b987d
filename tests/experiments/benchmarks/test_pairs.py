"""Pairs of peers: no message is missed in a ring, and every fault is counted."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator

import pytest

from ringmq.experiments.benchmarks import pairs
from ringmq.experiments.benchmarks.pairs import AFTER, Pair, PairsMethod, check, draw
from ringmq.experiments.load.client import Client
from ringmq.experiments.load.raw_clients import Address
from ringmq.experiments.processes.peers import Ring
from ringmq.experiments.processes.servers import running
from ringmq.mqtt_front.matching.topics import has_wildcard, matches


@pytest.fixture
def strangers() -> Iterator[list[Address]]:
    """Two fronts without a connection between them."""
    core = min(os.sched_getaffinity(0))
    with running("ringmq", core) as first, running("ringmq", core) as second:
        yield [first.address, second.address]


async def test_no_message_is_missed_in_a_ring(ring: Ring) -> None:
    figures = await check([peer.mqtt for peer in ring.peers], PairsMethod(pairs=30, at_once=10, seed=1))
    assert not figures.faults, figures.faults.examples
    assert figures.pairs == len(figures.arrivals_s) == sum(map(len, figures.subacks_s.values())) == 30
    assert figures.lines()[0] == "30 pairs: 0 missed, 0 twice, 0 unanswered"


async def test_all_messages_between_unconnected_servers_are_missed(
    strangers: list[Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "ARRIVE_S", 0.05)
    figures = await check(strangers, PairsMethod(pairs=4, at_once=4, seed=1))
    assert figures.faults.counts == {"missed": 4 * AFTER, "twice": 0, "unanswered": 0}


async def test_duplicates_are_a_fault(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    once = Client.publish
    monkeypatch.setattr(Client, "publish", lambda *a, **k: (once(*a, **k), once(*a, **k)))
    figures = await check([peer.mqtt for peer in ring.peers], PairsMethod(pairs=10, at_once=10, seed=1))
    assert figures.faults.counts["missed"] == 0
    assert figures.faults.counts["twice"] >= AFTER


async def test_missing_suback_is_a_fault(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.experiments.load.client.Client.subscribe", lambda *_, **__: _never())
    monkeypatch.setattr("ringmq.experiments.load.client.ANSWER_S", 0.5)
    figures = await check([peer.mqtt for peer in ring.peers], PairsMethod(pairs=2, at_once=2, seed=1))
    assert figures.faults.counts == {"missed": 0, "twice": 0, "unanswered": 2}


async def _never() -> None:
    await asyncio.Event().wait()


def test_drawn_pairs_are_of_all_kinds_and_their_filters_match() -> None:
    drawn = [draw(number, 13, seed=1) for number in range(1000)]
    assert all(pair.subscriber_at != pair.publisher_at for pair in drawn)
    assert all(matches(pair.filter, pair.topic) for pair in drawn)
    kinds: Counter[object] = Counter((pair.kind, pair.qos, pair.early) for pair in drawn)
    assert len(kinds) == 16
    assert min(kinds.values()) > 20
    assert len({(pair.subscriber_at, pair.publisher_at) for pair in drawn}) == 13 * 12
    assert any(has_wildcard(pair.filter) for pair in drawn)


def test_the_same_seed_gives_the_same_pairs() -> None:
    assert [draw(number, 13, 1) for number in range(9)] == [draw(number, 13, 1) for number in range(9)]
    assert [draw(number, 13, 1) for number in range(9)] != [draw(number, 13, 2) for number in range(9)]


def test_text_of_a_pair_has_its_peers_and_topics() -> None:
    pair = Pair(7, 0, 2, "pairs/new/7/state", "pairs/#", 1, True)
    text = "pair 7, pairs/# with QoS 1 at peer 1, pairs/new/7/state published at peer 3, also before"
    assert str(pair) == text
    assert pair.kind == "new topic, wildcard"
