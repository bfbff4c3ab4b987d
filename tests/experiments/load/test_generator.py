"""The load generator against a real front, in short measurements: its counts are consistent."""

from __future__ import annotations

import math
import os
from dataclasses import replace

import pytest

from ringmq.experiments.load import reachability
from ringmq.experiments.load.generator import Load
from ringmq.experiments.load.patterns import PATTERNS, RING_PATTERNS, Pattern
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.servers import Server, running
from ringmq.experiments.processes.sides import joined, why_not

SMALL = [
    Pattern("fan-out", topics=2, publishers=2, subscribers=3, qos=0),
    Pattern("pairs", topics=3, publishers=1, subscribers=1, qos=1),
    Pattern("exactly-once", topics=3, publishers=1, subscribers=2, qos=2),
    Pattern("large", topics=2, publishers=1, subscribers=2, qos=1, payload_bytes=5000),
]


@pytest.mark.parametrize("pattern", [*SMALL, PATTERNS["qos0-1to10"]], ids=lambda pattern: pattern.name)
def test_low_rate_has_no_loss(ringmq_server: Server, pattern: Pattern) -> None:
    with Load([ringmq_server], pattern) as load:
        for _ in range(2):
            figures = load.measure(1000, 0.05, 0.2)
            assert figures.loss == 0
            assert 0 < figures.ingress_hz < 10_000
            assert 0 < figures.egress_hz < 10_000 * pattern.sp_ratio
            assert figures.latencies_s
            assert all(0 < latency_s < 60 for latency_s in figures.latencies_s)
            assert list(figures.latencies_s) == sorted(figures.latencies_s)
            for share in (figures.server_cpu, figures.generator_cpu, figures.waited, figures.blocked):
                assert 0 <= share < 1.5


@pytest.mark.parametrize("pattern", SMALL, ids=lambda pattern: pattern.name)
def test_impossible_rate_is_not_reached(ringmq_server: Server, pattern: Pattern) -> None:
    with Load([ringmq_server], pattern) as load:
        figures = load.measure(1e9, 0.0, 0.1)
    assert not figures.offer_reached
    assert not figures.keeps_up
    assert figures.ingress_hz > 1000
    assert not math.isnan(figures.percentile_s(99))


@pytest.mark.parametrize("name", RING_PATTERNS)
def test_patterns_of_several_servers_work_with_one_server(ringmq_server: Server, name: str) -> None:
    with Load([ringmq_server], RING_PATTERNS[name]) as load:
        figures = load.measure(1000, 0.05, 0.2)
    assert figures.loss == 0
    assert figures.latencies_s


@pytest.mark.skipif(why_not("bridged") is not None, reason=str(why_not("bridged")))
@pytest.mark.parametrize("name", RING_PATTERNS)
def test_bridges_deliver_each_message_once(name: str) -> None:
    pattern = RING_PATTERNS[name]
    with joined("bridged", pattern.servers, min(os.sched_getaffinity(0))) as servers:
        reachability.check([server.address for server in servers])
        with Load(servers, pattern) as load:
            figures = load.measure(500, 0.05, 0.2)
    assert figures.loss == 0
    assert figures.latencies_s
    assert 0 <= figures.server_waited < 1.5


def test_clients_connect_to_the_servers_of_the_pattern(ringmq_server: Server) -> None:
    with running("ringmq", min(os.sched_getaffinity(0))) as other:
        with Load([ringmq_server, other], RING_PATTERNS["two-1to1"]) as load:
            across = load.measure(500, 0.05, 0.1)
        with Load(
            [ringmq_server, other], replace(RING_PATTERNS["two-1to1"], subscriber_at=lambda topic, client: 0)
        ) as load:
            within = load.measure(500, 0.05, 0.1)
    assert (across.loss, across.latencies_s) == (1, ())
    assert within.loss == 0


def test_end_of_the_server_is_an_error() -> None:
    with running("ringmq", min(os.sched_getaffinity(0))) as server:
        load = Load([server], SMALL[0])
    with load, pytest.raises(BenchError):
        load.measure(1000, 0.05, 0.1)
