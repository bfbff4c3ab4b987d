"""Who is the root of what, what it tells, and who follows it."""

from __future__ import annotations

from ringmq.overlay.core.ids import SPACE, Id
from ringmq.peer.engines.scribe.messages import (
    Beat,
    Branch,
    Gone,
    Join,
    RootCopy,
    RootFetch,
    RootFetched,
    RootQuery,
    RootReply,
    RootState,
)
from ringmq.peer.engines.scribe.places import key_of_place
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.retained_cache import stamp_of
from ringmq.peer.replication.record import RecordKind, SharedRecord
from tests.peer.engines.scribe.alone import Lone, peer_at
from tests.peer.engines.scribe.conftest import Ringed

NEXT, LAST, CHILD, PUBLISHER = (peer_at(point) for point in (1, 2, 11, 12))


def rooted(lone: Lone, place: str = "a") -> None:
    """Let it be the root of a tree with one child."""
    lone.reigns(place)
    lone.hears(CHILD, Join(place, CHILD, False))


def record(body: bytes, stamp: int, *, gone: bool = False) -> SharedRecord:
    return SharedRecord(RecordKind.RETAINED, "a", None, stamp_of(stamp, PUBLISHER.id), gone, body=body)


def test_the_owner_is_the_root(lone: Lone) -> None:
    lone.hears(CHILD, Join("a", CHILD, False))
    assert len(lone.core.trees) == len(lone.core.roots) == 0, "the key is not its own"
    assert lone.watched == set()
    rooted(lone)
    assert lone.told(Beat) == [(CHILD, Beat((Branch("a", (lone.me.id,)),)))]
    assert lone.core.roots.reigns("a")
    assert lone.core.counters.reigns == 1


def test_publishers_hear_who_is_the_root_and_whether_anybody_is_there(lone: Lone) -> None:
    lone.hears(PUBLISHER, RootQuery(("a",), 7.5))
    assert lone.told(Gone) == [(PUBLISHER, Gone(("a",)))]
    rooted(lone)
    lone.told(Beat)
    lone.hears(PUBLISHER, RootQuery(("a", "b"), 7.5))
    assert lone.told(RootReply) == [(PUBLISHER, RootReply((RootState("a", False), RootState("b", True)), 7.5, 0))]


def test_nobody_enters_while_publishers_believe_that_nobody_is_there(lone: Lone) -> None:
    lone.reigns("a")
    lone.hears(PUBLISHER, RootQuery(("a",), 0.0))
    lone.wait(0.5)
    lone.hears(CHILD, Join("a", CHILD, False))
    lone.wait(0.5)
    assert lone.told(Beat) == []
    lone.wait(0.2)
    assert [peer for peer, _ in lone.told(Beat)] == [CHILD]


def test_what_is_of_no_use_is_forgotten(lone: Lone) -> None:
    lone.reigns("a")
    lone.hears(PUBLISHER, RootQuery(("a", "a/#"), 0.0))
    assert len(lone.core.roots) == 2
    assert len(lone.watched) == 1, "both places have one key"
    lone.wait(2.0)
    assert len(lone.core.roots) == 0
    assert lone.watched == set()


def test_the_next_ones_have_a_copy(lone: Lone) -> None:
    rooted(lone)
    lone.told(RootCopy)
    lone.wait(0.6)
    assert lone.told(RootCopy) == [(peer, RootCopy("a", (CHILD,), None)) for peer in (NEXT, LAST)]
    lone.wait(1.0)
    assert lone.told(RootCopy) == [], "nothing has changed"
    lone.hears(CHILD, Join("a", CHILD, False))
    lone.wait(3.0)
    assert len(lone.told(RootCopy)) == 2, "renewed now and then"


def test_who_follows_the_root_has_its_children(lone: Lone) -> None:
    lone.hears(NEXT, RootCopy("a", (CHILD, lone.me), record(b"kept", 5)))
    assert len(lone.core.trees) == 0
    lone.told(Beat)
    lone.reigns("a")
    assert [peer for peer, _ in lone.told(Beat)] == [CHILD]
    lone.hears(CHILD, RootFetch("a"))
    assert lone.told(RootFetched) == [(CHILD, RootFetched("a", record(b"kept", 5)))]


def test_an_old_copy_is_forgotten(lone: Lone) -> None:
    lone.hears(NEXT, RootCopy("a", (CHILD,), None))
    lone.wait(11.0)
    assert len(lone.core.roots) == 0


def test_a_root_that_is_followed_hands_over_and_stays_in_the_tree(lone: Lone) -> None:
    rooted(lone)
    lone.told(Beat)
    lone.asked(Join)
    lone.follows("a")
    assert lone.told(RootCopy) == [(NEXT, RootCopy("a", (CHILD,), None))]
    assert lone.asked(Join) == [Join("a", lone.me, False)]
    lone.hears(PUBLISHER, RootQuery(("a",), 1.0))
    assert lone.told(Gone) == [(PUBLISHER, Gone(("a",)))]


def test_a_peer_that_does_not_serve_is_no_root(lone: Lone) -> None:
    rooted(lone)
    lone.active = False
    lone.core.activity_changed(False)
    assert not lone.core.roots.reigns("a")
    lone.active = True
    lone.core.activity_changed(True)
    assert lone.core.roots.reigns("a")


def retain(lone: Lone, body: bytes, stamp: int, *, clears: bool = False, qos: int = 1) -> None:
    one = Publication(0, stamp, qos, "a", body, retain=True, stamp=stamp, clears=clears)
    lone.core.roots.retain("a", PUBLISHER, one)


def test_the_last_retained_message_is_kept_and_copied(lone: Lone) -> None:
    rooted(lone)
    lone.told(RootCopy)
    retain(lone, b"two", 2)
    retain(lone, b"one", 1)
    assert lone.told(RootCopy) == [(peer, RootCopy("a", None, record(b"two", 2))) for peer in (NEXT, LAST)]
    lone.hears(CHILD, RootFetch("a"))
    assert lone.told(RootFetched) == [(CHILD, RootFetched("a", record(b"two", 2)))]


def test_what_was_cleared_does_not_come_back(lone: Lone) -> None:
    lone.reigns("a")
    lone.hears(PUBLISHER, RootQuery(("a",), 0.0))
    retain(lone, b"one", 1)
    retain(lone, b"", 2, clears=True)
    lone.told(RootCopy)
    lone.hears(NEXT, RootCopy("a", None, record(b"one", 1)))
    assert lone.told(RootCopy) == [(NEXT, RootCopy("a", None, record(b"", 2, gone=True)))], "it is told what is later"
    lone.wait(62.0)
    assert len(lone.core.roots) == 0


def test_a_later_one_that_another_kept_is_taken(lone: Lone) -> None:
    rooted(lone)
    retain(lone, b"one", 1)
    lone.told(RootCopy)
    lone.hears(LAST, RootCopy("a", None, record(b"two", 2)))
    assert {peer for peer, _ in lone.told(RootCopy)} == {NEXT, LAST}
    lone.hears(CHILD, RootFetch("a"))
    assert lone.told(RootFetched)[0][1].record == record(b"two", 2)


def test_a_newcomer_takes_the_place_over(scribe_ring: Ringed) -> None:
    world = scribe_ring(30)
    world.pass_time(0.5)
    for node in world.peers():
        world.subscribe(node, "t")
    world.pass_time(2.0)
    old, publisher = world.root_of("t"), world.peers()[0]
    world.publish(publisher, "t", retain=True)
    world.pass_time(1.0)
    newcomer = world.add(Id((key_of_place("t") + 1) % SPACE))
    world.join(newcomer, old)
    kept = []
    for _ in range(100):
        kept.append(world.publish(publisher, "t"))
        world.pass_time(0.05)
    assert world.root_of("t") is newcomer
    assert world.run(world.now + 5.0, lambda: world.is_whole("t"), 0.1)
    world.pass_time(1.0)
    assert len(publisher.reasons) == 101
    for node in world.peers():
        if node not in (publisher, newcomer):
            assert node.bodies[1:] == kept, "nothing lost on the way"
    late = world.subscribe(newcomer, "t")
    world.pass_time(1.0)
    assert late == ["t"]
    assert newcomer.kept["t"].startswith(f"{publisher.number} 1 ".encode())
