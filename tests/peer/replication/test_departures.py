"""Departures of neighbours: whether all copies of a partition may be gone."""

from __future__ import annotations

import pytest

from ringmq.peer.messaging.config import LAN
from ringmq.peer.replication.departures import Departures
from tests.peer.conftest import Net


@pytest.mark.parametrize(("gone", "silent", "expected"), [(2, 0, False), (3, 0, True), (2, 1, True), (0, 3, True)])
def test_copies_are_lost_when_as_many_are_gone_or_silent_as_have_them(
    net: Net, gone: int, silent: int, expected: bool
) -> None:
    state = net.add(5).core._state
    departures = Departures(state)
    assert departures.follow(gone) is (gone > 0)
    assert departures.took_copies(silent) is expected
    assert not departures.follow(gone), "that is known"
    until = departures.trusted_until(silent)
    assert until == (state.clock.now + LAN.void_s if gone or expected else state.clock.now)
    net.now = state.clock.now = state.clock.now + LAN.void_s + LAN.entry_s
    assert departures.took_copies(silent) is (silent > LAN.shadows), "their entries have lapsed"
    assert not departures.began_lately
