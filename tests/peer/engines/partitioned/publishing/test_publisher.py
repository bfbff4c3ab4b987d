"""Publishing by held partitions: to everybody who subscribes, in order, and by nothing that may be old."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from ringmq.dispatching.algorithms import Choice
from ringmq.mqtt_front.cluster import UNDELIVERED
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.peer.engines.partitioned.messages import Hold, Renew, Retain
from ringmq.peer.messaging.config import LAN
from ringmq.peer.messaging.messages import Held, Unserved
from tests.peer.engines.partitioned.fake_coordinators import ME, Publishing
from tests.peer.engines.partitioned.routes_of import CAME, EXPIRED, GONE, peer_of, routes_of

A, B, C = peer_of(2), peer_of(3), peer_of(4)


@pytest.fixture
def world() -> Publishing:
    return Publishing()


def test_the_first_message_of_a_small_ring_fetches_all_routes_and_no_later_topic_waits(world: Publishing) -> None:
    world.subscribe(("a/b", A, CAME), ("x/+", B, CAME), ("#", C, CAME))
    world.publish("a/b")
    assert world.links.sent == []
    assert world.reasons == []
    world.answer()
    assert [peer for peer, _ in world.links.sent] == [A, C]
    assert all(coordinator.knows_all for coordinator in world.coordinators.values())
    world.publish("x/y")
    world.publish("z/z/z")
    assert world.streams.items == []
    assert [peer for peer, _ in world.links.sent[2:]] == [B, C, C]
    assert world.reasons == [Reason.SUCCESS] * 3


def test_nobody_subscribes(world: Publishing) -> None:
    world.publish("a", qos=1)
    world.answer()
    assert world.reasons == [Reason.NO_MATCHING_SUBSCRIBERS]


def test_this_peer_gets_nothing_from_itself_but_its_share_of_a_group(world: Publishing) -> None:
    world.subscribe(("a", ME, CAME), ("a", A, CAME), ("$share/g/a", ME, CAME))
    world.served.add("$share/g/a")
    assert world.receivers("a") == [A]
    assert [publication.shared for publication in world.links.delivered] == [("$share/g/a",)]
    world.served.clear()
    assert world.receivers("a") == [A]
    assert len(world.links.delivered) == 1


def test_messages_wait_in_their_order_and_later_ones_behind_them(world: Publishing) -> None:
    world.subscribe(("a", A, CAME))
    for number in range(5):
        world.publish("a", str(number).encode())
    assert not world.publisher.publish_fast("a", b"fast")
    world.answer()
    world.publish("a", b"5")
    assert world.bodies_to(A) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert world.state.waiting_bytes == 0


def test_a_message_that_is_published_while_held_ones_are_sent_does_not_overtake_them(world: Publishing) -> None:
    world.subscribe(("a", A, CAME))
    state = world.state

    def again(reason: Reason) -> None:
        assert not world.publisher.publish_fast("a", b"fast")
        world.publish("a", b"behind")

    world.publish("a", b"0")
    state.seq += 1
    first = world.publish("a", b"1")
    world.publisher._queues["a"][0].done = again
    world.publish("a", b"2")
    assert first.body == b"1"
    world.answer()
    assert world.bodies_to(A) == [b"0", b"1", b"2", b"behind"]


def test_the_fast_path_is_taken_as_long_as_everything_is_trusted(world: Publishing) -> None:
    world.subscribe(("a", A, CAME))
    assert not world.publisher.publish_fast("a", b"0")
    world.receivers("a")
    assert world.publisher.publish_fast("a", b"1")
    assert world.bodies_to(A) == [b"x", b"1"]
    assert world.links.sent[0][1].seq + 1 == world.links.sent[1][1].seq
    world.subscribe(("+", B, CAME))
    assert world.publisher.publish_fast("a", b"2")
    assert world.bodies_to(B) == [b"2"], "by a new plan"
    world.subscribe(("a", C, CAME))
    assert world.publisher.publish_fast("a", b"3")
    assert world.bodies_to(C) == [b"3"]
    assert world.bodies_to(A)[-2:] == [b"2", b"3"]
    world.pause(LAN.lease_s)
    assert not world.publisher.publish_fast("a", b"5")


def test_the_fast_path_is_not_for_groups_and_trees() -> None:
    world = Publishing(config=replace(LAN, dispatch=Choice("guided", 1)))
    world.subscribe(("a", A, CAME), ("tree", A, CAME), ("tree", B, CAME), ("$share/g/b", A, CAME))
    for topic in ("a", "tree", "b"):
        world.receivers(topic)
    assert world.publisher.publish_fast("a", b"")
    assert not world.publisher.publish_fast("tree", b"")
    assert not world.publisher.publish_fast("b", b"")


def test_a_publisher_that_was_paused_asks_before_it_publishes(world: Publishing) -> None:
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    world.pause(LAN.lease_s + 0.1)
    world.publish("a", b"late")
    assert world.bodies_to(A) == [b"x"]
    world.answer()
    assert world.bodies_to(A) == [b"x", b"late"]


def test_leases_are_renewed_in_time_and_only_by_renewals(world: Publishing) -> None:
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    for coordinator in world.coordinators.values():
        coordinator.seen.clear()
    for _ in range(20):
        world.run(0.9)
        world.publish("a")
        assert world.reasons[-1] is Reason.SUCCESS
    seen = [type(item) for coordinator in world.coordinators.values() for item in coordinator.seen]
    assert set(seen) == {Renew}
    assert len(seen) == 3 * 18


def test_a_lease_counts_from_when_it_was_asked_for(world: Publishing) -> None:
    world.subscribe(("a", A, CAME))
    world.publish("a", b"first")
    world.pause(1.0)
    world.answer()
    assert world.publisher.trust.until == pytest.approx(LAN.lease_s)
    assert world.bodies_to(A) == [b"first"]


def test_a_silent_coordinator_delays_the_topics_of_its_partitions_alone(world: Publishing) -> None:
    names = [f"t/{number}" for number in range(60)]
    world.subscribe(*[(name, A, CAME) for name in names])
    world.receivers("t/0")
    silent = world.of("t/0")
    silent.silent = True
    world.run(2 * LAN.lease_s)
    before = len(world.links.sent)
    for name in names:
        world.publish(name)
    sent = {publication.topic for _, publication in world.links.sent[before:]}
    root, above = world.of("#"), world.of("t/#")
    if silent in (root, above):
        assert sent == set()
    else:
        assert sent == {name for name in names if world.of(name) is not silent}
        for name in sent:
            assert world.publisher.publish_fast(name, b"fast")
    silent.silent = False
    world.run(LAN.lease_s)
    assert {publication.topic for _, publication in world.links.sent[before:]} == set(names)


def test_held_messages_are_given_up_in_the_end(world: Publishing) -> None:
    for coordinator in world.coordinators.values():
        coordinator.silent = True
    world.publish("a", qos=1)
    world.publish("a", qos=0)
    world.run(LAN.give_up_s + 11)
    assert world.reasons == [UNDELIVERED] * 2
    assert world.state.waiting_bytes == 0
    assert world.state.counters.refused == 1
    assert world.state.counters.dropped == 1
    assert len(world.publisher) == 0


def test_no_more_is_held_than_the_bound() -> None:
    world = Publishing(config=replace(LAN, max_waiting_bytes=5))
    world.publish("a", b"123")
    world.publish("a", b"456")
    assert world.state.counters.dropped == 1
    assert world.reasons == [UNDELIVERED]
    world.publish("b", b"45", qos=1)
    world.publish("b", b"6", qos=1)
    assert world.state.counters.refused == 1
    world.publish("c", b"7", retain=True)
    assert world.publisher.unsettled == {}


def test_qos_1_is_done_when_all_receivers_have_it(world: Publishing) -> None:
    world.subscribe(("a", A, CAME), ("a", B, CAME))
    world.publish("a", qos=1)
    world.answer()
    world.hold_numbers(A, 1)
    assert world.reasons == []
    world.hold_numbers(B, 1)
    assert world.reasons == [Reason.SUCCESS]


def test_a_tree_sends_to_its_first_receivers_only() -> None:
    world = Publishing(config=replace(LAN, rules=(("tree/#", Choice("guided", 1)),)))
    world.subscribe(("tree/a", A, CAME), ("tree/a", B, CAME), ("tree/a", C, CAME))
    world.publish("tree/a", qos=1)
    world.answer()
    assert len(world.links.sent) == 1
    relay = world.links.sent[0][1].relay
    assert relay is not None
    assert len(relay.part) == 2


def test_members_of_a_group_take_turns(world: Publishing) -> None:
    world.subscribe(("$share/g/a/+", A, CAME), ("$share/g/a/+", B, CAME))
    turns = [world.receivers("a/b") for _ in range(4)]
    assert {turn[0].id for turn in turns[:2]} == {A.id, B.id}
    assert turns[:2] == turns[2:]


def test_another_member_serves_a_group_whose_peer_is_given_up(world: Publishing) -> None:
    world.subscribe(("$share/g/a", A, CAME), ("$share/g/a", B, CAME), ("$share/g/a", C, CAME))
    world.publish("a", qos=1)
    world.answer()
    (first, _), *_ = world.links.sent
    world.subscribe(("$share/g/a", first, EXPIRED))
    assert world.reasons == []
    (second, publication) = world.links.sent[-1]
    assert second != first
    assert publication.shared == ("$share/g/a",)
    world.hold_numbers(second, 1)
    assert world.reasons == [Reason.SUCCESS]
    assert world.state.counters.passed_on == 1


def test_a_group_without_a_member_on_the_chosen_peer_is_served_by_another(world: Publishing) -> None:
    world.subscribe(("$share/g/a", A, CAME), ("$share/g/a", B, CAME))
    world.publish("a", qos=1)
    world.answer()
    first = world.links.sent[0][0]
    world.publisher.send_windows.held(first, Held(ME.boot, 1, (), (Unserved(1, ("$share/g/a",)),)))
    assert world.links.sent[-1][0] != first


def test_a_peer_that_expired_is_given_up_at_once(world: Publishing) -> None:
    world.subscribe(("a", A, CAME), ("b", A, CAME))
    world.publish("a", qos=1)
    world.answer()
    world.subscribe(("b", A, EXPIRED))
    assert world.reasons == [], "another route still has it"
    world.subscribe(("a", A, EXPIRED))
    assert world.reasons == [Reason.SUCCESS]
    assert world.state.counters.given_up == 1


def test_a_peer_that_left_has_time_to_acknowledge(world: Publishing) -> None:
    world.subscribe(("a", A, CAME))
    world.publish("a", qos=1)
    world.answer()
    world.subscribe(("a", A, GONE))
    world.run(LAN.grace_s - 0.1)
    assert world.reasons == []
    world.run(0.2)
    assert world.reasons == [Reason.SUCCESS]
    assert world.state.counters.given_up == 1


def test_a_peer_that_came_back_and_left_again_has_all_the_time_again(world: Publishing) -> None:
    world.subscribe(("a", A, CAME))
    world.publish("a", qos=1)
    world.answer()
    world.subscribe(("a", A, GONE))
    world.run(LAN.grace_s - 1)
    world.subscribe(("a", A, CAME))
    world.subscribe(("a", A, GONE))
    world.run(LAN.grace_s - 0.1)
    assert world.state.counters.given_up == 0
    world.run(0.2)
    assert world.state.counters.given_up == 1


def test_a_peer_that_came_back_is_not_given_up(world: Publishing) -> None:
    world.subscribe(("a", A, CAME))
    world.publish("a", qos=1)
    world.answer()
    world.subscribe(("a", A, GONE))
    world.subscribe(("b/#", A, CAME))
    world.run(2 * LAN.grace_s)
    assert world.state.counters.given_up == 0


def test_a_restarted_home_gets_messages_at_its_new_boot(world: Publishing) -> None:
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    again = peer_of(2, boot=2)
    world.subscribe(("a", again, CAME))
    assert world.receivers("a") == [again]


# Retained messages


def test_a_retained_message_is_done_when_its_coordinator_has_it(world: Publishing) -> None:
    world.stores = False
    publication = world.publish("a", retain=True)
    world.answer()
    assert world.reasons == []
    assert list(world.publisher.unsettled.values()) == [publication]
    coordinator = world.of("a")
    retain = next(item for item in coordinator.seen if isinstance(item, Retain))
    assert (retain.row.name, retain.row.gone, retain.row.confirmed, retain.row.body) == ("a", False, False, b"x")
    world.stores = True
    world._answer(coordinator, retain)
    assert world.reasons == [Reason.NO_MATCHING_SUBSCRIBERS]
    assert world.publisher.unsettled == {}
    assert world.settled == [publication]


def test_a_change_of_routes_is_not_confirmed_before_messages_published_by_the_older_ones_are_stored(
    world: Publishing,
) -> None:
    world.stores = False
    world.publish("a/b", retain=True)
    world.publish("a/c", retain=True)
    world.answer()
    world.subscribe(("x/y", A, CAME))
    assert world.streams.held_back == 0
    world.subscribe(("a/b", A, CAME))
    assert world.streams.held_back == 1
    world.subscribe(("a/#", A, CAME))
    assert world.streams.held_back == 2
    world.stores = True
    coordinator = world.of("a/b")
    world._answer(coordinator, next(item for item in coordinator.seen if isinstance(item, Retain)))
    assert world.streams.held_back == 1
    coordinator = world.of("a/c")
    world._answer(coordinator, [item for item in coordinator.seen if isinstance(item, Retain)][-1])
    assert world.streams.held_back == 0


def test_a_retained_message_goes_to_the_next_coordinator(world: Publishing) -> None:
    world.stores = False
    world.publish("a", retain=True)
    world.answer()
    world.stores = True
    old = world.of("a")
    old.silent = True
    successor = next(each for each in world.coordinators.values() if each is not old)
    world.move(old.acting, successor)
    world.answer()
    assert [item.row.name for item in successor.seen if isinstance(item, Retain)] == ["a"]
    assert world.reasons == [Reason.NO_MATCHING_SUBSCRIBERS]


def test_a_retained_message_is_sent_again_after_elsewhere_and_after_a_lost_stream(world: Publishing) -> None:
    world.receivers("a")
    coordinator = world.of("a")
    acting, coordinator.acting = coordinator.acting, set()
    world.publish("a", retain=True)
    world.answer()
    assert world.streams.items == [], "the same peer is not asked again at once"
    coordinator.acting = acting
    world.run(LAN.retry_s)
    assert len(world.reasons) == 2
    coordinator.silent = True
    world.publish("a", retain=True)
    world.streams.items.clear()
    coordinator.silent = False
    world.publisher.stream_lost(coordinator.peer)
    world.answer()
    assert len(world.reasons) == 3


def test_a_retained_message_that_nobody_stores_is_given_up(world: Publishing) -> None:
    world.stores = False
    publication = world.publish("a", retain=True)
    world.run(LAN.give_up_s + 2 * LAN.slow_retry_s)
    assert world.reasons == [UNDELIVERED]
    assert (world.state.counters.not_stored, world.state.counters.not_retained) == (1, 0)
    assert world.settled == [publication]


def test_unreadable_routes_are_fetched_again(world: Publishing) -> None:
    world.subscribe(("a", A, CAME))
    world.receivers("a")
    coordinator = world.of("a")
    coordinator.seen.clear()
    world.publisher.routes(coordinator.peer, changed(routes_of([("a", B, CAME)]), homes=b""))
    world.answer()
    assert world.state.counters.unreadable == 1
    assert any(isinstance(item, Hold) for item in coordinator.seen)
    assert world.receivers("a") == [A]


def test_topics_are_shown_with_their_plans_and_waiting_messages(world: Publishing) -> None:
    world.publish("a")
    assert len(world.publisher) == 1
    assert "a" in world.publisher
    assert list(world.publisher.topics()) == [("a", None, 1)]
    world.subscribe(("a", A, CAME))
    world.answer()
    ((name, plan, waiting),) = world.publisher.topics()
    assert (name, waiting) == ("a", 0)
    assert plan is not None
    assert plan.peers == (A,)
    world.subscribe(("b/#", B, CAME))
    assert list(world.publisher.topics()) == [("a", None, 0)]
    assert len(world.publisher) == 1
