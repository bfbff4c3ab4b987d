"""Rounds against a real front: every round is complete, and its work is counted."""

from __future__ import annotations

import math
import os

import pytest

from ringmq.experiments.load import rounds
from ringmq.experiments.load.patterns import RING_PATTERNS, Pattern
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.rounds import Rounds
from ringmq.experiments.processes.servers import Server, running


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("payload_bytes", [0, 32, 20_000])
def test_rounds_are_complete(ringmq_server: Server, qos: int, payload_bytes: int) -> None:
    pattern = Pattern("small", topics=2, publishers=2, subscribers=3, qos=qos, payload_bytes=payload_bytes)
    with Rounds([ringmq_server], pattern) as clients:
        for rate_hz in (1000, math.inf):
            measured = clients.slice(10, rate_hz)
            assert (measured.publications, measured.deliveries) == (40, 120)
            assert 0 < measured.cpu_s < 60
            assert 0 < measured.rate_hz <= min(rate_hz * 4 / 3, 1e6)
            assert measured.waited >= 0


def test_a_rate_is_not_exceeded(ringmq_server: Server) -> None:
    pattern = Pattern("pairs", topics=10, publishers=1, subscribers=1, qos=0)
    with Rounds([ringmq_server], pattern) as clients:
        measured = clients.slice(11, 1000)
    assert measured.seconds >= 0.1


def test_a_round_that_does_not_become_complete_is_an_error(
    ringmq_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "ROUND_S", 0.05)
    # Two fronts that are not one ring: nothing published at one arrives at the other.
    with (
        running("ringmq", min(os.sched_getaffinity(0))) as other,
        Rounds([ringmq_server, other], RING_PATTERNS["two-1to1"]) as clients,
        pytest.raises(BenchError, match=r"50 deliveries of a round did not arrive within 0.05 s"),
    ):
        clients.slice(1, 1000)


def test_a_server_that_dies_is_an_error() -> None:
    with running("ringmq", min(os.sched_getaffinity(0))) as server:
        clients = Rounds([server], RING_PATTERNS["one-A"])
    with clients, pytest.raises(BenchError):
        clients.slice(1, 1000)
