"""Whose keys are whose, against a model that looks at everybody."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import MASK, SPACE, Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.ownership import KEYS_AT_ONCE, MAX_OWNERS, Ownership
from ringmq.overlay.core.timing import LAN
from ringmq.overlay.errors import OverlayError

ME = Peer(Id(3), "me", 1, 0)
# Few points, dense around zero, where the circle closes.
points = st.one_of(st.integers(0, 40), st.integers(MASK - 40, MASK), st.integers(1, 7).map(lambda n: n << 125))
others = points.filter(lambda peer_id: peer_id != ME.id).map(lambda peer_id: Peer(Id(peer_id), "h", 1, 0))


def far(key: int, peer_id: int) -> tuple[int, bool]:
    up, down = (peer_id - key) % SPACE, (key - peer_id) % SPACE
    return min(up, down), up < down


class Watched:
    """An ownership that is notified of each change as by a ring."""

    def __init__(self, half: int = 16) -> None:
        self.state = RingContext(ME, LAN, half)
        self.changes: list[tuple[Id, tuple[Peer, ...]]] = []
        self.core = Ownership(self.state, lambda key, owners: self.changes.append((key, owners)))

    def turn(self, peer: Peer) -> None:
        """In if it is out and belongs there, out if it is in."""
        leaves = self.state.leaves
        if peer.id in leaves:
            self.core.changed(None, leaves.remove(peer.id))
        elif leaves.admits(peer.id):
            self.core.changed(peer, leaves.add(peer))

    def model(self, key: Id, count: int) -> tuple[Peer, ...]:
        return tuple(sorted((*self.state.leaves, ME), key=lambda peer: far(key, peer.id))[:count])


@given(
    st.sampled_from([2, 16]),
    st.lists(others, max_size=40),
    st.dictionaries(points.map(Id), st.integers(1, 4), min_size=1, max_size=8),
    st.lists(others, max_size=30),
)
def test_a_change_is_reported_exactly_when_the_closest_peers_change(
    half: int, before: list[Peer], keys: dict[Id, int], after: list[Peer]
) -> None:
    watched = Watched(half)
    for peer in before:
        watched.turn(peer)
    known = {key: watched.core.watch(key, count) for key, count in keys.items()}
    assert known == {key: watched.model(key, count) for key, count in keys.items()}
    for peer in after:
        watched.changes.clear()
        watched.turn(peer)
        now = {key: watched.model(key, count) for key, count in keys.items()}
        assert sorted(watched.changes) == sorted((key, now[key]) for key in keys if now[key] != known[key])
        known = now


@given(st.lists(others, max_size=40), points.map(Id), st.integers(1, MAX_OWNERS))
def test_owners_are_the_closest(among: list[Peer], key: Id, count: int) -> None:
    watched = Watched()
    for peer in among:
        watched.turn(peer)
    assert watched.core.owners(key, count) == watched.model(key, count)


def test_an_unwatched_key_causes_no_report() -> None:
    watched = Watched()
    watched.core.watch(Id(5), 2)
    watched.core.unwatch(Id(5))
    watched.core.unwatch(Id(5))
    watched.turn(Peer(Id(5), "h", 1, 0))
    assert watched.changes == []


def test_watching_again_replaces_the_number_of_owners() -> None:
    watched = Watched()
    watched.core.watch(Id(5), 1)
    watched.core.watch(Id(5), 2)
    far_one, near_one = Peer(Id(99), "h", 1, 0), Peer(Id(5), "h", 1, 0)
    watched.turn(far_one)
    assert watched.changes == [(5, (ME, far_one))]
    watched.core.watch(Id(5), 1)
    watched.turn(near_one)
    assert watched.changes[1:] == [(5, (near_one,))]


def test_a_report_may_watch_and_unwatch() -> None:
    watched = Watched()
    told = []

    def change(key: Id, owners: tuple[Peer, ...]) -> None:
        told.append(key)
        core.unwatch(Id(6))
        core.watch(Id(key + 100), 1)

    core = Ownership(watched.state, change)
    for key in (5, 6, 7):
        core.watch(Id(key), 1)
    peer = Peer(Id(6), "h", 1, 0)
    watched.state.leaves.add(peer)
    core.changed(peer, None)
    assert told == [5, 7]


def test_of_many_keys_some_are_looked_at_now_and_the_others_soon() -> None:
    watched = Watched()
    keys = [Id(number << 20) for number in range(2 * KEYS_AT_ONCE + 5)]
    for key in keys:
        watched.core.watch(key, 1)
    near = Peer(Id(keys[-1] + 1), "h", 1, 0)
    watched.turn(near)
    told = 0
    for _ in range(3):
        assert len({key for key, _ in watched.changes}) == len(watched.changes) <= KEYS_AT_ONCE + told
        told = len(watched.changes)
        watched.state.now = watched.state.timers.next_at
        watched.state.timers.run(watched.state.now)
    assert watched.changes == [(key, (near,)) for key in sorted(keys) if watched.model(key, 1) == (near,)]
    assert watched.changes
    assert watched.state.timers.next_at == inf


def test_a_key_checked_later_is_reported_with_its_owners_then() -> None:
    watched = Watched()
    for number in range(KEYS_AT_ONCE + 5):
        watched.core.watch(Id(1 << 100 | number), 1)
    near, far_one = Peer(Id(1 << 100), "h", 1, 0), Peer(Id(1 << 99), "h", 1, 0)
    watched.turn(near)
    assert len(watched.changes) == KEYS_AT_ONCE
    watched.turn(near)
    watched.turn(far_one)
    while watched.state.timers.next_at < inf:
        watched.state.now = watched.state.timers.next_at
        watched.state.timers.run(watched.state.now)
    last = dict(watched.changes)
    assert set(last.values()) == {(far_one,)}
    assert len(last) == KEYS_AT_ONCE + 5


def test_news_answers_at_once_and_replaces_the_report() -> None:
    watched = Watched()
    keys = [Id(1 << 100 | number) for number in range(KEYS_AT_ONCE + 5)]
    for key in keys:
        watched.core.watch(key, 1)
    assert watched.core.news(keys[-1]) is None
    near = Peer(Id(1 << 100), "h", 1, 0)
    watched.turn(near)
    told = {key for key, _ in watched.changes}
    asked = next(key for key in keys if key not in told)
    assert watched.core.news(asked) == (near,)
    assert watched.core.news(asked) is None
    assert watched.core.news(next(iter(told))) is None
    watched.state.now = watched.state.timers.next_at
    watched.state.timers.run(watched.state.now)
    assert sorted([*(key for key, _ in watched.changes), asked]) == keys


def test_a_report_may_ask_for_the_news_of_another_key() -> None:
    watched = Watched()
    told: list[tuple[Id, object]] = []

    def change(key: Id, owners: tuple[Peer, ...]) -> None:
        told.append((key, owners))
        if key == 5:
            told.append((Id(7), core.news(Id(7))))

    core = Ownership(watched.state, change)
    for key in (5, 6, 7):
        core.watch(Id(key), 1)
    peer = Peer(Id(6), "h", 1, 0)
    watched.state.leaves.add(peer)
    core.changed(peer, None)
    assert told == [(5, (peer,)), (7, (peer,)), (6, (peer,))]


def test_an_unwatched_key_has_no_news() -> None:
    watched = Watched()
    keys = [Id(1 << 100 | number) for number in range(KEYS_AT_ONCE + 5)]
    for key in keys:
        watched.core.watch(key, 1)
    watched.turn(Peer(Id(1 << 100), "h", 1, 0))
    told = {key for key, _ in watched.changes}
    asked = next(key for key in keys if key not in told)
    watched.core.unwatch(asked)
    assert watched.core.news(asked) is None


@pytest.mark.parametrize("count", [-1, 0, MAX_OWNERS + 1])
def test_the_number_of_owners_is_bounded(count: int) -> None:
    watched = Watched()
    for ask in (watched.core.owners, watched.core.watch):
        with pytest.raises(OverlayError, match=f"owners must be 1 to {MAX_OWNERS}, got {count}"):
            ask(Id(1), count)
    watched.turn(Peer(Id(1), "h", 1, 0))
    assert watched.changes == []
