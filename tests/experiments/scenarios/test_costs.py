"""The cost of an event is its own, and the run without it is the measure."""

from __future__ import annotations

import os
from functools import partial
from itertools import count

import pytest

from ringmq.experiments.scenarios import costs as scenario
from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.scenarios.costs import EARLIER_REQUESTS, EVENTS, UPKEEP, EventCost, costs, in_a_copy, table
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.counted import CountedWorld, MessageCount
from ringmq.overlay.core.timing import LAN
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.partitioned.names import partition_of, prefixes_of
from ringmq.peer.engines.partitioned.publishing.holdings import RENEWALS
from ringmq.peer.messaging.config import LAN as ROLES


def test_each_event_has_its_cost() -> None:
    rows = {row.event: row for row in costs(3, 1, topics=2, count=2)}
    assert list(rows) == [*[event.name for event in EVENTS], UPKEEP]
    new_topic, later, *others = [rows[event.name] for event in EVENTS]
    assert (new_topic.messages, later.messages) == (0, 0), "a publisher in a small ring holds all routes"
    assert all(row.bytes > row.messages > 0 for row in others)
    # SUBSCRIBE, two publications with their acknowledgements, UNSUBSCRIBE.
    request = rows["request with a fresh reply topic"].messages
    assert request >= rows["subscribe to a topic"].messages + 4 + rows["unsubscribe"].messages


def test_a_fresh_reply_topic_costs_the_same_in_any_ring_after_some_requests() -> None:
    # A new filter costs 2 messages for each publisher's peer: a request took 42 messages between 7 peers.
    for nodes in (3, 7):
        (later,) = costs(nodes, 1, topics=200, count=3, only=f"after {EARLIER_REQUESTS}")
        assert 4 <= later.messages <= 8, "two publications with their acknowledgements, and the retained message"


@pytest.mark.parametrize("nodes", [3, 7])
def test_two_peers_renew_everything_with_three_payloads_in_a_period(nodes: int) -> None:
    """The second peer sends its renewals with the answers to those of the first. It was more than four."""
    few, many = [costs(nodes, 1, topics=topics, count=1, only=UPKEEP)[0] for topics in (2, 500)]
    assert few.payloads <= 3.2 * RENEWALS / ROLES.lease_s
    assert many.payloads <= few.payloads + 0.1, "a topic costs no upkeep"


def test_only_the_named_events_are_measured() -> None:
    assert [row.event for row in costs(3, 1, topics=2, count=1, only="unsub")] == ["unsubscribe"]


def test_a_longer_time_costs_nothing_without_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    """MessageCount that would be there without the event is not part of its cost."""
    monkeypatch.setattr(scenario, "EVENTS", EVENTS[4:5])
    short = costs(3, 1, topics=2, count=2)[0]
    monkeypatch.setattr(scenario, "SETTLE_S", scenario.SETTLE_S + 0.5)
    long = costs(3, 1, topics=2, count=2)[0]
    # A batch that comes with a renewal has some bytes less than one alone.
    assert (long.messages, long.payloads) == (short.messages, short.payloads)
    assert abs(long.bytes - short.bytes) < 0.05 * short.bytes


def test_a_copy_leaves_the_caller_as_it_is() -> None:
    runs = []

    def run() -> MessageCount:
        runs.append(os.getpid())
        return MessageCount(1, 2, 1)

    assert in_a_copy(run) == MessageCount(1, 2, 1)
    assert runs == []


def test_a_failure_in_a_copy_is_raised() -> None:
    def fail() -> MessageCount:
        raise InvariantBrokenError("broken there")

    def end() -> MessageCount:
        os._exit(3)

    with pytest.raises(InvariantBrokenError, match="broken there"):
        in_a_copy(fail)
    with pytest.raises(InvariantBrokenError, match="without an answer"):
        in_a_copy(end)


def test_table_has_a_line_for_each_event() -> None:
    rows = [
        EventCost(event="a", messages=1.25, payloads=1.0, bytes=100.0),
        EventCost(event="long", messages=2, payloads=2, bytes=3),
    ]
    lines = list(table(rows))
    assert [line.split() for line in lines] == [
        ["event", "messages", "payloads", "bytes"],
        ["a", "1.25", "1.00", "100"],
        ["long", "2.00", "2.00", "3"],
    ]
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize(("nodes", "topics"), [(3, 1), (7, 1), (50, 1000)])
def test_a_new_topic_whose_partitions_are_held_costs_its_publications_alone(nodes: int, topics: int) -> None:
    world = CountedWorld(1, LAN, config=ROLES)
    settled_ring(world, nodes)
    world.run(1.0)
    publisher, *receivers = world.members()[:3]
    for receiver in receivers:
        world.subscribe_and_wait(receiver, "new/+/x")
    # In a large ring a publisher holds everything of a coordinator once it uses some of its partitions.
    for number in range(topics):
        world.publish_body(publisher, f"used/{number}/{number}", b"x")
    world.run(world.now + 5.0)
    assert isinstance(publisher.core, PartitionedEngine)
    trusted = publisher.core.publisher.trust.trusted
    assert sum(trusted) > 0.95 * len(trusted)

    def fresh(form: str) -> str:
        """A new topic whose partitions are held."""
        topics = (form.format(number) for number in count())
        return next(topic for topic in topics if all(trusted[partition_of(prefix)] for prefix in prefixes_of(topic)))

    def run(topic: str | None) -> MessageCount:
        before = world.counted()
        if topic is not None:
            world.publish_body(publisher, topic, b"x")
        world.run(world.now + 1.5)
        return world.counted() - before

    at_rest = in_a_copy(partial(run, None))
    assert in_a_copy(partial(run, fresh("nobody/{}/x"))) - at_rest == MessageCount(0, 0)
    # Each receiver gets the message, and acknowledges it.
    assert (in_a_copy(partial(run, fresh("new/{}/x"))) - at_rest).messages == 2 * len(receivers)
