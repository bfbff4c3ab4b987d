"""JOINs, parents and children: by hand, and in rings in which peers come, go and die."""

from __future__ import annotations

import pytest

from ringmq.experiments.scenarios.building import join_somewhere
from ringmq.experiments.simulator.network import Weather
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.codec import encode_tree
from ringmq.peer.engines.scribe.messages import Beat, Branch, Gone, Join, Leave, Stay
from ringmq.peer.engines.scribe.places import key_of_place
from tests.peer.engines.scribe.alone import Lone, peer_at
from tests.peer.engines.scribe.conftest import Ringed, ScribeNode, ScribeWorld

ROOT, ABOVE, CHILD, OTHER = (peer_at(point) for point in (1, 2, 11, 12))


def passes(lone: Lone, message: Join) -> bool:
    """Whether a JOIN that comes by here goes on."""
    return lone.core.forward(key_of_place(message.place), encode_tree(message), ROOT)


def beat(lone: Lone, sender: Peer, *path: Peer, place: str = "a") -> None:
    lone.hears(sender, Beat((Branch(place, tuple(peer.id for peer in (*path, sender))),)))


def subscribed(lone: Lone, *filters: str) -> list[str]:
    done: list[str] = []
    for name in filters:
        lone.core.subscribe(name, lambda _, name=name: done.append(name))  # type: ignore[misc]
    return done


# A JOIN on its way


def test_a_join_is_taken_off_its_way(lone: Lone) -> None:
    assert not passes(lone, Join("a", CHILD, False))
    assert lone.asked(Join) == [Join("a", lone.me, False)], "not a member before: it joins itself"
    assert lone.told(Beat) == [], "it is no parent yet"
    beat(lone, ABOVE, ROOT)
    assert lone.told(Beat) == [(CHILD, Beat((Branch("a", (ROOT.id, ABOVE.id, lone.me.id)),)))]
    assert not passes(lone, Join("a", OTHER, False))
    assert lone.asked(Join) == []
    assert [peer for peer, _ in lone.told(Beat)] == [OTHER], "a member takes the child at once"


def test_some_joins_pass(lone: Lone) -> None:
    assert passes(lone, Join("a", lone.me, False)), "its own"
    assert passes(lone, Join("a", CHILD, True)), "for the root alone"
    assert len(lone.core.trees) == 0
    subscribed(lone, "a")
    beat(lone, ABOVE, CHILD, ROOT)
    assert passes(lone, Join("a", CHILD, False)), "of a peer above this one"
    assert passes(lone, Join("a", ABOVE, False))
    assert lone.core.forward(Id(1), b"S\xff", ROOT), "what cannot be read is not ours"
    assert lone.core.forward(Id(1), b"C", ROOT)


def test_a_join_without_an_answer_goes_to_the_root_in_the_end(lone: Lone) -> None:
    subscribed(lone, "a")
    lone.wait(6.0)
    direct = [message.direct for message in lone.asked(Join)]
    assert direct[:4] == [False, False, False, True]
    assert all(direct[3:])


def test_joins_end_with_an_answer(lone: Lone) -> None:
    subscribed(lone, "a/#")
    beat(lone, ABOVE, ROOT, place="a/#")
    lone.asked(Join)
    lone.wait(1.0)
    assert lone.asked(Join) == []


# Leaving


def test_a_forwarder_without_children_leaves(lone: Lone) -> None:
    passes(lone, Join("a", CHILD, False))
    beat(lone, ABOVE, ROOT)
    lone.hears(CHILD, Leave(("a", "b")))
    assert lone.told(Leave) == [(ABOVE, Leave(("a",)))]
    assert len(lone.core.trees) == 0


def test_a_subscriber_with_children_stays_as_a_forwarder(lone: Lone) -> None:
    subscribed(lone, "a/#")
    passes(lone, Join("a/#", CHILD, False))
    beat(lone, ABOVE, ROOT, place="a/#")
    lone.core.unsubscribe("a/#")
    assert lone.told(Leave) == []
    tree = lone.core.trees.get("a/#")
    assert tree is not None
    assert not tree.own
    lone.hears(CHILD, Leave(("a/#",)))
    assert len(lone.core.trees) == 0


def test_a_child_that_is_not_heard_is_forgotten(lone: Lone) -> None:
    passes(lone, Join("a", CHILD, False))
    for _ in range(9):
        beat(lone, ABOVE, ROOT)
        lone.wait(0.5)
    lone.hears(CHILD, Stay(("a",)))
    beat(lone, ABOVE, ROOT)
    lone.wait(1.0)
    assert len(lone.core.trees) == 1, "its lease was renewed"
    for _ in range(10):
        beat(lone, ABOVE, ROOT)
        lone.wait(0.5)
    assert len(lone.core.trees) == 0
    assert lone.core.counters.expired == 1


# Parents


def test_a_silent_parent_is_left_and_what_is_below_stays(lone: Lone) -> None:
    passes(lone, Join("a", CHILD, False))
    beat(lone, ABOVE, ROOT)
    lone.asked(Join)
    lone.told(Beat)
    lone.wait(1.5)
    assert lone.asked(Join) == []
    lone.wait(0.6)
    assert lone.asked(Join)[0] == Join("a", lone.me, False)
    assert lone.core.counters.orphaned == 1
    assert len(lone.told(Beat)) >= 3, "the child hears of it all the time"
    beat(lone, OTHER)
    assert lone.told(Beat) == [(CHILD, Beat((Branch("a", (OTHER.id, lone.me.id)),)))], "the new way"


@pytest.mark.parametrize("word", ["gone", "lost"])
def test_a_parent_that_is_none_any_more_is_left_at_once(lone: Lone, word: str) -> None:
    subscribed(lone, "a/#")
    beat(lone, ABOVE, ROOT, place="a/#")
    lone.asked(Join)
    if word == "gone":
        lone.hears(OTHER, Gone(("a/#",)))
        assert lone.asked(Join) == [], "it never was the parent"
        lone.hears(ABOVE, Gone(("a/#", "b")))
    else:
        lone.core.link_lost(OTHER)
        assert lone.asked(Join) == []
        lone.core.link_lost(ABOVE)
    assert len(lone.asked(Join)) == 1


def test_another_parent_is_refused(lone: Lone) -> None:
    subscribed(lone, "a/#")
    beat(lone, ABOVE, ROOT, place="a/#")
    beat(lone, OTHER, ROOT, place="a/#")
    beat(lone, OTHER, ROOT, place="b")
    assert lone.told(Leave) == [(OTHER, Leave(("a/#",))), (OTHER, Leave(("b",)))]


def test_of_two_roots_the_later_one_is_the_parent(lone: Lone) -> None:
    subscribed(lone, "a/#")
    beat(lone, ROOT, place="a/#")
    beat(lone, OTHER, place="a/#")
    assert lone.told(Leave) == [(ROOT, Leave(("a/#",)))]
    tree = lone.core.trees.get("a/#")
    assert tree is not None
    assert tree.parent == OTHER


def test_a_circle_is_left(lone: Lone) -> None:
    subscribed(lone, "a/#")
    beat(lone, ABOVE, ROOT, place="a/#")
    lone.asked(Join)
    beat(lone, ABOVE, ROOT, lone.me, CHILD, place="a/#")
    assert lone.core.counters.loops == 1
    assert len(lone.asked(Join)) == 1
    assert lone.told(Leave) == [(ABOVE, Leave(("a/#",)))]


def test_a_stranger_that_stays_is_taken_or_sent_away(lone: Lone) -> None:
    lone.hears(CHILD, Stay(("a",)))
    assert lone.told(Gone) == [(CHILD, Gone(("a",)))]
    subscribed(lone, "a")
    lone.hears(CHILD, Stay(("a",)))
    assert len(lone.told(Gone)) == 1, "it is in no tree itself"
    beat(lone, ABOVE, ROOT)
    lone.hears(CHILD, Stay(("a",)))
    lone.hears(ABOVE, Stay(("a",)))
    assert lone.told(Gone) == [(ABOVE, Gone(("a",)))], "which is above this one"
    assert lone.core.counters.taken == 1


def test_one_message_for_all_trees_with_the_same_parent(lone: Lone) -> None:
    subscribed(lone, "a/#", "b/#")
    for place in ("a/#", "b/#"):
        beat(lone, ABOVE, ROOT, place=place)
    lone.wait(1.1)
    assert lone.told(Stay) == [(ABOVE, Stay(("a/#", "b/#")))]


# In a ring


def subscribe_all(world: ScribeWorld, nodes: list[ScribeNode], topic: str = "t") -> None:
    done = [world.subscribe(node, topic) for node in nodes]
    world.pass_time(3.0)
    assert all(done)
    assert world.is_whole(topic)


def test_a_tree_has_forwarders_that_are_not_subscribers(scribe_ring: Ringed) -> None:
    world = scribe_ring(100)
    some = world.random.sample(world.peers(), 8)
    subscribe_all(world, some)
    assert world.forwarders("t")
    for node in some:
        world.unsubscribe(node, "t")
    world.pass_time(1.0)
    assert world.trees_of("t") == {}, "each LEAVE goes up as far as nobody else is there"


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("victim", ["root", "forwarder"])
def test_the_tree_repairs_itself(scribe_ring: Ringed, victim: str, resets: bool) -> None:
    """Within the time that the failure detector and the silence take, or at once when links say it."""
    world = scribe_ring(80, 3, Weather(resets=resets))
    subscribe_all(world, world.peers())
    root, members = world.root_of("t"), world.trees_of("t")
    inner = [one for one in world.peers() if one is not root and members[one.peer.id].children]
    world.crash(root if victim == "root" else max(inner, key=lambda one: len(members[one.peer.id].children)))
    detected_s = world.timing.silence_s + world.timing.fastest_verdict_s
    bound_s = 0.3 if resets else max(detected_s, world.trees.silence_s) + 2 * world.trees.heartbeat_s
    assert world.run(world.now + bound_s, lambda: world.is_whole("t"), 0.05)


def test_trees_live_through_churn(scribe_ring: Ringed) -> None:
    """Peers subscribe, leave, join the ring and die; in the end all is as if nothing had been."""
    world = scribe_ring(40, 5)
    world.pass_time(0.5)
    random, topics = world.random, ("a", "a/b", "x")
    calm_at = 0.0
    for _ in range(400):
        world.pass_time(random.expovariate(12.0))
        node = random.choice([one for one in world.peers() if one.active])
        topic, act = random.choice(topics), random.random()
        if act < 0.5:
            world.publish(node, topic, random.randrange(3))
        elif act < 0.75 and topic not in node.filters:
            world.subscribe(node, topic)
        elif act < 0.95 and topic in node.filters:
            world.unsubscribe(node, topic)
        elif act < 0.97:
            join_somewhere(world, world.add())
        elif act > 0.98 and world.now > calm_at:
            calm_at = world.now + 6
            world.crash(random.choice([node, world.root_of(topic)]))
    world.pass_time(20.0)
    for topic in topics:
        assert world.is_whole(topic)
        for qos in range(3):
            publisher = random.choice(world.peers())
            body = world.publish(publisher, topic, qos)
            world.pass_time(1.0)
            for node in world.peers():
                expected = topic in node.filters and node is not publisher
                assert node.bodies.count(body) == expected
    for node in world.peers():
        world.unsubscribe(node, *sorted(node.filters))
    world.pass_time(80.0)
    assert world.empty()
