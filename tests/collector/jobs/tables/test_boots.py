"""Totals and rates of peers, over all their starts."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from ringmq.collector.jobs.tables.boots import by_peer
from ringmq.logger.records import Sample, Traffic
from tests.collector.making import rows, sample, stored


def sample_after(out: int, up: float, **members: Any) -> Sample:
    """A sample after `out` messages were delivered to clients."""
    traffic = Traffic(bytes_in=2 * out, bytes_out=10 * out, messages_in=out // 2, messages_out=out, dropped=1)
    ring = Traffic(bytes_in=out, bytes_out=3 * out, dropped=2)
    return sample(uptime_s=up, mqtt=traffic, overlay=ring, cpu_s=up / 4, **members)


def test_one_start_has_its_totals_and_rates(spark: SparkSession) -> None:
    samples = [
        sample_after(300, 6.0, number=9, memory_bytes=5, subscriptions=1, topics=0, fanout=3, dispatching="guided"),
        sample_after(100, 1.0, number=2, memory_bytes=9, subscriptions=4, topics=7, dispatching="direct"),
    ]
    (row,) = rows(by_peer(stored(spark, samples)))
    assert row["dispatching"] == "guided 3"
    expected = {
        "starts": 1, "tot_msg": 300, "published": 150, "client_in_bytes": 600, "client_out_bytes": 3000,
        "ring_in_bytes": 300, "ring_out_bytes": 900, "in_bytes": 900, "out_bytes": 3900, "dropped": 3,
        "run_time": 6, "cpu_time": 1.5, "memory_usage": 5, "memory_peak": 9, "tot_sub": 4, "tot_topic": 7,
        "msg_rate": 40, "in_byte_speed": 120, "out_byte_speed": 520, "cpu_share": 0.25,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected


def test_counters_of_several_starts_are_added(spark: SparkSession) -> None:
    samples = [
        sample_after(100, 1.0, number=0, boot=7, pid=1, at=50.0),
        sample_after(300, 5.0, number=1, boot=7, pid=1, at=54.0),
        sample_after(10, 1.0, number=0, boot=3, pid=2, at=60.0),  # the later start, although its boot is lower
        sample_after(20, 2.0, number=1, boot=3, pid=2, at=61.0),
    ]
    (row,) = rows(by_peer(stored(spark, samples)))
    assert (row["starts"], row["tot_msg"], row["run_time"], row["pid"]) == (2, 320, 7, 2)
    assert row["msg_rate"] == (200 + 10) / (4 + 1)


def test_single_sample_has_no_rate(spark: SparkSession) -> None:
    (row,) = rows(by_peer(stored(spark, [sample_after(100, 1.0)])))
    assert row["tot_msg"] == 100
    assert not {"msg_rate", "in_byte_speed", "out_byte_speed", "cpu_share"} & set(row)


def test_peers_and_runs_have_separate_rows(spark: SparkSession) -> None:
    samples = [
        sample_after(1, 1.0),
        sample_after(2, 1.0, peer=1),
        sample_after(4, 1.0, run="s"),
        sample_after(8, 2.0, run="s"),
    ]
    assert sorted(row["tot_msg"] for row in rows(by_peer(stored(spark, samples)))) == [1, 2, 8]


def test_largest_counters_do_not_overflow(spark: SparkSession) -> None:
    most = (1 << 63) - 1
    samples = [sample(peer=peer, mqtt=Traffic(bytes_in=most), overlay=Traffic(bytes_in=most)) for peer in (0, 0, 1)]
    assert [row["in_bytes"] for row in rows(by_peer(stored(spark, samples)))] == [2.0**64] * 2
