"""The choice of the peers of a takeover, and small takeovers of real peers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from ringmq.experiments.benchmarks.topics import takeover
from ringmq.experiments.benchmarks.topics.costs import Reading, Work
from ringmq.experiments.benchmarks.topics.meter import Meter
from ringmq.experiments.benchmarks.topics.method import Fault, Third, TopicsMethod, TopicsPattern
from ringmq.experiments.benchmarks.topics.runner import PLAYS
from ringmq.experiments.benchmarks.topics.systems import System
from ringmq.experiments.benchmarks.topics.takeover import cast, ids_of, owner, victims
from ringmq.experiments.load.client import Client
from ringmq.experiments.load.numbered_traffic import NumberedReceiver
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.peers import Ring, RingPeer, ring_of
from ringmq.overlay.core.ids import Id, nearness
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.replication.space import key_of_partition

SMALL = TopicsMethod(count=40, filters=60, rate_hz=200.0, third=Third.APART, load_s=0.5, timeout_s=30.0)
SPACE = 1 << 128
IDS = {number: Id(SPACE // 8 * number) for number in range(1, 7)}
TOPICS = [f"taken/{number:07d}" for number in range(300)]


def ring_with(numbers: range) -> Ring:
    """A ring that is not started."""
    peers = [RingPeer(number, ("127.0.0.1", 1), ("127.0.0.1", 2), Path("log")) for number in numbers]
    ring = Ring(peers, (), None)
    ring.stop()
    return ring


@pytest.mark.parametrize(("third", "steps"), [(Third.NEIGHBOUR, (0, 1, 2)), (Third.APART, (0, 1, 4))])
def test_victims_coordinate_the_most_topics(third: Third, steps: tuple[int, ...]) -> None:
    found = victims(IDS, TOPICS, Fault.KILL, third)
    around = sorted(IDS)
    groups = [tuple(around[(start + step) % len(around)] for step in steps) for start in range(len(around))]
    assert found in groups
    counts = {number: sum(owner(topic, IDS) == number for topic in TOPICS) for number in IDS}
    assert sum(counts.values()) == 300
    assert sum(counts[number] for number in found) == max(sum(counts[number] for number in group) for group in groups)


def test_victims_apart_leave_a_keeper_of_each_topic() -> None:
    ids = {number: Id(SPACE // 9 * number) for number in range(9)}
    found = victims(ids, TOPICS, Fault.KILL, Third.APART)
    for topic in TOPICS:
        keepers = sorted(ids, key=lambda number: nearness(key_of_partition(partition_of(topic)), ids[number]))[:3]
        assert len(set(keepers) & set(found)) <= 2


@pytest.mark.parametrize(("fault", "first", "later"), [(Fault.KILL, 2, 1), (Fault.STOP, 2, 1), (Fault.LEAVE, 1, 0)])
def test_clients_are_at_the_other_peers(fault: Fault, first: int, later: int) -> None:
    found = cast(ring_with(range(1, 7)), IDS, TOPICS, fault, Third.NEIGHBOUR)
    assert (len(found.first), len(found.later), len(found.hosts)) == (first, later, 6 - first - later)
    assert {peer.number for peer in (*found.first, *found.later, *found.hosts)} == set(IDS)


def test_the_coordinator_of_the_most_topics_joins() -> None:
    found = cast(ring_with(range(1, 7)), IDS, TOPICS, Fault.JOIN, Third.NEIGHBOUR)
    (newcomer,) = found.first
    shares = Counter(owner(topic, IDS) for topic in TOPICS)
    assert shares[newcomer.number] == max(shares.values())
    assert (found.later, len(found.hosts)) == ((), 5)


@pytest.mark.parametrize(("fault", "alive"), [(Fault.KILL, 2), (Fault.STOP, 5), (Fault.JOIN, 5), (Fault.LEAVE, 4)])
def test_nothing_acknowledged_is_lost(fault: Fault, alive: int) -> None:
    with ring_of(5) as ring:
        system = System("this", ring)
        reading = Reading(Work("message", 1))
        PLAYS[TopicsPattern.TAKEOVER](system, Meter(system), replace(SMALL, fault=fault), reading)
        assert len(ring.alive) == alive
    assert reading.works[0].done == 60
    assert reading.lost == reading.extra["lost_messages"] == reading.extra["messages_twice"] == 0
    assert reading.extra["topics"] == 40
    assert reading.extra["messages"] >= 100
    assert 0 < reading.extra["topics_concerned"] <= 40
    assert reading.extra["puback_max_others_ms"] > 0


def test_lost_messages_are_counted(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.experiments.load.numbered_traffic.DELIVER_S", 0.1)
    monkeypatch.setattr(takeover, "NEXT_S", 0.0)
    received = NumberedReceiver.__call__

    def deaf(self: NumberedReceiver, message: object) -> None:
        if not bytes(message.payload).endswith(b" 7"):  # type: ignore[attr-defined]
            received(self, message)  # type: ignore[arg-type]

    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr(NumberedReceiver, "__call__", deaf)
    monkeypatch.setattr(takeover, "_strike", nothing)
    system = System("this", ring)
    reading = Reading(Work("message", 1))
    PLAYS[TopicsPattern.TAKEOVER](system, Meter(system), replace(SMALL, load_s=0.1), reading)
    assert reading.lost == 1


def test_ring_without_granted_filters_is_an_error(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    subscribe = Client.subscribe
    monkeypatch.setattr(Client, "subscribe", lambda self, *filters, qos: subscribe(self, *filters, qos=qos))
    system = System("this", ring)
    with pytest.raises(BenchError, match="no filter was granted within 0 s"):
        PLAYS[TopicsPattern.TAKEOVER](system, Meter(system), replace(SMALL, timeout_s=0.0), Reading(Work("m", 1)))


def test_ids_come_from_the_command_line_of_the_peers(ring: Ring) -> None:
    assert ids_of(ring) == {peer.number: peer.id for peer in ring.peers}
