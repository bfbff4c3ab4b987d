"""Stress of peers and links: known trees, and random trees compared with plain Python."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.jobs.tables.columns import STRESS
from ringmq.collector.jobs.tables.stress import stress
from ringmq.logger.records import Delivery
from tests.collector.making import PEERS, delivery, rows, stored


def table(spark: SparkSession, records: list[Delivery]) -> dict[tuple[str, str], dict[str, Any]]:
    found = stress(stored(spark, records))
    assert found.columns == STRESS.names
    return {(row["run"], row["dispatching"]): row for row in rows(found)}


def tree(sequence: int, parents: dict[int, int], **members: Any) -> list[Delivery]:
    """The records of one message that was published at peer 0; `parents` maps each peer to its sender."""
    hops = {0: 0}
    for peer, parent in parents.items():
        hops[peer] = hops[parent] + 1
    sends = Counter(parents.values())
    return [
        delivery(peer, sequence=sequence, sender=PEERS[parents.get(peer, 0)], hops=hop, sends=sends[peer], **members)
        for peer, hop in hops.items()
    ]


def test_star_and_chain(spark: SparkSession) -> None:
    star, chain = {1: 0, 2: 0, 3: 0}, {1: 0, 2: 1}
    (row,) = table(spark, tree(1, star) + tree(2, chain)).values()
    assert row == {
        "run": "r", "dispatching": "direct",
        "messages": 2, "peers": 4, "links": 4,
        "node_stress_mean": 5 / 7, "node_stress_max": 3, "busiest_peer": 4 / 5,
        "link_stress_mean": 1, "link_stress_max": 1, "busiest_link": 2 / 5,
        "depth_mean": 1.5, "depth_max": 2,
        "duplicates": 0, "duplicate_share": 0,
    }  # fmt: skip


def test_duplicates_over_the_same_and_another_link(spark: SparkSession) -> None:
    """A duplicate over the same link, which adds to its stress, and a duplicate over another link."""
    records = tree(1, {1: 0, 2: 0})
    records.append(delivery(1, sequence=1, sender=PEERS[0], hops=1, duplicate=True))
    records.append(delivery(2, sequence=1, sender=PEERS[1], hops=2, duplicate=True))
    (row,) = table(spark, records).values()
    assert (row["duplicates"], row["duplicate_share"]) == (2, 0.5)
    assert (row["link_stress_mean"], row["link_stress_max"], row["links"]) == (4 / 3, 2, 3)
    assert row["node_stress_mean"] == 2 / 3
    assert row["depth_max"] == 2


def test_messages_are_identified_by_publisher_and_start(spark: SparkSession) -> None:
    records = [delivery(origin=origin, origin_boot=boot, sequence=1) for origin in (0, 1) for boot in (1, 2)]
    (row,) = table(spark, records).values()
    assert row["messages"] == 4


def test_message_that_crossed_no_link(spark: SparkSession) -> None:
    (row,) = table(spark, [delivery()]).values()
    assert (row["messages"], row["links"], row["depth_max"], row["node_stress_mean"]) == (1, 0, 0, 0)
    unknown = {"busiest_link", "busiest_peer", "link_stress_mean", "link_stress_max", "duplicate_share"}
    assert not unknown & set(row)


def test_runs_and_dispatchings_have_separate_rows(spark: SparkSession) -> None:
    records = tree(1, {1: 0}) + tree(1, {1: 0, 2: 1}, dispatching="guided") + tree(1, {1: 0}, run="s")
    assert {key: row["depth_max"] for key, row in table(spark, records).items()} == {
        ("r", "direct"): 1,
        ("r", "guided"): 2,
        ("s", "direct"): 1,
    }


def test_no_deliveries_give_no_rows(spark: SparkSession) -> None:
    assert table(spark, []) == {}


def by_hand(records: list[Delivery]) -> dict[str, float]:
    """The expected row, computed in plain Python."""
    messages: dict[tuple[str, int, int], list[Delivery]] = {}
    for record in records:
        messages.setdefault((record.origin, record.origin_boot, record.sequence), []).append(record)
    crossed = [record for record in records if record.hops]
    on_links = Counter(
        (record.origin, record.origin_boot, record.sequence, record.sender, record.peer) for record in crossed
    )
    links = Counter((record.sender, record.peer) for record in crossed)
    sends: Counter[str] = Counter()
    for record in records:
        sends[record.peer] += record.sends
    duplicates = sum(record.duplicate for record in records)
    return {
        "messages": len(messages),
        "peers": len({record.peer for record in records}),
        "links": len(links),
        "node_stress_mean": sum(sends.values()) / (len(records) - duplicates),
        "node_stress_max": max(record.sends for record in records),
        "busiest_peer": max(sends.values()) / sum(sends.values()),
        "link_stress_mean": len(crossed) / len(on_links),
        "link_stress_max": max(on_links.values()),
        "busiest_link": max(links.values()) / len(crossed),
        "depth_mean": sum(max(record.hops for record in copies) for copies in messages.values()) / len(messages),
        "depth_max": max(record.hops for record in records),
        "duplicates": duplicates,
        "duplicate_share": duplicates / len(crossed),
    }


@pytest.mark.parametrize("seed", range(3))
def test_random_trees_agree_with_plain_python(spark: SparkSession, seed: int) -> None:
    chance = Random(seed)
    runs: dict[str, list[Delivery]] = {}
    for number in range(12):
        records = runs[f"run-{number}"] = []
        for sequence in range(chance.randint(1, 40)):
            parents = {peer: chance.randrange(peer) for peer in range(1, chance.randint(2, 12))}
            records_of_tree = tree(sequence, parents, run=f"run-{number}", origin_boot=chance.randint(1, 2))
            for record in chance.sample(records_of_tree[1:], chance.randint(0, len(records_of_tree) - 1)):
                members = {"sender": chance.choice((record.sender, PEERS[15])), "hops": record.hops, "duplicate": True}
                peer = PEERS.index(record.peer)
                copy = delivery(peer, sequence=sequence, run=record.run, origin_boot=record.origin_boot, **members)
                records_of_tree += [copy] * chance.randint(0, 2)
            records += records_of_tree
    found = table(spark, [record for records in runs.values() for record in records])
    for run, records in runs.items():
        row = found[run, "direct"]
        assert {name: row[name] for name in by_hand(records)} == pytest.approx(by_hand(records)), run
