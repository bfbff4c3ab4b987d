"""Messages to others: sent, sent again, and done when they are held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.config import LAN
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.messages import Held, Unserved
from ringmq.peer.messaging.publication import Publication, decode, tail_of
from ringmq.peer.messaging.send_window import Item, SendWindows, nobody_else

TO = Peer(Id(9), "h", 1, 1)


class Way:
    """An outlet, and what it sent."""

    def __init__(self, state: MessagingContext, pass_on: Callable[[Peer, Item], bool] = nobody_else) -> None:
        self.state = state
        self.send_windows = SendWindows(state, pass_on)
        self.held: list[int] = []
        self.failed: list[int] = []

    def keep(self, number: int, served: bool) -> None:
        self._over(served, number)

    def _over(self, served: bool, body: int) -> None:
        (self.held if served else self.failed).append(body)

    def push(self, *bodies: int) -> None:
        for body in bodies:
            one = Publication(1, body, 1, "t", str(body).encode())
            self.send_windows.push(TO, one, tail_of(one), lambda served, body=body: self._over(served, body))  # type: ignore[misc]

    def sent(self) -> list[tuple[int, int]]:
        """Numbers and bases since the last call."""
        queue = self.state.overlay.net.queue  # type: ignore[attr-defined]
        messages = [decode(payload) for _, _, payload in queue]
        queue.clear()
        return [(one.number, one.base) for one in messages if isinstance(one, Publication)]

    def wait(self, span_s: float) -> None:
        self.state.clock.now += span_s
        self.state.timers.run(self.state.clock.now)


def test_acknowledgement_ends_all_lower_numbers_and_moves_the_base(state: MessagingContext) -> None:
    way = Way(state)
    way.push(10, 11, 12)
    assert way.sent() == [(1, 1), (2, 1), (3, 1)]
    assert (way.send_windows.waiting, way.send_windows.leads_to(9)) == (3, True)
    way.send_windows.held(TO, Held(1, 2, ()))
    assert way.held == [10, 11]
    way.push(13)
    assert way.sent() == [(4, 3)]
    way.send_windows.held(TO, Held(1, 4, ()))
    assert way.held == [10, 11, 12, 13]
    assert (len(way.send_windows), state.waiting_bytes) == (0, 0)
    way.push(14)
    assert way.sent() == [(5, 5)], "the numbers go on"


def test_retry_sends_missing_publications_alone(state: MessagingContext) -> None:
    way = Way(state)
    way.push(10, 11, 12)
    way.sent()
    way.send_windows.held(TO, Held(1, 0, (2,)))
    assert way.held == [], "it is not with the clients yet"
    way.wait(LAN.retry_s)
    assert way.sent() == [(1, 1), (3, 1)]
    assert state.counters.resent == 2
    way.send_windows.held(TO, Held(1, 3, ()))
    way.wait(100)
    assert way.sent() == []


def test_steady_flow_acknowledged_in_time_is_never_resent(state: MessagingContext) -> None:
    way = Way(state)
    step_s = LAN.retry_s / 4
    for number in range(1, 41):
        way.push(number)
        way.send_windows.held(TO, Held(1, number - 2, ()))
        way.wait(step_s)
        assert [sent for sent, _ in way.sent()] == [number], "each is sent once, two steps before its acknowledgement"
    assert (state.counters.resent, state.counters.sent) == (0, 40)


def test_publication_missing_in_a_steady_flow_is_resent_within_two_retry_times(state: MessagingContext) -> None:
    way = Way(state)
    step_s = LAN.retry_s / 4
    lost, resent_after_s = 6, 0.0
    for number in range(1, 41):
        way.push(number)
        beyond = tuple(range(lost + 1, number - 1))
        way.send_windows.held(TO, Held(1, min(number - 2, lost - 1), beyond))
        way.wait(step_s)
        if lost in [sent for sent, _ in way.sent()][:-1]:
            resent_after_s = (number - lost) * step_s
            break
    assert 0 < resent_after_s <= 2 * LAN.retry_s + step_s


def test_acknowledgement_of_an_earlier_boot_is_ignored(state: MessagingContext) -> None:
    way = Way(state)
    way.push(10)
    way.send_windows.held(TO, Held(0, 1, ()))
    assert way.held == []


def test_window_bounds_the_publications_in_flight(state: MessagingContext) -> None:
    state.config = replace(LAN, window=2)
    way = Way(state)
    way.push(10, 11, 12)
    assert way.sent() == [(1, 1), (2, 1)]
    way.send_windows.held(TO, Held(1, 1, ()))
    assert way.sent() == [(3, 2)]


def test_publications_to_a_given_up_peer_are_done(state: MessagingContext) -> None:
    way = Way(state)
    way.push(10, 11)
    way.send_windows.give_up(TO.id)
    assert way.held == [10, 11]
    assert state.counters.given_up == 2
    way.send_windows.give_up(TO.id)
    way.push(12)
    assert way.sent()[-1] == (3, 3)


def test_a_publication_that_a_peer_with_subscribers_never_acknowledges_fails(state: MessagingContext) -> None:
    way = Way(state)
    way.push(12)
    for _ in range(100):
        way.wait(1.0)
    assert (way.held, way.failed) == ([], [12]), "nothing is retried for ever"
    assert len(way.send_windows) == 0


def test_enlisted_publication_is_sent_by_a_tree(state: MessagingContext) -> None:
    way = Way(state)
    one = Publication(1, 1, 1, "t", b"1")
    leaf = way.send_windows.enlist(TO, one, tail_of(one), lambda _: way.held.append(1))
    assert leaf is not None
    assert (leaf.peer, leaf.number, leaf.base) == (TO, 1, 1)
    assert way.sent() == []
    way.wait(LAN.retry_s)
    assert way.sent() == [(1, 1)], "who did not get it is sent it directly"
    assert way.send_windows.enlist(TO, one, tail_of(one), lambda _: way.held.append(2)) is None
    assert way.sent() == [(2, 1)], "who is behind gets the next from us too"
    way.send_windows.held(TO, Held(1, 2, ()))
    assert way.held == [1, 2]


def test_groups_of_a_given_up_peer_pass_to_other_peers(state: MessagingContext) -> None:
    asked: list[tuple[Peer, Item]] = []

    def passed_on(peer: Peer, item: Item) -> bool:
        asked.append((peer, item))
        return item.publication.body == b"1"

    way = Way(state, passed_on)
    for body in (b"1", b"2"):
        one = Publication(1, 1, 1, "t", body, shared=("$share/g/t",))
        way.send_windows.push(TO, one, body, lambda _, body=body: way.held.append(int(body)), frozenset({4}))  # type: ignore[misc]
    way.push(3)
    way.send_windows.give_up(TO.id)
    assert [(peer, item.tail, item.tried) for peer, item in asked] == [
        (TO, b"1", frozenset({4})),
        (TO, b"2", frozenset({4})),
    ]
    assert way.held == [2, 3]
    assert (state.counters.passed_on, state.counters.given_up, state.waiting_bytes) == (1, 2, 0)


def test_publication_lost_in_a_crash_of_its_receiver_is_sent_again(state: MessagingContext) -> None:
    way = Way(state)
    way.push(10, 11, 12)
    way.sent()
    way.send_windows.held(TO, Held(1, 0, (2, 3)))
    way.send_windows.held(TO, Held(1, 0, ()))
    way.wait(LAN.retry_s)
    assert way.sent() == [(1, 1), (2, 1), (3, 1)]


def test_a_group_that_a_peer_could_not_serve_is_served_by_others(state: MessagingContext) -> None:
    asked: list[tuple[str, ...]] = []
    others = True

    def passed_on(peer: Peer, item: Item) -> bool:
        asked.append(item.publication.shared)
        return others

    way = Way(state, passed_on)
    for number in (10, 11, 12):
        way.send_windows.push(
            TO, Publication(1, number, 1, "t", b"", shared=("g", "h")), b"", partial(way.keep, number)
        )
    unserved = (Unserved(1, ("g", "unheard of")), Unserved(2, ("unheard of",)))
    way.send_windows.held(TO, Held(1, 2, (), unserved))
    assert asked == [("g",)]
    assert way.held == [11], "whoever serves the first says when it is held"
    others = False
    way.send_windows.held(TO, Held(1, 3, (), (Unserved(3, ("h",)),)))
    assert way.held == [11, 12], "there is nobody else"
    assert state.counters.passed_on == 1
    assert state.waiting_bytes == 0
