"""The status of an engine over partitions shows what it has, within bounds."""

from __future__ import annotations

import json

import msgspec
import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.mqtt_front.matching.topics import MAX_LEVELS
from ringmq.overlay.core.messages import MAX_HOST, Peer
from ringmq.overlay.queries import MAX_STATUS_BYTES
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.status_parts import MAX_NAME_CHARS, MAX_SHOWN
from ringmq.peer.replication.space import PARTITIONS, key_of_partition
from tests.peer.conftest import Member, Net, eight


@pytest.fixture
def net() -> Net:
    return eight(PubSubConfig(), engine=PartitionedEngine)


def holders_of(net: Net, name: str) -> list[Member]:
    """The coordinator and the shadows of the partition of a name."""
    owners = net.owners(key_of_partition(partition_of(name)), net.config.shadows + 1)
    return [net.members[peer.id] for peer in owners]


def test_status_shows_partitions_filters_and_counters(net: Net) -> None:
    subscriber = next(iter(net.members.values()))
    subscriber.subscribe("a", "b/+")
    net.run(1.0)
    coordinator, shadow, _ = holders_of(net, "a")
    status = coordinator.core.status(net.now, {"of_the_shell": 7})
    (shown,) = [row for row in status["partitions"]["shown"] if row["partition"] == partition_of("a")]
    assert (shown["role"], shown["entries"], shown["retained"]) == ("coordinator", 1, 0)
    assert [(row["id"], row["in_step"]) for row in shown["shadows"]] == [
        (peer.me.id.hex(), True) for peer in holders_of(net, "a")[1:]
    ]
    assert shown["reigning"] == coordinator.me.id.hex()
    assert status["counters"]["of_the_shell"] == 7
    assert status["counters"]["stream_batches"] > 0
    copied = shadow.core.status(net.now, {})["partitions"]
    assert [row["role"] for row in copied["shown"] if row["partition"] == partition_of("a")] == ["shadow"]
    entries = [member.core.status(net.now, {})["partitions"]["entries"] for member in net.members.values()]
    assert sum(entries) == 2 * (1 + net.config.shadows)
    assert subscriber.core.status(net.now, {})["subscribing"]["stages"]["in_force"] == 2
    json.dumps(status)


def test_status_shows_the_routes_that_a_publisher_holds(net: Net) -> None:
    subscriber, publisher = list(net.members.values())[:2]
    subscriber.subscribe("a")
    net.run(1.0)
    publisher.publish("a")
    publisher.publish("b/c")
    net.run(1.0)
    shown = publisher.core.status(net.now, {})["publishing"]
    assert (shown["topics_total"], shown["routes"]) == (2, 1)
    assert {(row["topic"], row["peers"], row["waiting"]) for row in shown["topics"]} == {("a", 1, 0), ("b/c", 0, 0)}
    coordinators = {row["id"]: row for row in shown["coordinators"]}
    assert set(coordinators) <= {member.me.id.hex() for member in net.members.values()}
    assert len(coordinators) == shown["coordinators_total"]
    assert sum(row["partitions"] for row in coordinators.values()) >= 4
    assert all(0 < row["trusted_s"] <= net.config.lease_s for row in coordinators.values())


def test_status_shows_topics_with_their_plans_and_waiting_messages(net: Net) -> None:
    subscriber, publisher = list(net.members.values())[:2]
    subscriber.subscribe("a")
    net.run(1.0)
    publisher.publish("a")
    status = publisher.core.status(net.now, {})["publishing"]
    assert [(row["topic"], row["peers"], row["waiting"]) for row in status["topics"]] == [("a", None, 1)]
    net.run(0.5)
    status = publisher.core.status(net.now, {})["publishing"]
    assert [(row["topic"], row["peers"], row["groups"], row["waiting"]) for row in status["topics"]] == [("a", 1, 0, 0)]
    assert status["topics"][0]["dispatch"] == "direct"
    assert status["trusted"] == status["held"] == PARTITIONS
    json.dumps(status)


def test_status_is_bounded(net: Net) -> None:
    member = next(iter(net.members.values()))
    member.subscribe(*[f"{number}/{'x' * 1000}" for number in range(2 * MAX_SHOWN)])
    net.run(5.0)
    status = member.core.status(net.now, {})
    assert status["subscribing"]["total"] == 2 * MAX_SHOWN
    assert len(status["subscribing"]["filters"]) == MAX_SHOWN
    assert all(len(row["filter"]) == MAX_NAME_CHARS + 1 for row in status["subscribing"]["filters"])
    assert len(status["partitions"]["shown"]) <= MAX_SHOWN


def test_owned_and_shadowed_partitions_of_all_peers_are_all_partitions(net: Net) -> None:
    for member in net.members.values():
        member.subscribe("a")
        member.publish("a")
    net.run(5.0)
    statuses = [member.core.status(net.now, {})["partitions"] for member in net.members.values()]
    assert sum(status["owned"] for status in statuses) == PARTITIONS
    assert sum(status["shadowed"] for status in statuses) == net.config.shadows * PARTITIONS
    assert {status["gathering"] for status in statuses} == {0}
    assert {status["out_of_step"] for status in statuses} == {0}
    assert {status["holders"] for status in statuses} == {8}, "all publish, and all hold all in a small ring"


def test_a_silent_shadow_is_out_of_step(net: Net) -> None:
    coordinator, shadow, _ = holders_of(net, "a")
    coordinator.subscribe("a")
    net.run(1.0)
    net.lost = lambda sender, receiver, message: receiver.id == shadow.me.id
    next(member for member in net.members.values() if member not in (coordinator, shadow)).subscribe("a")
    net.run(1.0)
    status = coordinator.core.status(net.now, {})["partitions"]
    assert [row["id"] for row in status["silent"]] == [shadow.me.id.hex()]
    assert shadow.me.id.hex() not in [row["id"] for row in status["shadows"]], "the next one has a copy instead"
    assert status["out_of_step"] == 0


def test_status_shows_topics_with_their_plans_and_the_coordinators_of_their_routes(net: Net) -> None:
    subscriber, publisher, *_ = net.members.values()
    subscriber.subscribe("a", "$share/g/a")
    net.run(1.0)
    publisher.publish("a")
    net.lost = lambda sender, receiver, message: True
    status = publisher.core.status(net.now, {})["publishing"]
    (topic,) = status["topics"]
    assert (topic["topic"], topic["peers"], topic["waiting"], topic["trusted_s"]) == ("a", None, 1, 0.0)
    net.lost = lambda sender, receiver, message: False
    net.run(1.0)
    status = publisher.core.status(net.now, {})["publishing"]
    (topic,) = status["topics"]
    assert (topic["dispatch"], topic["peers"], topic["groups"], topic["waiting"]) == ("direct", 1, 1, 0)
    assert 0 < topic["trusted_s"] <= net.config.lease_s
    assert (status["topics_total"], status["routes"], status["held"]) == (1, 2, PARTITIONS)
    assert status["trusted"] == sum(row["partitions"] for row in status["coordinators"]) == PARTITIONS
    assert (len(status["coordinators"]), status["coordinators_total"]) == (8, 8)
    net.lost = lambda sender, receiver, message: True
    net.run(net.config.lease_s + 1)
    assert publisher.core.status(net.now, {})["publishing"]["trusted"] < PARTITIONS


def test_status_of_a_topic_leads_to_its_subscribers(net: Net) -> None:
    subscriber = next(iter(net.members.values()))
    subscriber.subscribe("a/b", "a/+", "#", "c/#")
    net.run(1.0)
    coordinator = holders_of(net, "a/b")[0]
    about = coordinator.core.topic_status("a/b", lambda key: None)
    assert about is not None
    assert about["topic"] == "a/b"
    assert [row["partition"] for row in about["partitions"]] == [partition_of(name) for name in ("a/b", "a", "")]
    assert [row["filters"] for row in about["partitions"]] == [["a/b"], ["a/#"], ["#"]]
    held = about["partitions"][0]["held"]
    assert [row["filter"] for row in held["subscribers"]] == ["a/b"]
    away = coordinator.core.topic_status("a/b", lambda key: subscriber.me)
    assert away is not None
    assert away["partitions"][0]["nearer"]["id"] == subscriber.me.id.hex()
    assert coordinator.core.topic_status("a/+", lambda key: None) is None


def test_partitions_with_records_are_counted(net: Net) -> None:
    next(iter(net.members.values())).subscribe("a", "b")
    net.run(1.0)
    counts = [member.core.partitions() for member in net.members.values()]
    assert sum(coordinated for coordinated, _ in counts) == 2
    assert sum(copied for _, copied in counts) == 2 * net.config.shadows


def test_status_of_a_peer_that_nobody_needed_is_empty(net: Net) -> None:
    status = next(iter(net.members.values())).core.status(net.now, {})
    assert status["settings"] == {
        "dispatch": "direct", "fanout": None, "rules": 0, "shadows": 2, "lease_s": 3.0, "entry_s": 15.0,
    }  # fmt: skip
    assert status["partitions"]["shown"] == status["partitions"]["shadows"] == []
    assert {value for value in status["partitions"].values() if isinstance(value, int)} == {0}
    assert status["publishing"]["topics"] == status["publishing"]["coordinators"] == []
    assert {value for value in status["publishing"].values() if isinstance(value, int)} == {0}
    assert status["subscribing"]["total"] == 0
    assert status["queues"] == {"waiting_bytes": 0, "unacknowledged": 0, "peers_total": 0, "peers": []}
    assert not any(status["counters"].values())


def test_status_shows_the_tree_and_the_rule_of_a_topic() -> None:
    net = Net(PubSubConfig(dispatch=Choice("guided", 4), rules=(("a", Choice("guided", 2)),)))
    member = net.add(5)
    member.publish("a")
    member.publish("b")
    status = member.core.status(net.now, {})
    assert [topic["fanout"] for topic in status["publishing"]["topics"]] == [2, 4]
    assert (status["settings"]["fanout"], status["settings"]["rules"]) == (4, 1)


def test_status_shows_the_stages_of_filters(net: Net) -> None:
    subscriber = net.others("a", "b")[0]
    subscriber.subscribe("a")
    net.run(0.5)
    net.lost = lambda sender, receiver, message: sender.id == subscriber.me.id
    subscriber.subscribe("b")
    status = subscriber.core.status(net.now, {})["subscribing"]
    assert (status["total"], status["stages"]) == (
        2,
        {"asking": 1, "fetching": 0, "in_force": 1, "refused": 0, "changing": 0, "leaving": 0},
    )
    coordinator = net.owning("a")[0].me.id.hex()
    first, second = status["filters"]
    of_a_client = {"wide": False, "served_by": None}
    assert first == {"filter": "a", "stage": "in_force", "coordinator": coordinator, **of_a_client}
    assert (second["filter"], second["stage"]) == ("b", "asking")


def test_status_shows_receivers_that_owe_acknowledgements(net: Net) -> None:
    publisher, subscriber = net.others("a")[:2]
    subscriber.subscribe("a")
    publisher.publish("a")
    net.run(0.5)
    net.lost = lambda sender, receiver, message: receiver.id == subscriber.me.id
    for _ in range(net.config.window + 3):
        publisher.publish("a", b"four")
    queues = publisher.core.status(net.now, {})["queues"]
    assert (queues["peers_total"], queues["unacknowledged"]) == (1, net.config.window + 3)
    assert queues["waiting_bytes"] == (net.config.window + 3) * len(b"afour")
    assert queues["peers"] == [
        {"id": subscriber.me.id.hex(), "address": "here:1", "on_their_way": net.config.window, "behind": 3, "tries": 0}
    ]


def test_an_ended_subscription_is_not_shown(net: Net) -> None:
    subscriber = net.others("a")[0]
    subscriber.subscribe("a")
    net.run(0.5)
    subscriber.core.unsubscribe("a")
    net.run(2.0)
    about = net.owning("a")[0].core.topic_status("a", lambda key: None)
    assert about is not None
    held = about["partitions"][0]["held"]
    assert (held["subscribers_total"], held["subscribers"]) == (0, [])


@pytest.mark.parametrize("topic", ["a/#", "\0", "/" * 4000])
def test_an_invalid_topic_has_no_status(net: Net, topic: str) -> None:
    assert next(iter(net.members.values())).core.topic_status(topic, lambda key: None) is None


def large_net(count: int, step_bits: int) -> tuple[Net, list[Member]]:
    """Peers with the longest addresses and many shadows."""
    net = Net(PubSubConfig(shadows=8))
    members = [net.add(number << step_bits, boot=1 << 41) for number in range(count)]
    for member in members:
        member.me = Peer(member.me.id, "h" * MAX_HOST, 65535, member.me.boot)
    return net, members


def test_the_status_of_a_topic_is_bounded() -> None:
    """With the longest names, as deep as a topic can be, everywhere with subscribers and publishers."""
    net, members = large_net(12, 121)
    levels = ["\x01" * 20] * MAX_LEVELS
    for member in members:
        member.subscribe("#", *["/".join((*levels[:depth], "#")) for depth in range(1, MAX_LEVELS)])
        member.publish("a")
    net.run(5.0)
    for member in members:
        about = member.core.topic_status("/".join(levels), lambda key: members[0].me)
        assert about is not None
        assert len(msgspec.json.encode(about)) < MAX_STATUS_BYTES * 0.45
    held = [partition["held"] for partition in about["partitions"] if partition["held"] is not None]
    assert sum(len(copy["subscribers"]) for copy in held) == MAX_SHOWN


@pytest.mark.parametrize("sign", ["a", "\x01"])
def test_the_status_of_a_peer_is_bounded(sign: str) -> None:
    """Each peer has all roles of many topics, with the longest names."""
    net, members = large_net(12, 121)
    busy = members[0]
    name = sign * 1000
    for number in range(3 * MAX_SHOWN):
        busy.subscribe(f"{name}{number}")
    for member in members[1:]:
        member.subscribe("all")
    net.run(3.0)
    for number in range(3 * MAX_SHOWN):
        busy.publish(f"{name}{number}")
    busy.publish("all")
    net.run(3.0)
    for member in members:
        # Peers that owe an acknowledgement take as much as the coordinators, of which there are few here.
        assert len(msgspec.json.encode(member.core.status(net.now, {}))) < MAX_STATUS_BYTES * 0.4
    status = busy.core.status(net.now, {})
    assert status["subscribing"]["total"] == status["publishing"]["topics_total"] - 1 == 3 * MAX_SHOWN
    assert len(status["subscribing"]["filters"]) == len(status["publishing"]["topics"]) == MAX_SHOWN
    assert status["subscribing"]["filters"][0]["filter"] == sign * MAX_NAME_CHARS + "…"
    assert max(len(member.core.status(net.now, {})["partitions"]["shown"]) for member in members) == MAX_SHOWN
