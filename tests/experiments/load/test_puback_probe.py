"""Probes of the PUBACK at a real front."""

from __future__ import annotations

from time import perf_counter

import pytest

from ringmq.experiments.load import puback_probe
from ringmq.experiments.load.puback_probe import PubackProbe
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.servers import Server, running
from tests.conftest import Eventually


def test_latencies_are_sorted_and_counted_once(ringmq_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puback_probe, "EVERY_S", 0.0)
    with PubackProbe([ringmq_server.address] * 2) as probe:
        end = perf_counter() + 0.2
        while perf_counter() < end:
            probe.tick(perf_counter())
        found = probe.measured()
        assert len(found) > 10
        assert found == sorted(found)
        assert all(0 < latency_s < 1 for latency_s in found)
        assert len(probe.measured()) <= 2  # those that wait for their PUBACK


def test_puback_that_does_not_come_counts_with_its_age(ringmq_server: Server) -> None:
    with PubackProbe([ringmq_server.address]) as probe:
        start = perf_counter()
        probe.tick(start)
        (first,) = probe.measured()
        (second,) = probe.measured()
        assert 0 < first < second <= perf_counter() - start


def test_closed_connection_is_an_error(eventually: Eventually) -> None:
    with running("ringmq", 0) as server, PubackProbe([server.address]) as probe:
        server.kill()
        server.wait()

        def fails() -> bool:
            try:
                probe.tick(perf_counter())
            except BenchError:
                return True
            return False

        eventually(fails, 10, "the end of the connection")
