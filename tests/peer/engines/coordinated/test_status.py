"""What the roles tell about themselves: what it says of the core, and that it stays small whatever the core has."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.mqtt_front.matching.topics import MAX_LEVELS
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import MAX_HOST, Peer
from ringmq.overlay.queries import MAX_STATUS_BYTES
from ringmq.peer.engines.coordinated.status import MAX_NAME_CHARS, MAX_SHOWN, describe, describe_topic
from ringmq.peer.messaging.config import PubSubConfig
from tests.peer.conftest import Member, Net


def told(member: Member) -> dict[str, Any]:
    status = describe(member.core, member.net.now)
    assert json.loads(json.dumps(status)) == msgspec.json.decode(msgspec.json.encode(status)) == status
    return status


def test_a_peer_that_has_nothing_to_do(net: Net) -> None:
    status = told(net.others("a")[0])
    assert status["settings"] == {
        "dispatch": "direct",
        "fanout": None,
        "rules": 0,
        "shadows": 2,
        "lease_s": 3.0,
        "entry_s": 15.0,
    }
    assert status["places"] == {"total": 0, "coordinated": 0, "gathering": 0, "copied": 0, "shown": []}
    assert status["publishing"] == {"topics_total": 0, "topics": [], "lists_total": 0, "lists_trusted": 0, "lists": []}
    assert status["subscribing"]["total"] == 0
    assert status["queues"] == {"waiting_bytes": 0, "unacknowledged": 0, "peers_total": 0, "peers": []}
    assert not any(status["counters"].values())


def test_a_coordinator_and_its_shadows(net: Net) -> None:
    coordinator, *shadows = net.holders("a")
    publisher, subscriber = net.others("a")[:2]
    subscriber.subscribe("a")
    publisher.publish("a", retain=True)
    net.run(0.5)
    status = told(coordinator)["places"]
    assert status["coordinated"] >= 1
    (one,) = [place for place in status["shown"] if place["place"] == "a"]
    assert (one["role"], one["reign"], one["reigning"]) == ("coordinator", 1, coordinator.me.id.hex())
    assert (one["entries"], one["publishers"], one["retained"], one["waiting"]) == (1, 1, 1, 0)
    assert one["shadows"] == [{"id": shadow.me.id.hex(), "in_sync": True} for shadow in shadows]
    for shadow in shadows:
        status = told(shadow)["places"]
        (copy,) = [place for place in status["shown"] if place["place"] == "a"]
        assert copy == one | {"role": "holder", "shadows": [], "publishers": 1}
        assert status["copied"] >= 1


def test_a_shadow_that_is_behind(net: Net) -> None:
    coordinator, first, _ = net.holders("a")
    one, other = net.others("a")[:2]
    one.subscribe("a")
    net.run(0.5)
    net.lost = lambda sender, receiver, message: receiver.id == first.me.id
    other.subscribe("a")
    net.run(0.5)
    (place,) = [place for place in told(coordinator)["places"]["shown"] if place["place"] == "a"]
    assert {shadow["id"]: shadow["in_sync"] for shadow in place["shadows"]}[first.me.id.hex()] is False
    assert place["waiting"] == 1, "the SUBACK"


def test_what_a_peer_coordinates_is_told_first(net: Net) -> None:
    subscriber = next(iter(net.members.values()))
    for first in (0, 40):
        subscriber.subscribe(*[f"t/{number}" for number in range(first, first + 40)])
        net.run(0.5)
    for member in net.members.values():
        roles = [place["role"] for place in told(member)["places"]["shown"]]
        assert roles == sorted(roles)
        assert {"coordinator", "holder"} <= set(roles)


def test_a_publisher(net: Net) -> None:
    coordinator = net.holders("a/b")[0]
    publisher, subscriber = net.others("a/b")[:2]
    subscriber.subscribe("a/b")
    net.run(0.5)
    publisher.publish("a/b")
    net.run(0.5)
    status = told(publisher)["publishing"]
    assert (status["topics_total"], status["lists_total"], status["lists_trusted"]) == (1, 4, 4)
    (topic,) = status["topics"]
    left_s = topic.pop("trusted_s")
    assert 0 < left_s <= net.config.lease_s
    assert topic == {"topic": "a/b", "dispatch": "direct", "fanout": None, "peers": 1, "groups": 0, "waiting": 0}
    (one,) = [one for one in status["lists"] if one["place"] == "a/b"]
    assert left_s <= one.pop("trusted_s") <= net.config.lease_s
    assert one.pop("position") >= 1
    reigning = {"coordinator": coordinator.me.id.hex(), "reigning": coordinator.me.id.hex(), "reign": 1}
    assert one == {"place": "a/b", "entries": 1, **reigning}


def test_a_topic_is_trusted_as_long_as_its_oldest_list(net: Net) -> None:
    publisher = net.others("a/b", "a/c")[0]
    publisher.publish("a/b")
    net.run(0.5)
    publisher.publish("a/c")
    net.run(0.1)
    status = told(publisher)["publishing"]
    left_s = {one["place"]: one["trusted_s"] for one in status["lists"]}
    assert left_s["a/c"] > left_s["a/#"] > 0
    assert {topic["topic"]: topic["trusted_s"] for topic in status["topics"]} == {
        "a/b": left_s["a/b"],
        "a/c": left_s["a/#"],
    }
    late = describe(publisher.core, net.now + left_s["a/#"])["publishing"]
    assert late["lists_trusted"] == 2, "those of a/c alone"
    assert [topic["trusted_s"] for topic in late["topics"]] == [0.0, 0.0]


def test_a_publisher_that_waits_for_its_lists(net: Net) -> None:
    publisher = net.others("a")[0]
    net.lost = lambda sender, receiver, message: sender.id == publisher.me.id
    publisher.publish("a", b"four")
    status = told(publisher)
    (topic,) = status["publishing"]["topics"]
    assert (topic["peers"], topic["waiting"], topic["trusted_s"]) == (None, 1, 0.0)
    assert status["publishing"]["lists_trusted"] == 0
    assert status["publishing"]["lists"][0] == {
        "place": "a",
        "coordinator": None,
        "reign": 0,
        "reigning": None,
        "position": 0,
        "entries": 0,
        "trusted_s": 0.0,
    }
    assert status["queues"]["waiting_bytes"] == 4


def test_a_tree_and_its_rule() -> None:
    net = Net(PubSubConfig(dispatch=Choice("guided", 4), rules=(("a", Choice("guided", 2)),)))
    member = net.add(5)
    member.publish("a")
    member.publish("b")
    status = told(member)
    assert [topic["fanout"] for topic in status["publishing"]["topics"]] == [2, 4]
    assert (status["settings"]["fanout"], status["settings"]["rules"]) == (4, 1)


def test_the_stages_of_filters(net: Net) -> None:
    subscriber = net.others("a", "b")[0]
    subscriber.subscribe("a")
    net.run(0.5)
    net.lost = lambda sender, receiver, message: sender.id == subscriber.me.id
    subscriber.subscribe("b")
    status = told(subscriber)["subscribing"]
    assert (status["total"], status["stages"]) == (2, {"asking": 1, "fetching": 0, "in_force": 1, "leaving": 0})
    coordinator = net.holders("a")[0].me.id.hex()
    first, second = status["filters"]
    assert 0 <= first.pop("heard_s") <= 0.5
    assert first == {"filter": "a", "stage": "in_force", "coordinator": coordinator}
    assert second == {"filter": "b", "stage": "asking", "coordinator": None, "heard_s": None}


def test_what_waits_for_an_acknowledgement(net: Net) -> None:
    publisher, subscriber = net.others("a")[:2]
    subscriber.subscribe("a")
    publisher.publish("a")
    net.run(0.5)
    net.lost = lambda sender, receiver, message: receiver.id == subscriber.me.id
    for _ in range(net.config.window + 3):
        publisher.publish("a", b"four")
    queues = told(publisher)["queues"]
    assert (queues["peers_total"], queues["unacknowledged"]) == (1, net.config.window + 3)
    assert queues["waiting_bytes"] == (net.config.window + 3) * len(b"afour")
    (one,) = queues["peers"]
    assert one == {
        "id": subscriber.me.id.hex(),
        "address": "here:1",
        "on_their_way": net.config.window,
        "behind": 3,
        "tries": 0,
    }


def asked(member: Member, topic: str) -> list[dict[str, Any]]:
    """What a member says about each place of a topic."""

    def towards(key: Id) -> Peer | None:
        nearest = member.net.owners(key, 1)[0]
        return None if nearest is member.me else nearest

    status = describe_topic(member.core, topic, towards)
    assert status is not None
    assert json.loads(json.dumps(status)) == status
    assert status["topic"] == topic
    places: list[dict[str, Any]] = status["places"]
    return places


def test_a_topic_at_its_coordinators(net: Net) -> None:
    one, other = net.others("a/b", "a/#")[:2]
    for name in ("a/b", "a/+", "a/+/c", "$share/g/a/#"):
        one.subscribe(name)
    other.subscribe("a/b")
    net.run(0.5)
    assert [place["place"] for place in asked(one, "a/b")] == ["a/b", "a/b/#", "a/#", "#"]
    found = {}
    for member in net.members.values():
        for place in asked(member, "a/b"):
            if place["nearer"] is None:
                found[place["place"]] = place["held"]
            else:
                owner = net.holders(place["place"])[0].me
                assert place["nearer"] == {"id": owner.id.hex(), "address": "here:1"}
    assert found["#"] is found["a/b/#"] is None, "nobody asked for anything there"
    assert found["a/b"]["subscribers"] == [
        {"filter": "a/b", "id": member.me.id.hex(), "address": "here:1"} for member in (one, other)
    ]
    filters = [subscriber["filter"] for subscriber in found["a/#"]["subscribers"]]
    assert filters == ["a/+", "$share/g/a/#"], "those that match"
    assert (found["a/#"]["subscribers_total"], found["a/#"]["entries"], found["a/#"]["role"]) == (2, 3, "coordinator")


def test_who_left_does_not_subscribe(net: Net) -> None:
    one = net.others("a")[0]
    one.subscribe("a")
    net.run(0.5)
    one.core.unsubscribe("a")
    net.run(0.5)
    (place,) = [place for place in asked(net.holders("a")[0], "a") if place["place"] == "a"]
    assert (place["held"]["subscribers_total"], place["held"]["subscribers"]) == (0, [])


@pytest.mark.parametrize("topic", ["a/#", "\0", "/" * 4000])
def test_what_is_no_topic(net: Net, topic: str) -> None:
    assert describe_topic(next(iter(net.members.values())).core, topic, lambda key: None) is None


def test_the_subscribers_told_are_bounded() -> None:
    """With the longest names, as deep as a topic can be, everywhere with subscribers."""
    net = Net(PubSubConfig(shadows=8))
    members = [net.add(number << 121, boot=1 << 60) for number in range(12)]
    for member in members:
        member.me = Peer(member.me.id, "h" * MAX_HOST, 65535, member.me.boot)
    levels = ["\x01" * 20] * MAX_LEVELS
    for member in members:
        member.subscribe("#", *["/".join((*levels[:depth], "#")) for depth in range(1, MAX_LEVELS)])
    net.run(2.0)
    for member in members:
        status = describe_topic(member.core, "/".join(levels), lambda key: members[0].me)
        assert status is not None
        assert len(msgspec.json.encode(status)) < MAX_STATUS_BYTES * 0.45
    held = [place["held"] for place in status["places"] if place["held"] is not None]
    assert sum(len(one["subscribers"]) for one in held) == MAX_SHOWN
    assert sum(one["subscribers_total"] for one in held) == len(held) * len(members)


def test_what_was_counted(net: Net) -> None:
    member = next(iter(net.members.values()))
    member.publish("a")
    counters = describe(member.core, net.now, {"unsendable": 7})["counters"]
    assert (counters["published"], counters["unsendable"]) == (1, 7)


@pytest.mark.parametrize("sign", ["x", "\u4e2d", "\x01"])
def test_it_is_small_whatever_there_is(sign: str) -> None:
    """One peer that has all the roles of all topics, with the longest names, and sends to too many others."""
    net = Net(PubSubConfig(shadows=8))
    members = [net.add(number << 121, boot=1 << 60) for number in range(MAX_SHOWN + 20)]
    for member in members:
        member.me = Peer(member.me.id, "h" * MAX_HOST, 65535, member.me.boot)
    one = members[0]
    name = sign * 1000
    for number in range(MAX_SHOWN + 5):
        one.subscribe(f"{name}{number}")
        one.publish(f"{name}{number}")
    for member in members[1:]:
        member.subscribe("all")
    one.publish("all")
    net.run(1.0)
    net.lost = lambda sender, receiver, message: True
    one.publish("all")
    net.run(0.1)
    for member in members:
        status = told(member)
        assert len(msgspec.json.encode(status)) < MAX_STATUS_BYTES * 0.45
    status = told(one)
    assert status["subscribing"]["total"] == status["publishing"]["topics_total"] - 1 == MAX_SHOWN + 5
    shown = (status["subscribing"]["filters"], status["publishing"]["topics"], status["publishing"]["lists"])
    assert [len(items) for items in shown] == [MAX_SHOWN] * 3
    assert shown[0][0]["filter"] == sign * MAX_NAME_CHARS + "…"
    assert (status["queues"]["peers_total"], len(status["queues"]["peers"])) == (MAX_SHOWN + 19, MAX_SHOWN)
