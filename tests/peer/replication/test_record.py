"""Records merge by rank, and epochs are ordered."""

from __future__ import annotations

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.replication.record import EPOCHS, Epoch, RecordKind, SharedRecord, next_epoch

HOME = Peer(Id(7), "h", 1, 0)


def entry(number: tuple[int, int], gone: bool = False, home: Peer = HOME) -> SharedRecord:
    return SharedRecord(RecordKind.ENTRY, "f", home, number, gone)


def retained(number: tuple[int, int], gone: bool = False, confirmed: bool = False) -> SharedRecord:
    return SharedRecord(RecordKind.RETAINED, "f", None, number, gone, confirmed)


def test_the_higher_number_wins() -> None:
    assert entry((1, 3)).rank() > entry((1, 2), gone=True).rank()
    assert entry((2, 1)).rank() > entry((1, 9), gone=True).rank()


def test_of_equal_numbers_a_lapsed_entry_and_a_live_message_win() -> None:
    assert entry((1, 1), gone=True).rank() > entry((1, 1)).rank()
    assert retained((1, 1)).rank() > retained((1, 1), gone=True).rank()
    assert retained((1, 1), confirmed=True).rank() > retained((1, 1)).rank()


def test_the_end_of_a_message_has_a_higher_number_and_that_of_an_entry_the_same() -> None:
    assert retained((4, 9)).ended() == retained((5, 9), gone=True)
    assert entry((4, 9)).ended() == entry((4, 9), gone=True)


def test_keys_distinguish_homes_and_kinds() -> None:
    other = Peer(Id(8), "h", 1, 0)
    assert len({entry((1, 1)).key, entry((1, 1), home=other).key, retained((1, 1)).key}) == 3


def test_epochs_are_ordered_by_number_and_then_by_actor() -> None:
    assert Epoch(2, Id(1)) > Epoch(1, Id(9))
    assert Epoch(1, Id(2)) > Epoch(1, Id(1))


def test_there_is_an_epoch_above_any_other() -> None:
    for number in (0, 1, 1 << 62, EPOCHS - 1):
        assert Epoch(next_epoch(number), Id(1)) > Epoch(number, Id(9)) >= Epoch(number, Id(1))
    assert Epoch(1, Id(1)) > Epoch(0, Id(9)), "none is below all"
    assert not Epoch(0, Id(9)) > Epoch(EPOCHS - 1, Id(1))
    assert Epoch(3, Id(2)) <= Epoch(3, Id(2)) < Epoch(3, Id(3))
