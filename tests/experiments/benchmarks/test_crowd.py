"""Small crowds at real fronts."""

from __future__ import annotations

import os
import resource

import pytest

from ringmq.experiments.benchmarks import crowd
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.servers import Server, running


def test_idle_clients_are_measured(ringmq_server: Server) -> None:
    figures = crowd.idle(ringmq_server, 200)
    assert figures.clients == 200
    assert figures.bytes_each < 1 << 20
    assert 0 < figures.connect_s < 10


def test_filters_are_measured(ringmq_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "MESSAGES", 200)
    monkeypatch.setattr(crowd, "ROUNDS", 2)
    with running("ringmq", min(os.sched_getaffinity(0))) as having:
        figures = crowd.filters(ringmq_server, having, 2500)
    assert figures.filters == 2500
    for value in (figures.steady_ratio, figures.fresh_ratio, figures.steady_s, figures.fresh_s):
        assert 0 < value < 1000


def test_limit_of_open_files_is_restored() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with crowd.many_files(before[0] if before[0] + crowd.SPARE_FILES <= before[1] else 1):
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= before[0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_too_many_clients_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1000, 4000))
    with pytest.raises(BenchError, match="ulimit"), crowd.many_files(4000):
        pass
