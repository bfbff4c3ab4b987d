"""Which record wins, and which reign."""

from __future__ import annotations

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Epoch, Kind, Record

PEER = Peer(Id(7), "h", 1, 0)


def test_the_higher_number_wins() -> None:
    assert Record(Kind.ENTRY, "f", PEER, (1, 3), False).rank() > Record(Kind.ENTRY, "f", PEER, (1, 2), True).rank()
    assert Record(Kind.ENTRY, "f", PEER, (2, 1), False).rank() > Record(Kind.ENTRY, "f", PEER, (1, 9), True).rank()


def test_of_equal_numbers_an_ended_lease_wins_but_a_publisher_stays() -> None:
    for kind, winner in ((Kind.ENTRY, True), (Kind.PUBLISHER, False)):
        gone, there = (Record(kind, "f", PEER, (1, 1), flag) for flag in (True, False))
        assert (gone.rank() > there.rank()) is winner


def test_keys_tell_subscribers_apart_and_kinds() -> None:
    other = Peer(Id(8), "h", 1, 0)
    keys = {
        Record(Kind.ENTRY, "f", PEER, (1, 1), False).key,
        Record(Kind.ENTRY, "f", other, (1, 1), False).key,
        Record(Kind.PUBLISHER, "f", PEER, (1, 1), False).key,
        Record(Kind.RETAINED, "f", None, (1, 1), False).key,
    }
    assert len(keys) == 4


def test_reigns_are_ordered() -> None:
    assert Epoch(2, Id(1)) > Epoch(1, Id(9))
    assert Epoch(1, Id(2)) > Epoch(1, Id(1))
