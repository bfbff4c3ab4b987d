"""The owners of partitions equal those found by sorting all peers, in any ring."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.overlay.core.ids import SPACE, Id, nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.replication.neighbourhood import SPARE, Neighbourhood
from ringmq.peer.replication.space import PARTITIONS, key_of_partition, runs_of

# Ids at keys of partitions and at the middles between them make ties.
STEP = SPACE // (4 * PARTITIONS)
IDS = st.one_of(
    st.integers(0, SPACE - 1),
    st.integers(0, 4 * PARTITIONS - 1).map(lambda number: number * STEP),
    st.integers(0, 40).map(lambda number: number * STEP),
).map(Id)


def peer_at(peer_id: Id, boot: int = 1) -> Peer:
    return Peer(peer_id, "10.0.0.1", 4883, boot)


def nearest(peers: list[Peer], partition: int) -> list[Peer]:
    key = key_of_partition(partition)
    return sorted(peers, key=lambda peer: nearness(key, peer.id))


@settings(max_examples=60, deadline=None)
@given(st.lists(IDS, min_size=1, max_size=12, unique=True), st.integers(0, 3), st.sets(st.integers(0, PARTITIONS - 1)))
def test_owners_are_the_nearest_peers(ids: list[Id], shadows: int, partitions: set[int]) -> None:
    peers = [peer_at(peer_id) for peer_id in ids]
    me = peers[0]
    neighbourhood = Neighbourhood(lambda: me, shadows)
    neighbourhood.update(peers[1:])
    for partition in {*partitions, 0, PARTITIONS - 1}:
        expected = nearest(peers, partition)
        assert list(neighbourhood.owners(partition)) == expected[: shadows + 1 + SPARE]
        assert list(neighbourhood.shadows(partition)) == expected[1 : shadows + 1]
        assert neighbourhood.first(partition) == (expected[0] == me)
        assert neighbourhood.belongs(partition) == (me in expected[: shadows + 1])


@settings(max_examples=40, deadline=None)
@given(st.lists(IDS, min_size=1, max_size=8, unique=True))
def test_mine_are_the_partitions_that_this_peer_is_the_nearest_to(ids: list[Id]) -> None:
    peers = [peer_at(peer_id) for peer_id in ids]
    neighbourhood = Neighbourhood(lambda: peers[0], 2)
    neighbourhood.update(peers[1:])
    mine = neighbourhood.mine()
    expected = [partition for partition in range(PARTITIONS) if nearest(peers, partition)[0] == peers[0]]
    assert sorted(mine) == expected
    assert neighbourhood.owned_runs() == runs_of(expected)


def test_all_peers_agree_on_the_coordinators_of_all_partitions() -> None:
    peers = [peer_at(Id(number * SPACE // 7 + number * number)) for number in range(7)]
    owned: list[int] = []
    for me in peers:
        neighbourhood = Neighbourhood(lambda me=me: me, 2)
        neighbourhood.update(peers)
        owned += neighbourhood.mine()
    assert sorted(owned) == list(range(PARTITIONS))


def test_update_reports_joins_departures_and_restarts() -> None:
    me, other = peer_at(Id(1)), peer_at(Id(SPACE // 2))
    neighbourhood = Neighbourhood(lambda: me, 2)
    assert not neighbourhood.update([])
    assert neighbourhood.update([other])
    assert not neighbourhood.update([other])
    assert neighbourhood.departures == 0
    assert neighbourhood.update([peer_at(other.id, boot=2)])
    assert neighbourhood.departures == 1
    assert neighbourhood.update([])
    assert (neighbourhood.departures, neighbourhood.version) == (2, 3)
    assert neighbourhood.mine() == list(range(PARTITIONS))
