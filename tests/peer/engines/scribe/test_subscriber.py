"""Filters of the clients: when they are in force, and what they get of what is retained."""

from __future__ import annotations

import pytest

from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.engines.scribe.errors import SharedFilterError
from ringmq.peer.engines.scribe.messages import Beat, Branch, Join, RootFetch, RootFetched
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.retained_cache import stamp_of
from ringmq.peer.replication.record import RecordKind, SharedRecord
from tests.peer.engines.scribe.alone import Lone, peer_at
from tests.peer.engines.scribe.conftest import Ringed

ROOT = peer_at(1)


def attach(lone: Lone, place: str) -> None:
    lone.hears(ROOT, Beat((Branch(place, (ROOT.id,)),)))


def test_a_filter_is_in_force_when_its_tree_is_there_and_what_is_retained(lone: Lone) -> None:
    done: list[int] = []
    lone.core.subscribe("a", lambda _: done.append(1))
    lone.core.subscribe("a", lambda _: done.append(2))
    assert len(lone.asked(Join)) == 1
    attach(lone, "a")
    assert done == []
    lone.wait(0.4)
    assert lone.asked(RootFetch) == [RootFetch("a"), RootFetch("a")], "asked again until there is an answer"
    record = SharedRecord(RecordKind.RETAINED, "a", None, stamp_of(5, ROOT.id), False, body=b"kept")
    lone.hears(ROOT, RootFetched("a", record), RootFetched("b", None))
    assert done == [1, 2]
    assert lone.kept == {"a": b"kept"}
    lone.core.subscribe("a", lambda _: done.append(3))
    assert done == [1, 2, 3]
    assert lone.core.subscriber.in_force("a")


def test_a_wildcard_gets_nothing_of_what_was_retained_before(lone: Lone) -> None:
    done: list[int] = []
    lone.core.subscribe("a/+", lambda _: done.append(1))
    attach(lone, "a/#")
    assert done == [1]
    assert lone.asked(RootFetch) == []
    lone.core.subscribe("a/#", lambda _: done.append(2))
    assert done == [1, 2], "they live in the same tree"
    lone.core.unsubscribe("a/+")
    assert len(lone.core.trees) == 1
    lone.core.unsubscribe("a/#")
    lone.core.unsubscribe("a/#")
    assert len(lone.core.trees) == len(lone.core.subscriber) == 0


@pytest.mark.parametrize(("published_us", "kept"), [(1_999_999, {"a/b": b"x"}), (2_000_000, {}), (9_000_000, {})])
def test_what_is_on_its_way_to_another_filter_is_not_taken_before(
    lone: Lone, published_us: int, kept: dict[str, bytes]
) -> None:
    """Or the copy that comes would be taken for a repetition, and the other filter would not get it."""
    lone.wait(2.0)
    lone.core.subscribe("a/+", lambda _: None)
    attach(lone, "a/#")
    lone.wait(0.5)
    done: list[int] = []
    lone.core.subscribe("a/b", lambda _: done.append(1))
    attach(lone, "a/b")
    record = SharedRecord(RecordKind.RETAINED, "a/b", None, stamp_of(published_us, ROOT.id), False, body=b"x")
    lone.hears(ROOT, RootFetched("a/b", record))
    assert done == [1]
    assert lone.kept == kept
    one = Publication(0, 1, 0, "a/b", b"x", True, published_us)
    lone.takes_in(ROOT, "a/#", one, 1)
    assert lone.kept == {"a/b": b"x"}
    assert [given.body for given in lone.given] == ([] if kept else [b"x"])


def test_stamps_follow_the_wall_clock_of_the_shell_and_never_repeat() -> None:
    state = Lone(clock_us=lambda: 77).core._state
    assert state.clock_us() == 77
    assert state.stamp() == 77
    assert state.stamp() == 78


def test_who_leaves_before_is_told_too(lone: Lone) -> None:
    done: list[int] = []
    lone.core.subscribe("a", lambda _: done.append(1))
    lone.core.unsubscribe("a")
    assert done == [1]
    lone.hears(ROOT, RootFetched("a", None))
    assert not lone.core.subscriber.in_force("a")


def test_shared_filters_are_refused(lone: Lone) -> None:
    assert not ScribeEngine.serves("$share/g/a")
    assert ScribeEngine.serves("a/#")
    with pytest.raises(SharedFilterError, match=r"'\$share/g/a': Scribe serves no shared filters"):
        lone.core.subscribe("$share/g/a", lambda _: None)
    assert len(lone.core.subscriber) == 0


def test_wants_by_place(lone: Lone) -> None:
    lone.core.subscribe("a/+", lambda _: None)
    subscriber = lone.core.subscriber
    assert subscriber.wants("a/b")
    assert subscriber.wants_by("a/#", "a/b")
    assert not subscriber.wants_by("a/#", "a/b/c")
    assert not subscriber.wants_by("a/b", "a/b"), "nothing lives there"


def test_a_later_subscriber_gets_what_is_retained_once(scribe_ring: Ringed) -> None:
    world = scribe_ring(60, 4)
    world.pass_time(0.5)
    publisher, early, late, wild = world.random.sample(world.peers(), 4)
    world.subscribe(early, "a/b")
    world.pass_time(2.0)
    first = world.publish(publisher, "a/b", retain=True)
    world.pass_time(1.0)
    assert early.bodies == [first]
    done = world.subscribe(late, "a/b")
    world.subscribe(wild, "a/+")
    world.pass_time(2.0)
    assert done == ["a/b"]
    assert late.kept == {"a/b": first}
    assert wild.kept == {}, "what the baseline does not do"
    second = world.publish(publisher, "a/b", retain=True)
    world.pass_time(1.0)
    assert late.bodies == wild.bodies == [second]
    assert late.kept == wild.kept == {"a/b": second}
    world.publish(publisher, "a/b", retain=True, clears=True)
    world.pass_time(1.0)
    assert late.kept == {"a/b": b""}
