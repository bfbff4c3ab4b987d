"""The table of the peers."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.jobs.tables.columns import PER_PEER
from ringmq.collector.jobs.tables.per_peer import by_peer, per_peer
from ringmq.logger.records import Record, Traffic
from tests.collector.making import PEERS, delivery, facts, latencies, rows, sample


def table(spark: SparkSession, *records: Record) -> list[dict[str, Any]]:
    found = per_peer(by_peer(facts(spark, records)))
    assert found.columns == PER_PEER.names
    order = ("peer", "total", "average")
    return sorted(rows(found), key=lambda row: (row["run"], order.index(row["row"]), row.get("number", 0)))


def test_total_and_average_follow_the_peers(spark: SparkSession) -> None:
    def sample_of(peer: int, out: int, up: float) -> Record:
        traffic = Traffic(bytes_in=out, messages_out=out)
        return sample(peer=peer, uptime_s=up, mqtt=traffic, memory_bytes=out, subscriptions=peer)

    peers = table(spark, sample_of(1, 10, 1.0), sample_of(1, 40, 11.0), sample_of(2, 5, 2.0), sample_of(2, 15, 12.0))
    assert [row["row"] for row in peers] == ["peer", "peer", "total", "average"]
    assert [row.get("peer") for row in peers] == [PEERS[1], PEERS[2], None, None]
    assert [row.get("number") for row in peers] == [1, 2, None, None]
    assert [row["tot_msg"] for row in peers] == [40, 15, 55, 27.5]
    assert [row["in_bytes"] for row in peers] == [40, 15, 55, 27.5]
    assert [row["msg_rate"] for row in peers] == [3, 1, 4, 2]
    assert [row["memory_usage"] for row in peers] == [40, 15, 55, 27.5]
    assert [row["tot_sub"] for row in peers] == [1, 2, 3, 1.5]
    assert [row["run_time"] for row in peers] == [11, 12, 12, 11.5]


def test_total_is_exact_for_large_counters(spark: SparkSession) -> None:
    """Even where floating point numbers have no spare bit."""
    counted = [(1 << 52) + 1, (1 << 51) + 3, 5]
    records = [sample(peer=peer, mqtt=Traffic(messages_out=out)) for peer, out in enumerate(counted)]
    total = next(row for row in table(spark, *records) if row["row"] == "total")
    assert int(total["tot_msg"]) == sum(counted)


@pytest.mark.parametrize(
    ("address", "listeners", "ip", "port"),
    [
        ("10.0.0.1:4883", {"mqtt_ws": "10.0.0.1:80", "mqtt": "10.0.0.1:1883"}, "10.0.0.1", "1883"),
        ("[::1]:4883", {"mqtt_tls": "[::1]:8883"}, "::1", "8883"),
        ("edge.example:4883", {}, "edge.example", None),
        ("odd", {"mqtt": "odd"}, "odd", ""),
    ],
)
def test_ip_and_port_of_a_peer(
    spark: SparkSession, address: str, listeners: dict[str, str], ip: str, port: str | None
) -> None:
    row = table(spark, sample(address=address, listeners=listeners))[0]
    assert (row["ip"], row.get("port"), row["pid"]) == (ip, port, "100")


def test_latencies_count_only_deliveries_to_clients(spark: SparkSession) -> None:
    ms = 1_000_000
    peers = table(
        spark,
        sample(0),
        sample(1),
        sample(2),
        delivery(0, latency_ns=0),
        delivery(0, latency_ns=3 * ms, hops=1),
        delivery(0, latency_ns=-9 * ms, hops=2),
        delivery(0, latency_ns=500 * ms, hops=1, clients=0),
        delivery(0, latency_ns=500 * ms, hops=1, duplicate=True),
        latencies(1, count=4, sum_s=0.012, min_s=-1.0, hops=3),
        latencies(1, count=2, sum_s=0.0, hops=0),
        delivery(1, latency_ns=ms, hops=1),
    )
    first, second, none, total, average = peers
    assert [row.get("measured") for row in peers] == [3, 7, 0, 10, pytest.approx(10 / 3)]
    assert [row.get("negative") for row in peers] == [1, 1, 0, 2, pytest.approx(2 / 3)]
    assert first["avg_latency"] == pytest.approx(-0.002)
    assert first["avg_ring_latency"] == pytest.approx(-0.003)
    assert second["avg_latency"] == pytest.approx(0.013 / 7)
    assert second["avg_ring_latency"] == pytest.approx(0.013 / 5)
    assert "avg_latency" not in none
    # The total is the mean over all messages, the average the mean over the peers with a value.
    assert total["avg_latency"] == pytest.approx((0.013 - 0.006) / 10)
    assert average["avg_latency"] == pytest.approx((-0.002 + 0.013 / 7) / 2)


def test_peer_without_samples_has_its_latencies(spark: SparkSession) -> None:
    row = table(spark, delivery(3, latency_ns=1_000_000))[0]
    assert (row["peer"], row["measured"], row["avg_latency"]) == (PEERS[3], 1, 0.001)
    assert not {"dispatching", "tot_msg", "ip"} & set(row)


def test_peer_that_only_passes_on_is_in_the_table(spark: SparkSession) -> None:
    (peer, *_) = table(spark, delivery(peer=2, clients=0, sends=3))
    assert (peer["row"], peer["peer"], peer["measured"], peer.get("avg_latency")) == ("peer", PEERS[2], 0, None)


def test_runs_have_separate_rows(spark: SparkSession) -> None:
    peers = table(spark, sample(run="a"), sample(1, run="a"), sample(run="b"), delivery(run="b"))
    assert [(row["run"], row["row"]) for row in peers] == [
        ("a", "peer"), ("a", "peer"), ("a", "total"), ("a", "average"),
        ("b", "peer"), ("b", "total"), ("b", "average"),
    ]  # fmt: skip
    assert [row["measured"] for row in peers if row["row"] == "total"] == [0, 1]
