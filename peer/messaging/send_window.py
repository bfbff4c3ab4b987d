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
from ringmq.peer.messaging.context import MessagingContext
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


class SendWindow:
    """To one peer: what is on its way, and what waits behind it."""

    __slots__ = ("flying", "peer", "retrying", "tries", "waiting")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.flying: dict[int, Item] = {}
        self.waiting: deque[Item] = deque()
        self.retrying = False
        self.tries = 0


class SendWindows:
    """One per core. `passed_on` is asked whether others serve the groups that a peer was to serve that is given up."""

    __slots__ = ("_numbers", "_send_windows", "_state", "passed_on")

    def __init__(self, state: MessagingContext) -> None:
        self._state = state
        self._send_windows: dict[int, SendWindow] = {}
        self._numbers: dict[int, int] = {}
        """The last number given to each peer; kept, or it would take the next ones for old."""
        self.passed_on: Callable[[Peer, Item], bool] = lambda peer, item: False

    def __len__(self) -> int:
        return len(self._send_windows)

    def __iter__(self) -> Iterator[SendWindow]:
        return iter(self._send_windows.values())

    def topics(self) -> Iterable[str]:
        """Of all messages that are on their way."""
        return dict.fromkeys(item.publication.topic for send_window in self for item in send_window.flying.values())

    @property
    def waiting(self) -> int:
        return sum(len(send_window.flying) + len(send_window.waiting) for send_window in self._send_windows.values())

    def push(
        self,
        peer: Peer,
        publication: Publication,
        tail: bytes,
        on_held: Callable[[], None],
        tried: frozenset[int] = frozenset(),
    ) -> None:
        """Send a message; `on_held` is called when the peer holds it, or is given up."""
        send_window, item = self._enter(peer, publication, tail, on_held, tried)
        send_window.waiting.append(item)
        self._go_on(send_window)

    def enlist(self, peer: Peer, publication: Publication, tail: bytes, on_held: Callable[[], None]) -> Leaf | None:
        """As above, but somebody else sends it, with these numbers. None: it waits here, others are before it."""
        send_window, item = self._enter(peer, publication, tail, on_held, frozenset())
        if send_window.waiting or send_window.tries or len(send_window.flying) >= self._state.config.window:
            send_window.waiting.append(item)
            self._go_on(send_window)
            return None
        send_window.flying[item.number] = item
        self._retry_later(send_window)
        return Leaf(send_window.peer, item.number, next(iter(send_window.flying)))

    def _enter(
        self, peer: Peer, publication: Publication, tail: bytes, on_held: Callable[[], None], tried: frozenset[int]
    ) -> tuple[SendWindow, Item]:
        send_window = self._send_windows.get(peer.id)
        if send_window is None:
            send_window = self._send_windows[peer.id] = SendWindow(peer)
        elif peer.boot > send_window.peer.boot:
            send_window.peer = peer
        number = self._numbers[peer.id] = self._numbers.get(peer.id, 0) + 1
        self._state.waiting_bytes += len(tail)
        return send_window, Item(publication, tail, number, self._state.clock.now, on_held, tried)

    def _go_on(self, send_window: SendWindow) -> None:
        window = self._state.config.window
        while send_window.waiting and len(send_window.flying) < window:
            item = send_window.waiting.popleft()
            send_window.flying[item.number] = item
            self._transmit(send_window, item)
        self._retry_later(send_window)

    def _transmit(self, send_window: SendWindow, item: Item) -> bool:
        base = next(iter(send_window.flying))
        head = head_of(replace(item.publication, number=item.number, base=base))
        sent = self._state.overlay.send(send_window.peer, head + item.tail)
        self._state.counters.sent += sent
        return sent

    def _retry_later(self, send_window: SendWindow) -> None:
        if send_window.flying and not send_window.retrying:
            send_window.retrying = True
            config = self._state.config
            wait_s = min(config.slow_retry_s, config.retry_s * (1 << min(send_window.tries, 6)))
            self._state.after(wait_s, lambda: self._retry(send_window, next(iter(send_window.flying), 0)))

    def _retry(self, send_window: SendWindow, first: int) -> None:
        """If nothing has moved since, send again what is missing."""
        send_window.retrying = False
        if not send_window.flying:
            return
        if next(iter(send_window.flying)) == first:
            send_window.tries += 1
            if send_window.flying[first].at + self._state.config.give_up_s < self._state.clock.now:
                self.give_up(send_window.peer.id)
                return
            missing = [item for item in send_window.flying.values() if not item.beyond]
            for item in missing[:RETRIED_AT_ONCE]:
                self._state.counters.resent += 1
                if not self._transmit(send_window, item):
                    break
        self._retry_later(send_window)

    def held(self, sender: Peer, message: Held) -> None:
        """A peer holds messages."""
        send_window = self._send_windows.get(sender.id)
        if send_window is None or message.boot != self._state.me.boot:
            return
        unserved = {one.number: one.groups for one in message.unserved}
        moved = False
        for number in list(send_window.flying):
            if number > message.up_to:
                break
            moved = True
            item = send_window.flying.pop(number)
            if number not in unserved or not self._serve_elsewhere(send_window.peer, item, unserved[number]):
                self._over(item)
        # All that it has of what came out of order: what it had and lost when it crashed is to be sent again.
        beyond = set(message.beyond)
        for number, item in send_window.flying.items():
            item.beyond = number in beyond
        if moved:
            send_window.tries = 0
            self._go_on(send_window)
        self._close(send_window)

    def give_up(self, point: int) -> None:
        """This peer is on no list any more: nobody waits for it, and others serve the groups that it was to serve."""
        send_window = self._send_windows.pop(point, None)
        if send_window is None:
            return
        for item in (*send_window.flying.values(), *send_window.waiting):
            if not self._serve_elsewhere(send_window.peer, item, item.publication.shared):
                self._state.counters.given_up += 1
                self._over(item)
        send_window.flying.clear()
        send_window.waiting.clear()

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

    def _close(self, send_window: SendWindow) -> None:
        if (
            not send_window.flying
            and not send_window.waiting
            and self._send_windows.get(send_window.peer.id) is send_window
        ):
            del self._send_windows[send_window.peer.id]

    def leads_to(self, point: int) -> bool:
        """Whether anything is on its way to a peer, or waits for that."""
        return point in self._send_windows
