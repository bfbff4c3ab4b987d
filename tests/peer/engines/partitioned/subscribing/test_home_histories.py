"""Any history of filters and coordinators: each call is made once, and both sides have the same in the end."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import (
    Present,
)
from ringmq.peer.engines.partitioned.names import fingerprint_of, partition_of_filter
from ringmq.peer.engines.partitioned.subscribing import fresh_parents, wide_filter, widening
from ringmq.peer.engines.partitioned.subscribing.filter_stage import FilterStage
from ringmq.peer.engines.partitioned.subscribing.local_filter import LocalFilter
from ringmq.peer.engines.partitioned.subscribing.wide_filter import WideEntry, WideFilter
from ringmq.peer.messaging.shared_filters import inner_of, is_shared
from ringmq.peer.replication.record import digest_of
from tests.peer.engines.partitioned.homes import Home, peer_at


def is_served(own: LocalFilter) -> bool:
    """Whether a wide filter serves it, and no coordinator knows it."""
    return isinstance(own.partition, WideFilter)


def digests_of(home: Home) -> dict[int, tuple[int, int]]:
    """Counts and digests by partition, from the filters alone."""
    model: dict[int, tuple[int, int]] = {}
    for own in home.subscriber:
        if own.stage is not FilterStage.LEAVING and not is_served(own):
            partition = partition_of_filter(own.filter)
            count, digest = model.get(partition, (0, 0))
            model[partition] = count + 1, digest ^ digest_of(fingerprint_of(inner_of(own.filter)), own.number)
    return model


FILTERS = ["a", "b/c", "d", "a/+", "#", "$share/g/a", "e/#", "f"]
BELOW = ["p/1", "p/2", "p/3", "p/+", "p/#"]
EVENTS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(FILTERS)),
    st.tuples(st.just("add"), st.sampled_from(FILTERS)),
    st.tuples(st.just("keep"), st.sampled_from(FILTERS)),
    st.tuples(st.just("remove"), st.sampled_from(FILTERS)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("work"), st.integers(0, 4)),
    st.tuples(st.just("grant"), st.integers(0, 4)),
    st.tuples(st.just("hear"), st.integers(1, 3)),
    st.tuples(st.just("run"), st.integers(1, 8)),
    st.tuples(st.just("lapse"), st.sampled_from(FILTERS)),
    st.tuples(st.just("vanish"), st.sampled_from(FILTERS)),
    st.tuples(st.just("lost"), st.integers(0, 4)),
    st.tuples(st.just("die"), st.integers(1, 4)),
    st.tuples(st.just("join"), st.integers(1, 15)),
    st.tuples(st.just("look"), st.just(0)),
    st.tuples(st.just("doubt"), st.integers(0, 2)),
    st.tuples(st.just("suspect"), st.integers(0, 4)),
    st.tuples(st.just("renew"), st.just(0)),
)


class Story:
    """A history of events, with all calls of `done` counted."""

    def __init__(self) -> None:
        self.home = Home(5)
        self.added: list[tuple[str, int]] = []
        self.done: Counter[int] = Counter()
        self.wanted: set[str] = set()
        self.lasting: set[str] = set()
        for topic in ("a", "b/c", "e/f", "a/x"):
            self.home.retain(topic, topic.encode())

    def peer(self, index: int) -> Peer:
        return self.home.ring[index % len(self.home.ring)]

    def step(self, event: str, argument: str | int) -> None:
        home = self.home
        if isinstance(argument, str):
            self._of_a_filter(event, argument)
            return
        match event:
            case "flush":
                home.subscriber.flush()
            case "work":
                home.work(self.peer(argument))
            case "grant":
                home.grant(self.peer(argument))
            case "hear":
                home.hear(argument)
            case "run":
                home.run(argument * 0.1, work=False)
            case "lost":
                home.lose(self.peer(argument))
            case "die":
                victim = self.peer(argument)
                if victim != home.me:
                    home.ring.remove(victim)
                    home.sent.pop(victim, None)
            case "join":
                if all(peer.id != peer_at(argument).id for peer in home.ring):
                    home.ring.append(peer_at(argument, boot=6 + len(self.added)))
            case "look":
                home.view.peers = list(home.ring)
                home.subscriber.coordinators_changed()
            case "suspect":
                home.view.suspects ^= {self.peer(argument)}
            case "renew":
                home.subscriber.renew()
            case "doubt":
                home.view.doubted = lambda key: argument == 1 or (argument == 2 and key % 2 == 1)

    def _of_a_filter(self, event: str, name: str) -> None:
        home = self.home
        match event:
            case "add" | "keep":
                ident = len(self.added)
                self.added.append((name, ident))
                self.wanted.add(name)
                self.lasting.discard(name)
                if event == "keep":
                    self.lasting.add(name)
                home.subscriber.add(name, lambda: self.done.update([ident]), event == "keep")
            case "remove":
                self.lasting.discard(name)
                home.subscriber.remove(name)
                if name in self.wanted:
                    self.wanted.discard(name)
                    home.granted.pop(name, None)
            case "bring":
                self.bring(name)
            case "lapse":
                home.lapse(name, said=True)
            case "vanish":
                home.lapse(name, said=False)

    def bring(self, topic: str) -> None:
        """A publication comes by the routes of this home."""
        if self.home.state.brought is not None:
            self.home.state.brought(topic, self.home.subscriber.wants(topic), None, None)

    def check(self) -> None:
        home = self.home
        assert all(times == 1 for times in self.done.values())
        partitions = home.subscriber._partitions
        assert {index: (p.count, p.digest) for index, p in partitions.items() if p.count} == digests_of(home)
        for index, partition in partitions.items():
            assert partition.filters, "nothing is kept of an empty partition"
            assert partition.index == index
            assert partition.unanswered == sum(own.unanswered for own in partition.filters.values())
        for own in home.subscriber:
            if isinstance(own.partition, WideFilter):
                entry = own.partition.entry
                assert home.granted.get(entry.filter) == entry.number
                assert own.stage in (FilterStage.FETCHING, FilterStage.IN_FORCE)
                continue
            last = home.granted.get(own.filter) == own.number
            if own.stage is FilterStage.IN_FORCE:
                assert last
            elif own.stage in (FilterStage.ASKING, FilterStage.CHANGING):
                assert not last
            waited_for = [ident for name, ident in self.added if name == own.filter and not self.done[ident]]
            if own.stage is FilterStage.IN_FORCE:
                assert waited_for == []
        assert {name for name in (*FILTERS, *BELOW) if home.subscriber.has(name)} == self.wanted

    def end(self, *, near: bool) -> None:
        """All is quiet, and the home hears of the ring: by its leaf set, or in a large ring by the word of others."""
        home = self.home
        home.view.suspects.clear()
        if near:
            home.view.doubted = lambda key: False
            home.view.peers = list(home.ring)
            home.subscriber.coordinators_changed()
        else:
            home.view.doubted = lambda key: True
        home.run(20.0 if near else 40.0)
        self.check()
        assert len(self.done) == len(self.added)
        assert len(home.subscriber) == len(self.wanted)
        assert all(home.subscriber.has(own.filter) or isinstance(own, WideEntry) for own in home.subscriber)
        assert all(home.subscriber.in_force(name) for name in self.wanted)
        assert home.live() == {own.filter: own.number for own in home.subscriber if not is_served(own)}
        assert home.lasting() == self.lasting
        for topic in home.retained:
            here = any(matches(name, topic) for name in self.wanted if not is_shared(name))
            assert home.kept.get(topic, b"") == (topic.encode() if here else b"")
        home.log.clear()
        home.run(6.0)
        assert {type(item) for _, item in home.log} <= {Present}, "a home at rest only renews"


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=60), st.booleans())
def test_any_history_ends_with_the_same_filters_here_and_there(events: list[tuple[str, str | int]], near: bool) -> None:
    story = Story()
    for event, argument in events:
        story.step(event, argument)
        story.check()
    story.end(near=near)


BELOW_EVENTS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(BELOW)),
    st.tuples(st.just("add"), st.sampled_from(BELOW[:3])),
    st.tuples(st.just("keep"), st.sampled_from(BELOW)),
    st.tuples(st.just("remove"), st.sampled_from(BELOW[:3])),
    st.tuples(st.just("remove"), st.sampled_from(BELOW)),
    st.tuples(st.just("bring"), st.sampled_from(["p/1", "p/2", "p/unwanted"])),
    st.tuples(st.just("lapse"), st.sampled_from(BELOW)),
    st.tuples(st.just("vanish"), st.sampled_from(BELOW)),
    st.tuples(st.just("run"), st.integers(1, 100)),
    EVENTS,
)


def widened_story() -> Story:
    """A story that begins with a wide filter in force."""
    story = Story()
    for event, name in [("add", "p/1"), ("remove", "p/1"), ("add", "p/2"), ("remove", "p/2"), ("add", "p/2")]:
        story.step(event, name)
        story.home.settle()
    assert story.home.subscriber.wide
    return story


@settings(max_examples=100, deadline=None)
@given(st.lists(BELOW_EVENTS, max_size=40), st.booleans())
def test_any_history_with_wide_filters_ends_with_the_same_filters_here_and_there(
    events: list[tuple[str, str | int]], near: bool
) -> None:
    with (
        patch.object(fresh_parents, "FRESH", 1),
        patch.object(fresh_parents, "PAUSE_S", 0.2),
        patch.object(wide_filter, "ALLOWANCE", 1),
        patch.object(widening, "UNUSED_S", 8.0),
    ):
        story = widened_story()
        story.home.retain("p/1", b"p/1")
        for event, argument in events:
            story.step(event, argument)
            story.check()
        story.end(near=near)
        assert not story.home.subscriber.wide, "nobody has used it for a while"
