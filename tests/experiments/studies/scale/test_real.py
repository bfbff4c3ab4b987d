"""Figures of a real ring, from the records of its peers."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.collector.ingest.spool import LANDING
from ringmq.experiments.studies.harness.approaches import DIRECT
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.plan import Plan
from ringmq.experiments.studies.harness.traffic import Traffic
from ringmq.experiments.studies.harness.trial import Trial
from ringmq.experiments.studies.scale.figures import REAL
from ringmq.experiments.studies.scale.real import bytes_per_copy, figures_of, latencies_s
from ringmq.logger.records import Delivery, Record, Sample, encode
from ringmq.logger.records import Traffic as Crossed

PEER = "0" * 32
PLAN = Plan(
    run="r", approach=DIRECT, peers=2, publishers=(0,), subscribers=(0, 1), topics=("a",),
    rate_hz=1.0, warm_s=1.0, measured_s=4.0, seed=1,
)  # fmt: skip


def sample(number: int, copies: int, size_bytes: int) -> Sample:
    none = Crossed()
    crossed = Crossed(bytes_in=size_bytes, messages_out=copies)
    return Sample(
        run="r", peer=PEER, boot=1, number=number, at=0.0, uptime_s=10 + number / 2, address="127.0.0.1:1",
        listeners={}, pid=1, dispatching="direct", fanout=0, cpu_s=0.0, memory_bytes=1, clients=0, subscriptions=0,
        topics=0, mqtt=none, overlay=crossed, log=none, links=[], coordinated=0, copied=0, filters=0, publishing=0,
        waiting_bytes=0, unacknowledged=0,
    )  # fmt: skip


def delivery(late_ms: int, clients: int = 1, duplicate: bool = False) -> Delivery:
    return Delivery(
        run="r", peer=PEER, boot=1, number=0, at=0.0, origin=PEER, origin_boot=1, sequence=1, topic="a",
        dispatching="direct", sender=PEER, sent_ns=10**9, received_ns=10**9 + late_ms * 10**6, hops=1, bytes=1,
        clients=clients, sends=0, duplicate=duplicate,
    )  # fmt: skip


def test_bytes_of_an_idle_ring_are_subtracted() -> None:
    """An idle ring sends 100 bytes in half a second; a copy has 1000 bytes."""
    samples = [sample(0, 2, 5000), sample(1, 5, 8100), sample(2, 8, 11200), sample(3, 8, 11300), sample(4, 8, 11400)]
    assert bytes_per_copy(samples) == pytest.approx(1000)


def test_all_bytes_count_without_a_sample_after_the_last_copy() -> None:
    assert bytes_per_copy([sample(0, 0, 0), sample(1, 4, 4400)]) == pytest.approx(1100)


def test_bytes_per_copy_without_copies_are_0() -> None:
    assert bytes_per_copy([sample(0, 3, 10), sample(1, 3, 500)]) == 0.0


def test_latencies_are_of_deliveries_that_reached_clients_once() -> None:
    late = [delivery(3), delivery(9, clients=0), delivery(50, duplicate=True), delivery(5)]
    assert latencies_s(late) == [0.003, 0.005]


@pytest.fixture
def landed(tmp_path: Path) -> Callable[[int, list[Record]], None]:
    (tmp_path / LANDING).mkdir()

    def land(position: int, records: list[Record]) -> None:
        lines = b"".join([encode(record) + b"\n" for record in records])
        (tmp_path / LANDING / f"r-{position}.jsonl").write_bytes(lines)

    return land


def trial(published: int) -> Trial:
    return Trial(PLAN, Traffic(published_at=array("d", [0.0] * published)), 1.0, None, 0)


def test_figures_of_a_trial_come_from_samples_and_deliveries(
    landed: Callable[[int, list[Record]], None], tmp_path: Path
) -> None:
    landed(0, [sample(3, 20, 25_000), delivery(2), sample(1, 10, 15_000), delivery(4)])
    landed(1, [sample(1, 0, 900), sample(2, 0, 950)])
    found = figures_of(trial(10), tmp_path)
    assert (found.nodes, found.approach, found.source) == (2, DIRECT, REAL)
    assert (found.measures["messages"].mean, found.measures["messages"].maximum) == (1.0, 2.0)
    assert found.measures["bytes"].maximum == pytest.approx(2000)
    assert found.measures["latency_ms"].mean == pytest.approx(3)


def test_missing_records_are_an_error(landed: Callable[[int, list[Record]], None], tmp_path: Path) -> None:
    landed(0, [sample(1, 1, 1), sample(2, 2, 2), delivery(1)])
    with pytest.raises(ExperimentError, match=r"cannot read r-1\.jsonl"):
        figures_of(trial(1), tmp_path)
    landed(1, [sample(1, 1, 1)])
    with pytest.raises(ExperimentError, match="r: peer 2 left no samples"):
        figures_of(trial(1), tmp_path)
