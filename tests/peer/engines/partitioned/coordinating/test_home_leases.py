"""The digests of a home follow the live entries of each partition, and its lease is one for all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.home_leases import MOST_BUSY, NOTHING, HomeLeases
from ringmq.peer.engines.partitioned.names import fingerprint_of
from ringmq.peer.replication.record import RecordKind, SharedRecord, digest_of
from ringmq.peer.replication.space import ALL

HOME = Peer(Id(1), "10.0.0.1", 4883, 4)


def entry(name: str, count: int, home: Peer = HOME) -> SharedRecord:
    return SharedRecord(RecordKind.ENTRY, name, home, (home.boot, count), False)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcd")), max_size=30))
def test_digests_follow_entries_that_come_and_go(changes: list[tuple[int, str]]) -> None:
    leases = HomeLeases()
    there: dict[tuple[int, str], SharedRecord] = {}
    for count, change in enumerate(changes, 1):
        partition, name = change
        known = there.pop(change, None)
        if known is None:
            there[change] = entry(name, count)
            leases.added(partition, there[change], 10.0)
        else:
            leases.removed(partition, known)
    expected: dict[int, tuple[int, int]] = {}
    for (partition, name), record in there.items():
        count, digest = expected.get(partition, NOTHING)
        expected[partition] = count + 1, digest ^ digest_of(fingerprint_of(name), record.number)
    home = leases.get(HOME.id)
    assert (home is None and not expected) or (home is not None and leases.within(home, ALL) == expected)
    if home is not None:
        assert leases.within(home, ((1, 2),)) == {p: expected[p] for p in (1, 2) if p in expected}


def test_lease_is_never_shortened_and_a_restart_is_reported_once() -> None:
    leases = HomeLeases()
    assert not leases.heard(HOME, 20.0)
    assert not leases.heard(HOME, 10.0)
    again = Peer(HOME.id, HOME.host, HOME.port, HOME.boot + 1)
    assert leases.heard(again, 15.0)
    assert not leases.heard(again, 15.0)
    assert not leases.heard(HOME, 15.0)
    home = leases.get(HOME.id)
    assert home is not None
    assert (home.until, home.peer) == (20.0, again)


def test_home_without_entries_in_coordinated_partitions_is_forgotten() -> None:
    leases = HomeLeases()
    leases.added(1, entry("a", 1), 10.0)
    leases.added(2, entry("b", 2), 10.0)
    leases.left({1, 7})
    assert leases.get(HOME.id) is not None
    leases.left({2})
    assert leases.get(HOME.id) is None


def test_home_that_sends_anything_is_busy_for_a_while() -> None:
    """Its renewals may wait behind what it sends; but what it has forgotten must end some time."""
    entry_s = 15.0
    leases = HomeLeases()
    leases.added(1, entry("a", 1), entry_s)
    home = leases.get(HOME.id)
    ends = entry_s * (1 + MOST_BUSY)

    def expired(now: float, heard_at: float) -> bool:
        return list(leases.expired(now, entry_s, lambda peer: heard_at)) == [home]

    assert not expired(entry_s - 1, 0.0)
    assert expired(entry_s + 1, 0.0)
    assert not expired(entry_s + 1, entry_s)
    assert not expired(ends - 1, ends - 2)
    assert expired(ends, ends - 1)
    assert home is not None
    home.away = True
    assert not expired(ends, 0.0)
