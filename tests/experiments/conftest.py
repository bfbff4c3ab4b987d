"""Fixtures of the benchmark tests: made-up figures, a ring and a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.processes.peers import Ring, ring_of
from ringmq.experiments.processes.servers import Server, running


@pytest.fixture
def figures() -> Callable[..., Figures]:
    """Makes figures of a server that keeps up, with the given changes."""

    def make(**changes: Any) -> Figures:
        usual: dict[str, Any] = {
            "offered_hz": 1000.0,
            "ingress_hz": 1000.0,
            "egress_hz": 10_000.0,
            "sp_ratio": 10,
            "loss": 0.0,
            "latencies_s": tuple(number / 1000 for number in range(1, 101)),
            "server_cpu": 0.5,
            "generator_cpu": 0.5,
            "server_waited": 0.0,
            "generator_waited": 0.0,
            "blocked": 0.0,
        }
        return Figures(**{**usual, **changes})

    return make


@pytest.fixture(scope="module")
def ring() -> Iterator[Ring]:
    """Four peers. A test that kills a peer must start it again."""
    with ring_of(4) as four:
        yield four


@pytest.fixture(scope="module")
def ringmq_server() -> Iterator[Server]:
    """A front in its own process."""
    with running("ringmq", min(os.sched_getaffinity(0))) as server:
        yield server
