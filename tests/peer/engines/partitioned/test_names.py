"""The hash of names is a setting of the ring: another seed moves names, and what is on disks moves with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import ID_BITS, MAX_HASH_SEED, key_of
from ringmq.peer.engines.partitioned.names import NameHash, fingerprint_of, partition_of
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.config import PubSubConfig
from tests.peer.conftest import Net

TOPICS = [f"hall/{number}/lamp" for number in range(20)]
SEEDED = replace(PubSubConfig(), hash_seed=11)


def test_without_a_seed_the_hash_is_that_of_keys() -> None:
    for name in ("", "a", "ü/#", *TOPICS):
        assert partition_of(name) == key_of(name) >> (ID_BITS - 12)
        assert fingerprint_of(name) == key_of(name) >> (ID_BITS - 64)


def test_another_seed_moves_nearly_all_names() -> None:
    first, second = NameHash(1), NameHash(MAX_HASH_SEED)
    moved = [name for name in TOPICS if first.partition_of(name) != second.partition_of(name)]
    assert len(moved) >= len(TOPICS) - 1
    assert all(first.fingerprint_of(name) != second.fingerprint_of(name) for name in TOPICS)


def body_of(topic: str) -> bytes:
    return encode_body(Message(topic, topic.encode()), 0.0)


def ring(config: PubSubConfig, folder: Path | None) -> Net:
    net = Net(config, folder)
    for number in range(4):
        net.add((number << 126) + 5)
    net.run(1.0)
    return net


def test_a_ring_with_a_seed_serves_all_kinds_of_filters() -> None:
    net = ring(SEEDED, None)
    reader, publisher, *_ = net.members.values()
    filters = ["hall/1/lamp", "hall/+/lamp", "#", "$share/g/hall/#"]
    done = reader.subscribe(*filters)
    net.run(5.0)
    assert sorted(done) == sorted(filters)
    for topic in TOPICS:
        publisher.publish(topic, topic.encode(), 1)
    net.run(5.0)
    assert {topic for topic, _ in reader.got} == set(TOPICS)
    assert len(publisher.reasons) == len(TOPICS)
    described = publisher.core.topic_status("hall/1/lamp", lambda key: None)
    assert described is not None
    partitions = {partition["partition"] for partition in described["partitions"]}
    assert NameHash(11).partition_of("hall/1/lamp") in partitions


@pytest.mark.parametrize(("before", "after"), [(PubSubConfig(), SEEDED), (SEEDED, PubSubConfig())])
def test_what_is_on_disks_is_found_after_the_seed_has_changed(
    tmp_path: Path, before: PubSubConfig, after: PubSubConfig
) -> None:
    net = ring(before, tmp_path)
    for topic in TOPICS:
        next(iter(net.members.values())).publish(topic, body_of(topic), retain=True)
    net.run(5.0)
    net.crash(*net.members.values())
    net = ring(after, tmp_path)
    net.run(30.0)
    reader = next(iter(net.members.values()))
    reader.subscribe("hall/#", TOPICS[3])
    net.run(10.0)
    assert reader.kept == {topic: body_of(topic) for topic in TOPICS}
    for member in net.members.values():
        for partition, record in member.core.replicas:
            assert partition == NameHash(after.hash_seed).partition_of_filter(record.name)
        assert member.core.counters.false_records == 0
    net.crash(*net.members.values())
