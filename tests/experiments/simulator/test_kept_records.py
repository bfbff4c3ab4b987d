"""Each check of the records by partition finds the fault that it is for."""

from __future__ import annotations

import pytest

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.kept_records import records_of
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.overlay.core.ids import key_of, nearness
from ringmq.overlay.core.timing import LAN
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.messaging.config import LAN as ROLES
from ringmq.peer.replication.record import RecordKind, SharedRecord
from ringmq.peer.replication.space import key_of_partition

FILTER = "a/+"
PARTITION = partition_of("a")


class Scene:
    """A ring with a subscriber."""

    def __init__(self) -> None:
        self.world = PubSubWorld(1, LAN, config=ROLES)
        settled_ring(self.world, 8)
        self.subscriber = self.world.peers()[0]
        self.world.subscribe(self.subscriber, FILTER)
        self.world.run(1.0)
        self.checks = self.world.pubsub_checks
        key = key_of_partition(PARTITION)
        self.by_distance = sorted(self.world.peers(), key=lambda node: nearness(key, node.peer.id))

    @property
    def coordinator(self) -> PubSubNode:
        return self.by_distance[0]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def engine_of(node: PubSubNode) -> PartitionedEngine:
    assert isinstance(node.core, PartitionedEngine)
    return node.core


def retained(topic: str) -> SharedRecord:
    return SharedRecord(RecordKind.RETAINED, topic, None, (1, 1), False)


def test_a_filter_with_wildcards_is_kept_at_its_literal_prefix(scene: Scene) -> None:
    assert abs(key_of_partition(PARTITION) - key_of("a")) < 1 << 117
    records = records_of(scene.coordinator.core)
    assert list(records.partitions()) == [PARTITION]
    assert records.entries(PARTITION) == {(FILTER, scene.subscriber.peer.id)}
    assert records.has_entry(FILTER, scene.subscriber.peer.id)
    assert not records.has_entry(FILTER, scene.coordinator.peer.id + 1)


def test_coordinator_and_shadows_hold_equal_records(scene: Scene) -> None:
    scene.checks.settled()
    held = [records_of(node.core).present(PARTITION) for node in scene.by_distance]
    assert len(held[0]) == 1
    assert held[: ROLES.shadows + 1] == [held[0]] * (ROLES.shadows + 1)
    assert not any(held[ROLES.shadows + 1 :])


def test_entry_without_a_subscription_in_a_partition_is_found(scene: Scene) -> None:
    del scene.subscriber.clients.filters[FILTER]
    with pytest.raises(InvariantBrokenError, match="wrong entries"):
        scene.checks.settled()


def test_shadow_of_a_partition_that_differs_is_found(scene: Scene) -> None:
    engine_of(scene.by_distance[1]).replicas.take(PARTITION, retained("a"), scene.world.now)
    with pytest.raises(InvariantBrokenError, match="shadow differs"):
        scene.checks.settled()


def test_partition_without_a_coordinator_is_found(scene: Scene) -> None:
    engine_of(scene.coordinator).replicas.acting[PARTITION] = 0
    with pytest.raises(InvariantBrokenError, match="no coordinator"):
        scene.checks.settled()


def test_partition_with_two_coordinators_is_found(scene: Scene) -> None:
    engine_of(scene.by_distance[1]).replicas.acting[PARTITION] = 1
    with pytest.raises(InvariantBrokenError, match="2 coordinators"):
        scene.checks.settled()


def test_partition_held_by_other_peers_is_found(scene: Scene) -> None:
    engine_of(scene.by_distance[-1]).replicas.take(PARTITION, retained("a"), scene.world.now)
    with pytest.raises(InvariantBrokenError, match="held by others"):
        scene.checks.settled()


def test_suback_before_the_shadows_of_the_partition_hold_the_entry_is_found(scene: Scene) -> None:
    key = (RecordKind.ENTRY, FILTER, scene.subscriber.peer.id)
    subscription = scene.subscriber.clients.filters[FILTER]
    for node in scene.by_distance[:2]:
        engine_of(node).replicas.forget(PARTITION, key)
    with pytest.raises(InvariantBrokenError, match="held by 1"):
        scene.checks.acknowledged(subscription)
    for node in scene.by_distance[:2]:
        scene.checks.crashed(node)
    scene.checks.acknowledged(subscription)


def test_a_ring_with_fewer_peers_than_copies_has_fewer_shadows() -> None:
    world = PubSubWorld(1, LAN, config=ROLES)
    settled_ring(world, 3)
    *others, away = world.peers()
    world.pause(away)
    world.run(10.0)
    world.subscribe(others[0], FILTER)
    world.run(11.0)
    subscription = others[0].clients.filters[FILTER]
    assert subscription.acked_at is not None, "two peers are left, and both have it"
    engine_of(others[1]).replicas.forget(PARTITION, (RecordKind.ENTRY, FILTER, others[0].peer.id))
    with pytest.raises(InvariantBrokenError, match="held by 1 instead of 2"):
        world.pubsub_checks.acknowledged(subscription)
