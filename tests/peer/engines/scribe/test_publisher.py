"""The publisher and its roots: found, trusted for a while, followed by others."""

from __future__ import annotations

import pytest

from ringmq.experiments.simulator.network import Weather
from ringmq.mqtt_front.cluster import UNDELIVERED
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.codec import unwrap
from ringmq.peer.engines.scribe.messages import Arrived, Gone, Reached, RootQuery, RootReply, RootState
from ringmq.peer.engines.scribe.places import places_of
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.publication import Publication
from tests.peer.engines.scribe.alone import Lone, peer_at
from tests.peer.engines.scribe.conftest import Ringed

ROOT, OTHER = peer_at(1), peer_at(2)


def publish(lone: Lone, body: bytes = b"x", qos: int = 1, *, retain: bool = False) -> None:
    lone.core.publish("a", body, qos, retain=retain, done=lone.reasons.append)


def here(lone: Lone, *full: str, root: Peer = ROOT) -> None:
    """A root answers for all places of the topic `a`."""
    items = tuple(RootState(place, place not in full) for place in places_of("a"))
    lone.hears(root, RootReply(items, lone.core.clock.now, 0))


def sent_to(lone: Lone, peer: Peer) -> list[tuple[str, bytes]]:
    return [(one.topic, unwrap(one.body)[1].body) for to, one in lone.told(Publication) if to == peer]


def test_messages_wait_until_the_roots_are_known(lone: Lone) -> None:
    publish(lone, b"1")
    publish(lone, b"2", 0)
    assert sorted(place for where in lone.asked(RootQuery) for place in where.places) == sorted(places_of("a"))
    assert lone.core.publisher.waiting == 6
    here(lone, "a", "#")
    assert sent_to(lone, ROOT) == [("a", b"1"), ("a", b"2"), ("#", b"1"), ("#", b"2")]
    assert lone.reasons == [Reason.SUCCESS], "QoS 0 is done"
    publish(lone, b"3", 0)
    assert sent_to(lone, ROOT) == [("a", b"3"), ("#", b"3")], "the addresses are known"
    assert lone.core._state.waiting_bytes > 0


def test_it_asks_again_until_there_is_an_answer(lone: Lone) -> None:
    publish(lone)
    lone.wait(1.0)
    asked = [where.places for where in lone.asked(RootQuery)]
    assert asked.count(("a",)) == 3


def test_done_when_all_trees_have_it(lone: Lone) -> None:
    publish(lone)
    here(lone, "a", "#")
    numbers = [one.seq for _, one in lone.told(Publication)]
    lone.hears(ROOT, Reached(0, (Arrived(numbers[0], True),)))
    assert lone.reasons == []
    lone.hears(ROOT, Reached(0, (Arrived(numbers[1], False),)))
    assert lone.reasons == [Reason.SUCCESS]
    assert lone.core.publisher.waiting == 0


def test_nobody_is_there(lone: Lone) -> None:
    publish(lone)
    here(lone)
    assert lone.reasons == [Reason.NO_MATCHING_SUBSCRIBERS]
    lone.core.publish("a", b"x", 1, True, done=lone.reasons.append)
    assert lone.reasons[1:] == [Reason.SUCCESS], "somebody here has it"
    assert lone.told(Publication) == []


def test_a_retained_message_goes_to_the_root_of_its_topic_in_any_case(lone: Lone) -> None:
    publish(lone, retain=True)
    here(lone)
    assert sent_to(lone, ROOT) == [("a", b"x")]


def test_trust_ends_and_is_renewed_while_the_topic_is_in_use(lone: Lone) -> None:
    publish(lone, qos=0)
    here(lone)
    lone.sent.clear()
    lone.wait(0.4)
    ((peer, where),) = lone.told(RootQuery)
    assert (peer, set(where.places)) == (ROOT, set(places_of("a"))), "one message for all"
    lone.asked(RootQuery)
    lone.wait(2.0)
    assert len(lone.asked(RootQuery)) >= 3, "no answer: the ring is asked"
    publish(lone, qos=0)
    assert lone.core.publisher.waiting == 3
    lone.wait(130.0)
    assert len(lone.core.publisher) == 0
    assert lone.core.counters.given_up == 3


def test_an_old_answer_is_not_believed(lone: Lone) -> None:
    publish(lone)
    lone.core.clock.now = 5.0
    lone.hears(ROOT, RootReply(tuple(RootState(place, True) for place in places_of("a")), 1.0, 0))
    assert lone.reasons == []


@pytest.mark.parametrize("word", ["refused", "another answers"])
def test_what_the_old_root_did_not_report_goes_to_the_new_one(lone: Lone, word: str) -> None:
    publish(lone, b"1")
    publish(lone, b"2")
    here(lone, "a")
    first, _ = (one.seq for _, one in lone.told(Publication))
    lone.hears(ROOT, Reached(0, (Arrived(first, True),)))
    lone.asked(RootQuery)
    if word == "refused":
        lone.hears(OTHER, Gone(("a",)))
        lone.hears(ROOT, Gone(("a",)))
        assert [where.places for where in lone.asked(RootQuery)] == [("a",)]
    here(lone, "a", root=OTHER)
    assert sent_to(lone, OTHER) == [("a", b"2")]
    assert lone.core.counters.resent == 1
    assert lone.core._state.waiting_bytes > 0


def test_a_lost_root_is_looked_for(lone: Lone) -> None:
    publish(lone)
    here(lone, "a")
    lone.asked(RootQuery)
    lone.core.link_lost(ROOT)
    assert {place for where in lone.asked(RootQuery) for place in where.places} == set(places_of("a"))


def test_beyond_the_room_it_is_refused() -> None:
    lone = Lone(PubSubConfig(max_waiting_bytes=2))
    publish(lone, b"123")
    publish(lone, b"123", 0)
    assert lone.reasons == [UNDELIVERED, UNDELIVERED]
    assert (lone.core.counters.refused, lone.core.counters.dropped) == (1, 1)


def test_what_takes_too_long_is_given_up(lone: Lone) -> None:
    publish(lone)
    for _ in range(64):
        here(lone, "a")
        lone.wait(1.0)
        lone.sent.clear()
    assert lone.reasons == [UNDELIVERED]
    assert lone.core.publisher.waiting == 0
    assert lone.core._state.waiting_bytes == 0


def test_a_publisher_that_is_the_root_itself(scribe_ring: Ringed) -> None:
    world = scribe_ring(20)
    world.pass_time(0.5)
    root = world.root_of("t")
    for node in world.peers()[:10]:
        world.subscribe(node, "t")
    world.pass_time(2.0)
    body = world.publish(root, "t")
    none = world.publish(root, "u")
    world.pass_time(1.0)
    assert sorted(root.reasons) == [Reason.SUCCESS, Reason.NO_MATCHING_SUBSCRIBERS]
    assert all(node.bodies == [body] for node in world.peers()[:10] if node is not root)
    assert none not in root.bodies


@pytest.mark.parametrize("resets", [False, True])
def test_nothing_is_lost_with_the_root(scribe_ring: Ringed, resets: bool) -> None:
    """With QoS 1, for a tree whose other members live: what the old root had not reported is sent again."""
    world = scribe_ring(60, 7, Weather(resets=resets))
    world.pass_time(0.5)
    for node in world.peers():
        world.subscribe(node, "t")
    world.pass_time(2.0)
    root = world.root_of("t")
    publisher = next(node for node in world.peers() if node is not root)
    sent = []
    for number in range(150):
        if number == 30:
            world.crash(root)
        sent.append(world.publish(publisher, "t"))
        world.pass_time(0.03)
    world.pass_time(8.0)
    assert publisher.reasons == [Reason.SUCCESS] * 150
    assert all(node.bodies == sent for node in world.peers() if node is not publisher)
