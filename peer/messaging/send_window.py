"""Messages with QoS 1 and 2 on their way to other peers: numbered for each, in order, until it says that it holds them.

One line of numbers leads to each peer, whatever the topic and the way, so that the receiver sees what is missing and
gives out nothing before it. Retried from here directly, also what went through a tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Held
from ringmq.peer.messaging.context import State
from ringmq.peer.messaging.pending import addressed
from ringmq.peer.messaging.publication import Leaf, Publication, head_of

RETRIED_AT_ONCE: Final = 32
"""A peer that is back after a pause is not sent all of the window at once."""


class Item:
    """One message for one peer."""

    __slots__ = ("at", "beyond", "number", "on_held", "publication", "tail", "tried")

    def __init__(
        self,
        publication: Publication,
        tail: bytes,
        number: int,
        at: float,
        on_held: Callable[[], None],
        tried: frozenset[int],
    ) -> None:
        self.publication = publication
        self.tail = tail
        self.number = number
        self.at = at
        self.on_held = on_held
        self.tried = tried
        """Peers that were to have it for the same groups before, and were given up."""
        self.beyond = False
        """It is there, but one before it is not."""


class Outlet:
    """To one peer: what is on its way, and what waits behind it."""

    __slots__ = ("flying", "peer", "retrying", "tries", "waiting")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.flying: dict[int, Item] = {}
        self.waiting: deque[Item] = deque()
        self.retrying = False
        self.tries = 0


class Outlets:
    """One per core. `passed_on` is asked whether others serve the groups that a peer was to serve that is given up."""

    __slots__ = ("_numbers", "_outlets", "_state", "passed_on")

    def __init__(self, state: State) -> None:
        self._state = state
        self._outlets: dict[int, Outlet] = {}
        self._numbers: dict[int, int] = {}
        """The last number given to each peer; kept, or it would take the next ones for old."""
        self.passed_on: Callable[[Peer, Item], bool] = lambda peer, item: False

    def __len__(self) -> int:
        return len(self._outlets)

    def __iter__(self) -> Iterator[Outlet]:
        return iter(self._outlets.values())

    def topics(self) -> Iterable[str]:
        """Of all messages that are on their way."""
        return dict.fromkeys(item.publication.topic for outlet in self for item in outlet.flying.values())

    @property
    def waiting(self) -> int:
        return sum(len(outlet.flying) + len(outlet.waiting) for outlet in self._outlets.values())

    def push(
        self,
        peer: Peer,
        publication: Publication,
        tail: bytes,
        on_held: Callable[[], None],
        tried: frozenset[int] = frozenset(),
    ) -> None:
        """Send a message; `on_held` is called when the peer holds it, or is given up."""
        outlet, item = self._enter(peer, publication, tail, on_held, tried)
        outlet.waiting.append(item)
        self._go_on(outlet)

    def enlist(self, peer: Peer, publication: Publication, tail: bytes, on_held: Callable[[], None]) -> Leaf | None:
        """As above, but somebody else sends it, with these numbers. None: it waits here, others are before it."""
        outlet, item = self._enter(peer, publication, tail, on_held, frozenset())
        if outlet.waiting or outlet.tries or len(outlet.flying) >= self._state.config.window:
            outlet.waiting.append(item)
            self._go_on(outlet)
            return None
        outlet.flying[item.number] = item
        self._retry_later(outlet)
        return Leaf(outlet.peer, item.number, next(iter(outlet.flying)))

    def _enter(
        self, peer: Peer, publication: Publication, tail: bytes, on_held: Callable[[], None], tried: frozenset[int]
    ) -> tuple[Outlet, Item]:
        outlet = self._outlets.get(peer.id)
        if outlet is None:
            outlet = self._outlets[peer.id] = Outlet(peer)
        elif peer.boot > outlet.peer.boot:
            outlet.peer = peer
        number = self._numbers[peer.id] = self._numbers.get(peer.id, 0) + 1
        self._state.waiting_bytes += len(tail)
        return outlet, Item(publication, tail, number, self._state.clock.now, on_held, tried)

    def _go_on(self, outlet: Outlet) -> None:
        window = self._state.config.window
        while outlet.waiting and len(outlet.flying) < window:
            item = outlet.waiting.popleft()
            outlet.flying[item.number] = item
            self._transmit(outlet, item)
        self._retry_later(outlet)

    def _transmit(self, outlet: Outlet, item: Item) -> bool:
        base = next(iter(outlet.flying))
        head = head_of(replace(item.publication, number=item.number, base=base))
        sent = self._state.overlay.send(outlet.peer, head + item.tail)
        self._state.counters.sent += sent
        return sent

    def _retry_later(self, outlet: Outlet) -> None:
        if outlet.flying and not outlet.retrying:
            outlet.retrying = True
            config = self._state.config
            wait_s = min(config.slow_retry_s, config.retry_s * (1 << min(outlet.tries, 6)))
            self._state.after(wait_s, lambda: self._retry(outlet, next(iter(outlet.flying), 0)))

    def _retry(self, outlet: Outlet, first: int) -> None:
        """If nothing has moved since, send again what is missing."""
        outlet.retrying = False
        if not outlet.flying:
            return
        if next(iter(outlet.flying)) == first:
            outlet.tries += 1
            if outlet.flying[first].at + self._state.config.give_up_s < self._state.clock.now:
                self.give_up(outlet.peer.id)
                return
            missing = [item for item in outlet.flying.values() if not item.beyond]
            for item in missing[:RETRIED_AT_ONCE]:
                self._state.counters.resent += 1
                if not self._transmit(outlet, item):
                    break
        self._retry_later(outlet)

    def held(self, sender: Peer, message: Held) -> None:
        """A peer holds messages."""
        outlet = self._outlets.get(sender.id)
        if outlet is None or message.boot != self._state.me.boot:
            return
        unserved = {one.number: one.groups for one in message.unserved}
        moved = False
        for number in list(outlet.flying):
            if number > message.up_to:
                break
            moved = True
            item = outlet.flying.pop(number)
            if number not in unserved or not self._serve_elsewhere(outlet.peer, item, unserved[number]):
                self._over(item)
        # All that it has of what came out of order: what it had and lost when it crashed is to be sent again.
        beyond = set(message.beyond)
        for number, item in outlet.flying.items():
            item.beyond = number in beyond
        if moved:
            outlet.tries = 0
            self._go_on(outlet)
        self._close(outlet)

    def give_up(self, point: int) -> None:
        """This peer is on no list any more: nobody waits for it, and others serve the groups that it was to serve."""
        outlet = self._outlets.pop(point, None)
        if outlet is None:
            return
        for item in (*outlet.flying.values(), *outlet.waiting):
            if not self._serve_elsewhere(outlet.peer, item, item.publication.shared):
                self._state.counters.given_up += 1
                self._over(item)
        outlet.flying.clear()
        outlet.waiting.clear()

    def _serve_elsewhere(self, peer: Peer, item: Item, groups: tuple[str, ...]) -> bool:
        """Have others serve the groups that this peer was to serve; whether there is anybody."""
        groups = tuple([group for group in item.publication.shared if group in groups])
        if not groups:
            return False
        item.publication = addressed(item.publication, False, groups)
        if not self.passed_on(peer, item):
            return False
        self._state.waiting_bytes -= len(item.tail)
        self._state.counters.passed_on += 1
        return True

    def _over(self, item: Item) -> None:
        self._state.waiting_bytes -= len(item.tail)
        item.on_held()

    def _close(self, outlet: Outlet) -> None:
        if not outlet.flying and not outlet.waiting and self._outlets.get(outlet.peer.id) is outlet:
            del self._outlets[outlet.peer.id]

    def leads_to(self, point: int) -> bool:
        """Whether anything is on its way to a peer, or waits for that."""
        return point in self._outlets
