"""The coordinators of partitions: by the leaf set, and by the word of others where it leaves a doubt."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.directory import FIRST_ASKED, MOST_ASKED, Areas
from ringmq.peer.engines.partitioned.messages import Here, Where
from ringmq.peer.replication.space import ALL, PARTITIONS, key_of_partition, partitions_in
from tests.peer.engines.partitioned.homes import Home, nearest, peer_at

PLACES = st.sets(st.integers(1, 63), max_size=20)


def home_of(places: set[int]) -> Home:
    """A home among peers at these 64ths of the ring."""
    home = Home(1)
    home.ring += [peer_at(place, 64) for place in sorted(places)]
    home.view.peers = list(home.ring)
    return home


def coordinators_of(home: Home) -> list[Peer | None]:
    """The answer of `everyone` by partition, each partition once."""
    ranges, unknown = home.directory.everyone()
    found: list[Peer | None] = [home.me] * PARTITIONS
    count = 0
    for peer, runs in [*ranges.items(), (None, unknown)]:
        for partition in partitions_in(runs):
            found[partition] = peer
            count += 1
        assert runs == sorted(runs)
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(runs)), "joined"
    assert count == PARTITIONS
    return found


@given(PLACES, PLACES)
def test_ranges_are_the_owners_of_all_partitions_also_after_a_change(before: set[int], after: set[int]) -> None:
    home = home_of(before)
    for places in (before, after, before | after):
        home.ring = home_of(places).ring
        home.view.peers = list(home.ring)
        owners = [home.actor(partition) for partition in range(PARTITIONS)]
        assert coordinators_of(home) == owners
        assert [home.directory.peek(partition) for partition in range(PARTITIONS)] == owners
        assert home.directory.coordinator(77) == owners[77]
    assert home.state.wheres == []


@settings(max_examples=30)
@given(PLACES, st.integers(0, 20))
def test_doubts_of_the_leaf_set_are_filled_by_the_word_of_the_owners(places: set[int], gap: int) -> None:
    home = home_of(places)
    suspect = home.ring[-1]
    ends = [*sorted(peer.id for peer in home.ring), SPACE]
    low, high = ends[gap % len(home.ring) :][:2]

    def doubted(key: Id) -> bool:
        return low < key < high or nearest(key, home.ring) == suspect

    home.view.doubted = doubted
    owners = [home.actor(partition) for partition in range(PARTITIONS)]
    doubts = [doubted(key_of_partition(partition)) for partition in range(PARTITIONS)]
    expected = [None if doubt else owner for doubt, owner in zip(doubts, owners, strict=True)]
    assert coordinators_of(home) == expected
    for _ in range(25):
        home.hear()
        home.directory.everyone()
    assert coordinators_of(home) == owners


def test_a_ring_beyond_the_leaf_set_is_explored_in_few_rounds() -> None:
    home = home_of(set(range(1, 64)))
    home.view.doubted = lambda key: True
    asked = rounds = 0
    while home.directory.everyone()[1]:
        rounds += 1
        assert len(home.directory._asked) <= MOST_ASKED
        asked += len(home.state.wheres)
        home.hear()
    assert rounds < 16
    assert asked < 200


def test_one_owner_of_everything_is_not_asked_a_thousand_times() -> None:
    home = Home(1)
    home.view.doubted = lambda key: True
    home.view.sees_all = False
    for partition in range(PARTITIONS):
        assert home.directory.coordinator(partition) is None
    assert len(home.state.wheres) == FIRST_ASKED
    home.hear()
    assert home.state.wheres == []
    assert home.directory.coordinator(5) == home.me


def test_each_suspect_is_asked_one_question_at_a_time() -> None:
    """On a busy machine all peers are suspects in turn. Dozens of questions to each of them, with all that these cause
    on their way, would leave time for nothing else."""
    home = home_of(set(range(8, 64, 8)))
    home.view.doubted = lambda key: True
    for _ in range(3):
        for partition in range(PARTITIONS):
            assert home.directory.coordinator(partition) is None
    asked = [home.actor(where.partition) for where in home.state.wheres]
    assert len(asked) == len(set(asked)) == FIRST_ASKED
    for _ in range(len(home.ring)):
        home.hear()
        asked = [home.actor(where.partition) for where in home.state.wheres]
        assert len(asked) == len(set(asked))
    assert all(home.directory.coordinator(partition) == home.actor(partition) for partition in range(PARTITIONS))


def test_areas_have_all_keys_of_each_member() -> None:
    home = home_of({3, 7, 20, 21, 40})
    areas = Areas()
    areas.follow(home.view)
    owners: dict[int | None, set[Peer]] = {}
    for partition in range(PARTITIONS):
        owners.setdefault(areas.of(partition), set()).add(home.actor(partition))
    assert len(owners) == len(home.ring)
    # The partition at the end of an area may be nearer to the next member by half of a partition.
    assert {peer for peers in owners.values() for peer in peers} == set(home.ring)
    assert all(len(peers) <= 2 for peers in owners.values())
    home.view.sees_all = False
    areas.follow(home.view)
    assert areas.of(5) is None, "there may be nearer peers that this one does not know"


def test_late_answers_have_others_asked_later() -> None:
    home = Home(8)
    home.view.doubted = lambda key: True
    for _ in range(100):
        home.state.answered(10.0)
    assert home.directory.coordinator(9) is None
    home.run(home.state.ask_s - 0.06, work=False)
    assert home.state.around == []
    home.run(0.1, work=False)
    assert home.state.around


def test_a_question_is_repeated_with_growing_waits_until_it_is_answered() -> None:
    home = Home(3)
    home.view.active = False
    known: list[int] = []
    home.directory._known = lambda: known.append(1)
    assert home.directory.coordinator(9) is None
    assert home.directory.coordinator(9) is None
    assert home.state.wheres == [Where(9, home.me)]
    home.run(0.15, work=False)
    assert len(home.state.wheres) == 2
    home.run(10.0, work=False)
    assert 6 <= len(home.state.wheres) <= 10
    before = len(home.state.wheres)
    assert home.directory.coordinator(2000) is None
    home.run(0.15, work=False)
    assert home.state.wheres[before:].count(Where(2000, home.me)) == 2, "a fresh question is not repeated late"
    assert known == []
    home.view.active = True
    home.run(1.0, work=False)
    assert known == [1], "the leaf set knows by now"
    home.state.wheres.clear()
    home.run(10.0, work=False)
    assert home.state.wheres == []


@pytest.mark.parametrize("place", [0, 1], ids=["this peer", "another peer"])
def test_a_peer_that_disclaims_what_it_owns_is_not_asked_again_without_a_pause(place: int) -> None:
    """It may own a partition and not coordinate it yet. This peer would answer itself, within an iteration without an
    end; others would be asked and disclaim as fast as the network goes."""
    home = Home(2)
    home.view.doubted = lambda key: True
    owner = home.ring[place]
    partition = next(each for each in range(PARTITIONS) if home.actor(each) == owner)
    assert home.directory.coordinator(partition) is None
    home.hear()
    assert home.directory.coordinator(partition) == owner
    home.state.wheres.clear()
    home.directory.wrong(owner, [partition])
    for _ in range(10):
        assert home.directory.coordinator(partition) is None
        home.hear()
        home.directory.wrong(owner, [partition])
    assert home.state.wheres == []
    home.run(0.5, work=False)
    assert Where(partition, home.me) in home.state.wheres
    home.hear()
    assert home.directory.coordinator(partition) == owner


def test_questions_without_answers_do_not_hold_up_others() -> None:
    home = Home(4)
    home.view.doubted = lambda key: True
    dead = home.ring.pop(1)
    for partition in range(1024 - FIRST_ASKED, 1024):
        home.directory.coordinator(partition)
    home.state.wheres.clear()
    home.directory.coordinator(3000)
    home.run(0.5, work=False)
    assert Where(3000, home.me) in home.state.wheres
    assert dead not in home.directory.everyone()[0]


def test_the_word_of_a_peer_replaces_its_earlier_word_and_that_of_others() -> None:
    home = Home(1)
    home.view.doubted = lambda key: True
    first, second = peer_at(4), peer_at(8)
    restarted = peer_at(4, boot=9)
    home.directory.here(first, Here(((100, 200),)))
    home.directory.here(second, Here(((150, 300),)))
    assert [home.directory.coordinator(p) for p in (100, 149, 150, 300)] == [first, first, second, second]
    home.directory.here(restarted, Here(((100, 120),)))
    assert home.directory.coordinator(100) == restarted
    assert home.directory.coordinator(149) is None
    home.directory.wrong(first, [100])
    assert home.directory.coordinator(100) == restarted, "another boot said so"
    home.directory.wrong(restarted, [100])
    assert home.directory.coordinator(100) is None
    assert home.directory.coordinator(101) == restarted


def test_a_doubted_peer_is_believed_no_more() -> None:
    home = Home(1)
    home.view.doubted = lambda key: True
    other = peer_at(8)
    home.directory.here(other, Here(ALL))
    assert home.directory.coordinator(1) == other
    home.view.suspects.add(other)
    assert home.directory.coordinator(1) is None
    home.view.suspects.clear()
    assert home.directory.coordinator(1) == other
    home.view.suspects.add(other)
    assert home.directory.everyone() == ({}, [*ALL])


def test_a_doubted_peer_that_is_said_to_act_changes_nothing() -> None:
    """It would be forgotten at the next look, and a peer that named one to itself would ask itself without an end."""
    home = Home(2)
    other = home.ring[1]
    partition = next(each for each in range(PARTITIONS) if home.actor(each) == home.me)
    told: list[Peer | None] = []
    home.directory._known = lambda: told.append(home.directory.coordinator(partition))
    home.view.suspects.add(other)
    home.directory.acting(other, [partition])
    assert told == []
    home.view.suspects.clear()
    home.directory.acting(other, [partition])
    assert told == [other]


def test_verify_asks_beyond_the_leaf_set_only() -> None:
    home = Home(2)
    home.directory.verify(5)
    assert home.state.wheres == []
    home.view.doubted = lambda key: True
    home.hear()
    other = peer_at(8)
    home.directory.here(other, Here(ALL))
    home.directory.verify(5)
    assert home.state.wheres == [Where(5, home.me)]
    assert home.directory.coordinator(5) == other, "believed until there is another answer"
    home.hear()
    assert home.directory.coordinator(5) == home.me


def test_an_owner_answers_with_its_ranges() -> None:
    home = Home(2)
    stranger = peer_at(5)
    home.directory.where(peer_at(6), Where(1, stranger))
    assert home.state.heres == [(stranger, Here(home.owned_runs(), home.neighbours(home.me)))]
    home.ring = [peer_at(8)]
    home.directory.where(stranger, Where(1, stranger))
    assert len(home.state.heres) == 1, "a peer that owns nothing knows nothing"


def test_a_suspect_that_answers_is_seen_between_two_ranges_in_doubt() -> None:
    home = home_of({16, 32, 48})
    home.view.doubted = lambda key: True
    assert set(coordinators_of(home)) == {None}
    # The first and the last partition stay in the widest gap.
    home.view.doubted = lambda key: key >> 122 in (0, 1, 62, 63)
    home.directory.review()
    middle = PARTITIONS // 2
    assert home.directory.peek(middle) == home.actor(middle)
    assert home.directory.peek(0) is None


@given(PLACES, st.integers(0, 20), st.integers(0, 64))
def test_few_coordinators_are_all_or_none(places: set[int], gap: int, most: int) -> None:
    home = home_of(places)
    ends = [*sorted(peer.id for peer in home.ring), SPACE]
    low, high = ends[gap % len(home.ring) :][:2]
    home.view.doubted = lambda key: low < key < high
    for _ in range(2):
        home.directory.review()
        owners = [home.directory.peek(partition) for partition in range(PARTITIONS)]
        assert home.directory.by_partition() == owners
        all_known = None not in owners and len(set(owners)) <= most
        assert set(home.directory.few(most)) == (set(owners) if all_known else set())
        for _ in range(25):
            home.directory.everyone()
            home.hear()


def test_dividing_a_large_ring_takes_few_look_ups() -> None:
    """The leaf set leaves most partitions in doubt: they are not looked up one by one."""
    home = home_of(set(range(1, 64)))
    home.view.doubted = lambda key: key_of_partition(1000) < key < key_of_partition(4000)
    asked: list[Id] = []
    owner = home.view.owner
    home.view.owner = lambda key: asked.append(key) or owner(key)  # type: ignore[method-assign, func-returns-value]
    home.directory.review()
    assert home.directory.peek(500) == home.actor(500)
    assert home.directory.peek(2000) is None
    assert len(asked) < 1000
