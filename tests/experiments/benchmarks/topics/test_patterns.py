"""Each pattern, tiny, at real peers: every unit is done, and its figures are there."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringmq.experiments.benchmarks.topics.costs import Reading, Work
from ringmq.experiments.benchmarks.topics.meter import Meter, Reference
from ringmq.experiments.benchmarks.topics.method import TopicsMethod, TopicsPattern
from ringmq.experiments.benchmarks.topics.runner import PLAYS
from ringmq.experiments.benchmarks.topics.systems import System
from ringmq.experiments.load import topic_stream
from ringmq.experiments.load.client import Client
from ringmq.experiments.processes.peers import Ring, ring_of
from ringmq.mqtt_front.codec.packets import Version

SMALL = TopicsMethod(count=60, load_s=0.1, pause_s=0.0, rest_s=0.0, settle_s=0.0, timeout_s=30.0)


@pytest.fixture
def system(ring: Ring) -> System:
    return System("this", ring)


def play(system: System, pattern: TopicsPattern, **changes: Any) -> Reading:
    method = replace(SMALL, **changes)
    reading = Reading(Work("message", 1, done=1, seconds=1.0, cpu_s=1e-5))
    PLAYS[pattern](system, Meter(system), method, reading)
    for work in reading.works:
        assert work.complete, work
        assert work.cpu_us > 0
        assert work.rate_hz > 0
    return reading


def names(reading: Reading) -> list[str]:
    return [work.name for work in reading.works]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_again_publishes_to_all_topics_twice(system: System, qos: int) -> None:
    reading = play(system, TopicsPattern.AGAIN, qos=qos)
    assert names(reading) == ["new", "again"]
    assert [work.done for work in reading.works] == [60, 60]


@pytest.mark.parametrize("qos", [0, 1])
def test_wild_counts_all_deliveries(system: System, qos: int) -> None:
    reading = play(system, TopicsPattern.WILD, clients=(90,), qos=qos)
    # Each of the 80 filters has at least one subscriber, so each message at least two.
    assert reading.works[0].done >= 120
    assert reading.extra["publications_hz"] > 0


def test_deep_measures_others_without_and_with_the_longest_topics() -> None:
    with ring_of(2) as pair:  # peers that stay busy with the longest topics would delay the other tests
        reading = play(System("this", pair), TopicsPattern.DEEP, count=3, levels=(2, 20))
    assert names(reading) == ["2 levels", "20 levels"]
    assert reading.units == 6
    for which in ("without", "with"):
        assert 0 < reading.extra[f"puback_p99.9_{which}_ms"] <= reading.extra[f"puback_max_{which}_ms"]
    assert reading.extra["longest_topics_hz"] > 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_filters_are_granted_and_get_their_messages(system: System, qos: int) -> None:
    reading = play(system, TopicsPattern.FILTERS, count=250, clients=(2,), qos=qos)
    assert names(reading) == ["filter", "message"]
    assert (reading.extra["refused_filters"], reading.extra["lost_messages"], reading.lost) == (0, 0, 0)
    assert reading.extra["puback_max_ms"] > 0


def test_filters_count_lost_messages(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_stream, "LINGER_S", 0.2)
    encode = topic_stream.encode_publish

    def astray(version: Version, topic: bytes, *rest: Any, **more: Any) -> bytes:
        """Send the message of the last topic to a topic that nobody subscribes to."""
        return encode(version, topic.replace(b"state/0000059", b"stray/0000059"), *rest, **more)

    monkeypatch.setattr(topic_stream, "encode_publish", astray)
    reading = Reading(Work("message", 1))
    PLAYS[TopicsPattern.FILTERS](system, Meter(system), SMALL, reading)
    assert reading.lost == reading.extra["lost_messages"] == 1


def test_churn_measures_each_number_of_clients(system: System) -> None:
    reading = play(system, TopicsPattern.CHURN, clients=(1, 5))
    assert names(reading) == ["pair", "pair, 5 clients"]
    assert all(len(work.latencies_s) == 60 for work in reading.works)


@pytest.mark.parametrize("qos", [0, 1])
def test_request_gets_all_responses(system: System, qos: int) -> None:
    reading = play(system, TopicsPattern.REQUEST, count=20, qos=qos)
    assert reading.extra["lost_responses"] == 0


def test_connects_serves_clients_at_once(system: System) -> None:
    assert play(system, TopicsPattern.CONNECTS, clients=(4,)).works[0].done == 60


def test_retained_messages_reach_a_subscriber_of_all(system: System) -> None:
    assert names(play(system, TopicsPattern.RETAINED)) == ["retained topic", "#"]


def test_retained_messages_survive_a_kill(tmp_path: Path) -> None:
    with ring_of(1, ("--data", str(tmp_path / "data"))) as ring:
        reading = play(System("this", ring), TopicsPattern.RETAINED, data=True)
    assert names(reading) == ["retained topic", "#", "# after a kill"]
    assert reading.extra["ready_after_kill_s"] > 0


def test_timeout_shows_the_units_that_were_done(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(Work("message", 1))
    PLAYS[TopicsPattern.NEW](system, Meter(system), replace(SMALL, timeout_s=0.0), reading)
    assert (reading.works[0].done, reading.works[0].complete) == (0, False)

    async def never(self: Client, *filters: str, qos: int = 0) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(Client, "subscribe", never)
    PLAYS[TopicsPattern.CHURN](system, Meter(system), replace(SMALL, timeout_s=0.05), reading)
    assert reading.works[1].done == 0
    assert math.isnan(reading.works[1].cpu_us)


def test_reference_is_measured_across_two_peers(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.experiments.benchmarks.topics.meter.MESSAGES", 100)
    with Reference(system, Meter(system)) as reference:
        work = reference.measure(30.0)
    assert work.done == 100
    assert work.cpu_us > 0


def test_meter_sees_memory_and_rest(system: System) -> None:
    meter = Meter(system)
    assert meter.memory() > 10_000_000
    assert 0 <= meter.rest(0.1) < 4
