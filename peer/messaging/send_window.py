"""Publications with QoS 1 and 2 to other peers: numbered for each peer, in order, until it acknowledges them.

All publications to a peer share one sequence of numbers, whatever their topics and paths, so the receiver sees which
are missing and delivers none before them. Retries go directly to the peer, also for a publication sent through a tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from msgspec.structs import replace

from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.messages import Held
from ringmq.peer.messaging.publication import Leaf, Publication, addressed, head_of

RETRIED_AT_ONCE: Final = 32
"""Publications in one retry: a peer that is back after a pause must not get the whole window at once."""
Settled = Callable[[bool], None]
"""Called once for each publication: with True when its receiver holds it, or is no subscriber's peer any more; with
False when it is one and has left the publication without an acknowledgement for `give_up_s`."""
MOST_DOUBLINGS: Final = 6
"""Doublings of the time between retries."""


class Item:
    """One publication to one peer."""

    __slots__ = ("at", "beyond", "number", "on_settled", "publication", "tail", "tried")

    def __init__(
        self,
        publication: Publication,
        tail: bytes,
        number: int,
        at: float,
        on_settled: Settled,
        tried: frozenset[int],
    ) -> None:
        self.publication = publication
        self.tail = tail
        self.number = number
        self.at = at
        self.on_settled = on_settled
        self.tried = tried
        """Peers that were chosen for the same groups before, and were given up."""
        self.beyond = False
        """The peer holds it, but not an earlier one."""

    def address_to_groups(self, groups: tuple[str, ...]) -> None:
        """It is for members of these groups alone from now on, on whichever peer."""
        self.publication = addressed(self.publication, False, groups)


class SendWindow:
    """Publications to one peer: in flight, and waiting behind them."""

    __slots__ = ("in_flight", "peer", "retrying", "tries", "waiting")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.in_flight: dict[int, Item] = {}
        self.waiting: deque[Item] = deque()
        self.retrying = False
        """Whether a retry is scheduled."""
        self.tries = 0

    def __len__(self) -> int:
        return len(self.in_flight) + len(self.waiting)

    def restarted(self, peer: Peer) -> None:
        """The peer has a new boot, perhaps at another address."""
        if peer.boot > self.peer.boot:
            self.peer = peer

    def launch(self, most: int) -> list[Item]:
        """Move waiting publications into the window, as far as it has room: they must be sent now."""
        launched = []
        while self.waiting and len(self.in_flight) < most:
            item = self.waiting.popleft()
            self.in_flight[item.number] = item
            launched.append(item)
        return launched

    def launch_at_once(self, item: Item, most: int) -> bool:
        """Put a publication into the window that a tree sends. False: it waits, as others must be sent before it."""
        if self.waiting or self.tries or len(self.in_flight) >= most:
            self.waiting.append(item)
            return False
        self.in_flight[item.number] = item
        return True

    def acknowledge(self, message: Held) -> list[Item]:
        """Remove the publications that the peer holds."""
        held = []
        for number in list(self.in_flight):
            if number > message.up_to:
                break
            held.append(self.in_flight.pop(number))
        # The answer names everything that came out of order. A publication that it named before and does not name now
        # was lost in a crash of the peer: it will be retried.
        beyond = set(message.beyond)
        for number, item in self.in_flight.items():
            item.beyond = number in beyond
        if held:
            self.tries = 0
        return held

    def schedule(self, retry_s: float, most_s: float) -> float:
        """A retry is scheduled from now on: after how many seconds."""
        self.retrying = True
        return min(most_s, retry_s * (1 << min(self.tries, MOST_DOUBLINGS)))

    @property
    def oldest(self) -> Item | None:
        return next(iter(self.in_flight.values()), None)

    def retry(self, awaited: int) -> list[Item]:
        """The scheduled retry is due: the publications to send again, none if `awaited` was acknowledged since."""
        self.retrying = False
        # The window moves on, so the peer is alive, and the publications in flight may be younger than a round trip.
        if awaited not in self.in_flight:
            return []
        self.tries += 1
        return [item for item in self.in_flight.values() if not item.beyond]

    def clear(self) -> list[Item]:
        items = [*self.in_flight.values(), *self.waiting]
        self.in_flight.clear()
        self.waiting.clear()
        return items


class SendWindows:
    """One per engine."""

    __slots__ = ("_numbers", "_pass_on", "_send_windows", "_state")

    def __init__(self, state: MessagingContext, pass_on: Callable[[Peer, Item], bool]) -> None:
        """`pass_on` sends a publication for shared filters to other peers when its peer is given up or has no member
        of a group; it says whether there are any."""
        self._state = state
        self._pass_on = pass_on
        self._send_windows: dict[int, SendWindow] = {}
        # Never removed: a peer would take numbers that begin again for duplicates.
        self._numbers: dict[int, int] = {}
        """The last number given to each peer."""

    def __len__(self) -> int:
        return len(self._send_windows)

    def __iter__(self) -> Iterator[SendWindow]:
        return iter(self._send_windows.values())

    def topics(self) -> Iterable[str]:
        """Topics with publications in flight."""
        return dict.fromkeys(item.publication.topic for send_window in self for item in send_window.in_flight.values())

    @property
    def waiting(self) -> int:
        return sum(map(len, self._send_windows.values()))

    def push(
        self,
        peer: Peer,
        publication: Publication,
        tail: bytes,
        on_settled: Settled,
        tried: frozenset[int] = frozenset(),
    ) -> None:
        """Send a publication; `on_settled` is called when the peer holds it, or is given up."""
        send_window, item = self._enter(peer, publication, tail, on_settled, tried)
        send_window.waiting.append(item)
        self._go_on(send_window)

    def enlist(self, peer: Peer, publication: Publication, tail: bytes, on_settled: Settled) -> Leaf | None:
        """Like `push`, but a tree sends it with the numbers returned. None: it waits here behind others."""
        send_window, item = self._enter(peer, publication, tail, on_settled, frozenset())
        if not send_window.launch_at_once(item, self._state.config.window):
            self._go_on(send_window)
            return None
        self._retry_later(send_window)
        return Leaf(send_window.peer, item.number, next(iter(send_window.in_flight)))

    def _enter(
        self, peer: Peer, publication: Publication, tail: bytes, on_settled: Settled, tried: frozenset[int]
    ) -> tuple[SendWindow, Item]:
        send_window = self._send_windows.get(peer.id)
        if send_window is None:
            send_window = self._send_windows[peer.id] = SendWindow(peer)
        elif peer.boot > send_window.peer.boot:
            send_window.restarted(peer)
        number = self._numbers[peer.id] = self._numbers.get(peer.id, 0) + 1
        self._state.add_waiting(len(tail))
        return send_window, Item(publication, tail, number, self._state.clock.now, on_settled, tried)

    def _go_on(self, send_window: SendWindow) -> None:
        if send_window.waiting:
            for item in send_window.launch(self._state.config.window):
                self._transmit(send_window, item)
        self._retry_later(send_window)

    def _transmit(self, send_window: SendWindow, item: Item) -> bool:
        # The base of this moment, also in a retry: after a give-up it lets the receiver skip numbers that never come.
        head = head_of(replace(item.publication, number=item.number, base=next(iter(send_window.in_flight))))
        sent = self._state.overlay.send(send_window.peer, head + item.tail)
        self._state.counters.sent += sent
        return sent

    def _retry_later(self, send_window: SendWindow) -> None:
        oldest = send_window.oldest
        if oldest is not None and not send_window.retrying:
            config = self._state.config
            wait_s = send_window.schedule(config.retry_s, config.slow_retry_s)
            # The number is bound now: the oldest publication at the deadline may have been sent just before it.
            self._state.after(wait_s, partial(self._retry, send_window, oldest.number))

    def _retry(self, send_window: SendWindow, awaited: int) -> None:
        missing = send_window.retry(awaited)
        oldest = send_window.oldest
        if oldest is None:
            return
        if oldest.at + self._state.config.give_up_s < self._state.clock.now:
            self.give_up(send_window.peer.id, served=False)
            return
        if missing:
            self._state.find_way(send_window.peer)
        for item in missing[:RETRIED_AT_ONCE]:
            self._state.counters.resent += 1
            # The link is full or gone: the next retry begins with the oldest again.
            if not self._transmit(send_window, item):
                break
        self._retry_later(send_window)

    def held(self, sender: Peer, message: Held) -> None:
        """A peer reports the publications that it holds."""
        send_window = self._send_windows.get(sender.id)
        # Numbers begin again with each boot, so an answer to an earlier boot says nothing about these.
        if send_window is None or message.boot != self._state.me.boot:
            return
        unserved = {entry.number: entry.groups for entry in message.unserved}
        held = send_window.acknowledge(message)
        for item in held:
            groups = unserved.get(item.number)
            if groups is None or not self._serve_elsewhere(send_window.peer, item, groups):
                self._over(item)
        if send_window.in_flight or send_window.waiting:
            if held:
                self._go_on(send_window)
        elif self._send_windows.get(send_window.peer.id) is send_window:
            # A callback may have given up the window, and another may have its place since.
            del self._send_windows[send_window.peer.id]

    def give_up(self, peer_id: int, served: bool = True) -> None:
        """Nothing waits for this peer any more, and other peers serve its groups. Unless `served`, it has clients that
        the publications were for."""
        # It is removed before the callbacks run: publications that they push to this peer belong in a new window.
        send_window = self._send_windows.pop(peer_id, None)
        if send_window is None:
            return
        for item in send_window.clear():
            if not self._serve_elsewhere(send_window.peer, item, item.publication.shared):
                self._state.counters.given_up += 1
                self._over(item, served)

    def _serve_elsewhere(self, peer: Peer, item: Item, groups: tuple[str, ...]) -> bool:
        """Have other peers serve the groups that this peer was chosen for; whether there are any."""
        groups = tuple([group for group in item.publication.shared if group in groups])
        if not groups:
            return False
        item.address_to_groups(groups)
        if not self._pass_on(peer, item):
            return False
        self._state.add_waiting(-len(item.tail))
        self._state.counters.passed_on += 1
        return True

    def _over(self, item: Item, served: bool = True) -> None:
        self._state.add_waiting(-len(item.tail))
        item.on_settled(served)

    def leads_to(self, peer_id: int) -> bool:
        """Whether a publication is in flight to a peer, or waits for that."""
        return peer_id in self._send_windows


def nobody_else(peer: Peer, item: Item) -> bool:
    """For engines without shared filters: no other peer can serve a publication."""
    return False
