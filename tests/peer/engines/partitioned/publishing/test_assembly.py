"""After a start, publications wait for the peers of before, for a bounded time."""

from __future__ import annotations

import pytest

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.publishing.assembly import LOOKS, Assembly
from tests.peer.engines.partitioned.fake_homes import Coordinating, peer_near

OTHERS = [Peer(peer_near(number, 0).id, "10.0.0.1", 5000 + number, 1) for number in range(1, 4)]
ADDRESSES = [(peer.host, peer.port) for peer in OTHERS]


class Waiting:
    """A peer that has just become active, with a ring of before."""

    def __init__(self, former: list[tuple[str, int]], *present: Peer) -> None:
        self.world = Coordinating(0, shadows=2)
        self.opened = 0
        self.world.leaves(*present)
        self.waits = Assembly(self.world.state, former, self.open).begin()

    def open(self) -> None:
        self.opened += 1

    def run(self, seconds: float) -> int:
        """Returns how often it was over."""
        end = self.world.clock.now + seconds
        while self.world.clock.now < end:
            self.world.clock.now += 0.1
            self.world.state.timers.run(self.world.clock.now)
        return self.opened


@pytest.mark.parametrize("former", [[], ADDRESSES[:2]])
def test_no_wait_for_as_many_peers_as_there_are_copies(former: list[tuple[str, int]]) -> None:
    assert not Waiting(former).waits


def test_no_wait_in_a_ring_that_is_there() -> None:
    assert not Waiting(ADDRESSES, *OTHERS, peer_near(9, 0)).waits


def test_wait_is_over_when_all_have_been_back_for_a_while() -> None:
    waiting = Waiting(ADDRESSES, *OTHERS[:2])
    settle_s = waiting.world.state.config.slow_retry_s
    assert waiting.waits
    assert waiting.run(5.0) == 0
    waiting.world.leaves(*OTHERS)
    assert waiting.run(settle_s / 2) == 0
    waiting.world.leaves(*OTHERS[1:])
    assert waiting.run(settle_s) == 0
    waiting.world.leaves(*OTHERS)
    assert waiting.run(settle_s - settle_s / LOOKS) == 0
    assert waiting.run(settle_s) == 1
    assert waiting.run(60.0) == 1


def test_peer_that_stays_away_is_waited_for_as_long_as_a_lease() -> None:
    waiting = Waiting(ADDRESSES, *OTHERS[:2])
    lease_s = waiting.world.state.config.entry_s
    assert waiting.run(lease_s - 1.0) == 0
    assert waiting.run(2.0) == 1
