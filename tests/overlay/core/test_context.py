"""Shared state of the parts of a core."""

import dataclasses

from ringmq.overlay.core.context import Counters, RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Heartbeat, Peer
from ringmq.overlay.core.timing import LAN

ME = Peer(Id(1), "me", 1, 0)


def test_as_dict_has_all_counters() -> None:
    counters = Counters(*range(1, len(dataclasses.fields(Counters)) + 1))
    told = counters.as_dict()
    assert list(told) == [field.name for field in dataclasses.fields(Counters)]
    assert list(told.values()) == list(range(1, len(told) + 1))
    assert set(Counters().as_dict().values()) == {0}


def test_numbers_are_used_once() -> None:
    state = RingContext(ME, LAN)
    assert [state.next_seq() for _ in range(3)] == [1, 2, 3]
    assert state.seq == 3


def test_the_outbox_keeps_the_order_of_messages() -> None:
    state = RingContext(ME, LAN, half=4)
    others = [Peer(Id(number), "other", 1, 0) for number in (5, 3, 5)]
    for other in others:
        state.post(other, Heartbeat())
    assert [peer for peer, _ in state.outbox] == others
    assert (state.leaves.center, state.leaves.half, state.table.center) == (ME.id, 4, ME.id)
    assert not state.active
