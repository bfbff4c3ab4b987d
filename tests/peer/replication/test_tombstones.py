"""What was cleared stays cleared, whoever comes back with it from his disk; and costs next to nothing."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace

import pytest

from ringmq.peer.messaging.config import LAN
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.record import Number, RecordKind, SharedRecord
from ringmq.peer.replication.tombstones import Tombstones
from tests.peer.conftest import Member, Net


def message(number: Number, topic: str = "a") -> SharedRecord:
    return SharedRecord(RecordKind.RETAINED, topic, None, number, False, body=b"x")


def clearing(number: Number, topic: str = "a") -> SharedRecord:
    return SharedRecord(RecordKind.RETAINED, topic, None, number, True)


def test_what_came_before_a_clearing_is_overruled(state: MessagingContext) -> None:
    cleared = Tombstones(state)
    cleared.heard(clearing((5, 3)))
    assert cleared.overrule(message((5, 2))) == clearing((5, 3))
    assert cleared.overrule(message((5, 4))) == message((5, 4))
    assert cleared.overrule(clearing((4, 9))) == clearing((5, 3)), "an older clearing does not take its place"
    assert cleared.overrule(message((1, 1), "b")) == message((1, 1), "b")
    entry = SharedRecord(RecordKind.ENTRY, "a", state.me, (1, 0), False)
    assert cleared.overrule(entry) is entry
    cleared.heard(message((6, 0)))
    assert cleared.number_of("a") is None
    assert len(cleared) == 0


class Forgetting:
    """A disk that notes what need not be known any more."""

    pending = False

    def __init__(self) -> None:
        self.forgotten: list[float] = []

    def keep(self, topic: str, record: SharedRecord) -> None: ...
    def leave(self, topic: str) -> None: ...
    def forget(self, age_s: float) -> None:
        self.forgotten.append(age_s)


def test_the_oldest_are_forgotten_first(state: MessagingContext) -> None:
    disk = state.disk = Forgetting()
    state.config = replace(LAN, max_cleared=2, cleared_s=10.0)
    cleared = Tombstones(state)
    for number, topic in enumerate("abac"):
        state.clock.now = float(number)
        cleared.heard(clearing((number, 0), topic))
    assert [topic for topic in "abc" if cleared.number_of(topic)] == ["a", "c"]
    assert disk.forgotten == [2.0], "b, which was cleared at 1"
    state.clock.now = 5.0
    cleared.heard(clearing((9, 0), "c"))
    state.clock.now = 12.5
    cleared.sweep()
    assert [topic for topic in "abc" if cleared.number_of(topic)] == ["c"]
    assert disk.forgotten == [2.0, 10.5], "a, which was cleared at 2"
    cleared.sweep()
    assert disk.forgotten == [2.0, 10.5]


def records_of(net: Net) -> list[SharedRecord]:
    """All retained messages and their tombstones in all partitions."""
    return [record for member in net.members.values() for _, record in member.core.replicas]


def _cleared_while_one_was_away(net: Net) -> tuple[Member, Member]:
    """A publisher of `a`, and a shadow of it that still has on its disk what was cleared long ago."""
    publisher, shadow = net.others("a", "#")[0], net.owning("a")[1]
    publisher.publish("a", b"kept", retain=True)
    net.run(1.0)
    net.crash(shadow)
    net.run(5.0)
    publisher.publish("a", b"", retain=True)
    net.run(net.config.idle_s + 2 * net.config.tomb_s)
    assert records_of(net) == [], "no record of a topic that is gone"
    return publisher, shadow


def _none_is_kept(net: Net) -> None:
    reader = net.others("a")[-1]
    done = reader.subscribe("a", "+")
    net.run(2.0)
    assert sorted(done) == ["+", "a"]
    assert not reader.kept.get("a")


def test_who_was_away_does_not_bring_it_back(lasting: Net) -> None:
    _, shadow = _cleared_while_one_was_away(lasting)
    (back,) = lasting.restart(shadow)
    lasting.run(2.0)
    assert back.core.cleared.number_of("a") is not None, "it has learnt that it is gone"
    _none_is_kept(lasting)
    lasting.run(2 * lasting.config.tomb_s)
    (again,) = lasting.restart(back)
    lasting.run(2.0)
    assert again.core.cleared.number_of("a") is not None, "and still knows"
    _none_is_kept(lasting)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_whoever_is_left_of_those_who_knew_says_so(lasting: Net, place: int) -> None:
    """Of the three that had a part in it one comes back with the message, and one with the clearing."""
    publisher = lasting.others("a", "#")[0]
    publisher.publish("a", b"kept", retain=True)
    lasting.run(1.0)
    stale = lasting.owning("a")[place]
    lasting.crash(stale)
    lasting.run(5.0)
    publisher.publish("a", b"", retain=True)
    lasting.run(2 * lasting.config.tomb_s)
    everybody = [*lasting.members.values(), stale]
    lasting.restart(*everybody)
    lasting.run(5.0)
    _none_is_kept(lasting)


def test_all_that_was_cleared_is_known_after_a_crash_of_all(lasting: Net) -> None:
    publisher, shadow = _cleared_while_one_was_away(lasting)
    lasting.restart(*lasting.members.values(), shadow)
    lasting.run(5.0)
    _none_is_kept(lasting)
    publisher = lasting.others("a", "#")[0]
    publisher.publish("a", b"new", retain=True)
    lasting.run(1.0)
    late = lasting.others("a")[1]
    late.subscribe("a")
    lasting.run(1.0)
    assert late.kept == {"a": b"new"}, "what is retained after that is kept"


def test_the_memory_of_cleared_topics_falls_back(state: MessagingContext) -> None:
    """A tenth of them, alone."""
    cleared, count = Tombstones(state), state.config.max_cleared // 10
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(2 * count):
            cleared.heard(clearing((number, 7), f"some/topic/{number}"))
        for number in range(count):
            cleared.heard(message((2 * count, 7), f"some/topic/{number}"))
        cleared.sweep()
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cleared) == count
    assert held_bytes / count < 80


def test_no_record_is_left_of_a_cleared_topic(net: Net) -> None:
    publisher = next(iter(net.members.values()))
    for body in (b"x", b""):
        for number in range(200):
            publisher.publish(f"t/{number}", body, retain=True)
        net.run(2.0)
    assert len(records_of(net)) == 200 * (net.config.shadows + 1)
    net.run(3 * net.config.tomb_s)
    assert records_of(net) == []
    assert sum(len(member.core.cleared) for member in net.members.values()) == 200 * (net.config.shadows + 1)
