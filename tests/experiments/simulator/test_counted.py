"""Messages are counted, and only those of the engine."""

from __future__ import annotations

import pytest

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator import counted
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.counted import CountedWorld, MessageCount
from ringmq.overlay.core.timing import LAN
from ringmq.peer.messaging.config import LAN as ROLES
from ringmq.peer.messaging.publication import put_together


@pytest.fixture
def world() -> CountedWorld:
    made = CountedWorld(1, LAN, config=ROLES)
    settled_ring(made, 4)
    return made


def test_messages_of_the_ring_itself_do_not_count(world: CountedWorld) -> None:
    world.run(20.0)
    assert world.messages > 50
    assert world.counted() == MessageCount()


def test_each_message_of_a_payload_counts() -> None:
    traffic = MessageCount()
    (payload,) = put_together([b"Cone", b"Ctwo"])
    traffic.add(payload)
    traffic.add(b"Cthree")
    assert traffic == MessageCount(3, len(payload) + 6, 2)


def test_a_message_to_another_peer_counts(world: CountedWorld) -> None:
    first, other = world.members()[:2]
    world.subscribe_and_wait(other, "a")
    before = world.counted()
    world.publish_and_wait(first, "a", b"x", other)
    assert (world.counted() - before).messages > 0
    assert other.clients.got == {"a"}


def test_an_operation_without_end_is_reported(world: CountedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "PATIENCE_S", 0.5)
    first, other = world.members()[:2]
    with pytest.raises(InvariantBrokenError, match=r"more than 0.5 s to bring b"):
        world.publish_and_wait(first, "b", b"x", other)
