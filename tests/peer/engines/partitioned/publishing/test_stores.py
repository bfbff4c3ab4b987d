"""Retained messages on their way, while routes change."""

from __future__ import annotations

import pytest

from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.replication.space import key_of_partition
from tests.peer.conftest import Net, eight


@pytest.fixture
def net() -> Net:
    return eight(PubSubConfig(), engine=PartitionedEngine)


@pytest.mark.parametrize("place", [0, 1, 2, 5])
def test_a_retained_message_and_a_subscription_at_the_same_time_do_not_wait_for_each_other(
    net: Net, place: int
) -> None:
    """The publisher is coordinator, shadow, or neither: a shadow confirms copies, and a publisher routes."""
    publisher = net.members[net.owners(key_of_partition(partition_of("a")), 8)[place].id]
    subscriber = next(member for member in net.members.values() if member is not publisher)
    publisher.publish("a", b"0", retain=True)
    net.run(1.0)
    assert len(publisher.reasons) == 1
    for number in range(1, 6):
        done = subscriber.subscribe(f"a/{number}/#", "a") if number == 1 else subscriber.subscribe(f"a/{number}/#")
        publisher.publish("a", str(number).encode(), retain=True)
        net.run(0.2)
        assert len(publisher.reasons) == number + 1
        assert done
    assert publisher.core.counters.not_retained == 0
