"""Connections of the simulator delay and end as those of TCP do."""

from __future__ import annotations

import pytest

from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.world import Node, World
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Parcel, Peer
from ringmq.overlay.core.timing import LAN

PATIENCE_S = LAN.silence_s + LAN.fastest_verdict_s
SOON_S = 0.1


class Pair:
    """Two peers that are no ring, and what each has got and lost."""

    def __init__(self, *, resets: bool = False) -> None:
        self.world = World(1, LAN, Weather(connections=True, resets=resets), strict=False)
        self.ends = [self.world.add(Id(number << 100)) for number in (1, 2)]
        self.got: list[tuple[int, float, bytes]] = []
        self.lost: list[tuple[int, float, bool]] = []
        for number, node in enumerate(self.ends):
            self._watch(number, node)

    def _watch(self, number: int, node: Node) -> None:
        def receive(sender: Peer, payload: bytes) -> None:
            self.got.append((number, self.world.now, payload))

        def link_lost(peer: Peer, now: float, refused: bool) -> None:
            self.lost.append((number, now, refused))

        class Heard:
            """The ring of a node, of which nothing is tested here."""

            def __getattr__(self, name: str) -> object:
                return getattr(ring, name)

            def receive(self, sender: Peer, message: Parcel, now: float) -> None:
                receive(sender, message.payload)

            def link_lost(self, peer: Peer, now: float, refused: bool) -> None:
                link_lost(peer, now, refused)

        ring = node.ring
        node.ring = Heard()  # type: ignore[assignment]

    def send(self, payload: bytes, sender: int = 0) -> None:
        node = self.ends[sender]
        assert self.world.connections is not None
        self.world.connections.send(node, self.ends[1 - sender].peer, Parcel(payload))

    def cut(self, for_s: float, both: bool = True) -> None:
        first, second = (node.peer.id for node in self.ends)
        self.world.network.cut(first, second, self.world.now + for_s)
        if both:
            self.world.network.cut(second, first, self.world.now + for_s)

    def later(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.got]


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.send(b"first")
    pair.later(SOON_S)
    assert pair.bodies() == [b"first"]
    pair.got.clear()
    return pair


@pytest.mark.parametrize("both", [True, False])
def test_a_cut_delays_what_is_sent_into_it_in_order(pair: Pair, *, both: bool) -> None:
    pair.cut(1.0, both)
    start = pair.world.now
    for number in range(3):
        pair.send(b"%d" % number)
        pair.later(0.3)
    pair.later(3.0)
    assert pair.bodies() == [b"0", b"1", b"2"]
    # Sent again after 0.2, 0.6 and 1.4 s.
    assert {round(at - start, 1) for _, at, _ in pair.got} == {1.4}
    assert pair.lost == []


def test_a_cut_of_the_other_direction_stops_what_is_sent_after_a_moment(pair: Pair) -> None:
    """The acknowledgements are lost."""
    pair.cut(1.0, both=False)
    pair.send(b"at once", 1)
    pair.later(0.3)
    assert pair.bodies() == [b"at once"]
    pair.send(b"later", 1)
    pair.later(0.5)
    assert pair.bodies() == [b"at once"]
    pair.later(1.0)
    assert pair.bodies() == [b"at once", b"later"]


def test_an_end_gives_up_and_the_other_learns_of_it_when_it_sends(pair: Pair) -> None:
    pair.cut(5.0)
    start = pair.world.now
    pair.send(b"held")
    pair.later(6.0)
    assert [(number, round(at - start, 3), refused) for number, at, refused in pair.lost] == [
        (0, round(PATIENCE_S, 3), False)
    ]
    pair.send(b"into nothing", 1)
    pair.later(SOON_S)
    assert [(number, refused) for number, _, refused in pair.lost[1:]] == [(1, False)]
    assert pair.bodies() == [], "all that was held is lost"
    pair.send(b"anew", 1)
    pair.send(b"and back")
    pair.later(SOON_S)
    assert set(pair.bodies()) == {b"anew", b"and back"}


def test_a_dial_into_a_cut_fails_or_succeeds_when_it_is_tried_again() -> None:
    pair = Pair()
    pair.cut(0.5)
    pair.send(b"x")
    pair.later(0.9)
    assert pair.bodies() == []
    pair.later(0.2)
    assert pair.bodies() == [b"x"]
    other = Pair()
    other.cut(10.0)
    other.send(b"x")
    other.later(4.0)
    assert [refused for _, _, refused in other.lost] == [True]


@pytest.mark.parametrize("resets", [True, False])
def test_the_machine_of_a_process_that_has_ended_says_so_unless_it_lost_power(*, resets: bool) -> None:
    pair = Pair(resets=resets)
    pair.send(b"first")
    pair.later(SOON_S)
    pair.world.crash(pair.ends[1])
    pair.later(SOON_S)
    assert [refused for _, _, refused in pair.lost] == ([False] if resets else [])
    pair.send(b"into nothing")
    pair.later(SOON_S)
    assert [refused for _, _, refused in pair.lost] == ([False, True] if resets else [])
    pair.later(PATIENCE_S)
    assert [refused for _, _, refused in pair.lost] == ([False, True] if resets else [False])


def test_both_may_dial_at_once() -> None:
    pair = Pair()
    pair.send(b"to the second")
    pair.send(b"to the first", 1)
    pair.later(SOON_S)
    assert sorted((number, body) for number, _, body in pair.got) == [(0, b"to the first"), (1, b"to the second")]
    assert pair.lost == []
