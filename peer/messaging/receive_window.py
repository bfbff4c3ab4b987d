"""Messages from other peers: each given out once, in order, and acknowledged when its clients have it.

Per publisher a few numbers suffice for QoS 1 and 2, as they are numbered for this peer alone. QoS 0 is given out if it
is later than the last one of its publisher and topic: what was overtaken, or comes twice, is dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Held, Unserved
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.publication import Publication

Give = Callable[[Peer, Publication], None]


class ReceiveWindow:
    """From one life of one publisher."""

    __slots__ = ("ahead", "boot", "due", "next", "unserved")

    def __init__(self, boot: int, first: int) -> None:
        self.boot = boot
        self.next = first
        self.ahead: dict[int, Publication] = {}
        self.due = False
        self.unserved: dict[int, tuple[str, ...]] = {}
        """Groups that a message was for and that have no client here; until the publisher knows."""


class ReceiveWindows:
    """One per core. After each turn call `acknowledge`."""

    __slots__ = ("_give", "_orders", "_receive_windows", "_state", "due", "repeated", "serves")

    def __init__(self, state: MessagingContext, give: Give) -> None:
        self._state = state
        self._give = give
        self.repeated: Give = lambda origin, publication: None
        """Told of those that are given to nobody, as they have come before, or too late."""
        self.serves: Callable[[str], bool] = lambda group: True
        """Whether a client here is in a group."""
        self._receive_windows: dict[Id, ReceiveWindow] = {}
        self._orders: dict[tuple[Id, bytes], tuple[int, int]] = {}
        self.due: dict[Id, Peer] = {}
        """Publishers that `acknowledge` will answer."""

    def __len__(self) -> int:
        return len(self._receive_windows)

    def take(self, origin: Peer, publication: Publication) -> None:
        if publication.qos:
            self._numbered(origin, publication)
        else:
            self._unnumbered(origin, publication)

    def _unnumbered(self, origin: Peer, publication: Publication) -> None:
        place = publication.topic.encode(), publication.boot, publication.seq
        if self.has_given(origin, *place):
            self._state.counters.duplicates += 1
            self.repeated(origin, publication)
        else:
            self.gave(origin, *place)
            self._give(origin, publication)

    def has_given(self, origin: Peer, topic: bytes, boot: int, seq: int) -> bool:
        """Whether this message with QoS 0 was given out before, or a later one."""
        last = self._orders.get((origin.id, topic))
        return last is not None and last >= (boot, seq)

    def gave(self, origin: Peer, topic: bytes, boot: int, seq: int) -> None:
        orders, key, most = self._orders, (origin.id, topic), self._state.config.max_orders
        if 2 * len(orders) > most:
            orders.pop(key, None)  # so that it is the youngest
            while len(orders) >= most:
                del orders[next(iter(orders))]
        orders[key] = (boot, seq)

    def _numbered(self, origin: Peer, publication: Publication) -> None:
        receive_window = self._receive_windows.get(origin.id)
        if receive_window is None or publication.boot > receive_window.boot:
            receive_window = self._receive_windows[origin.id] = ReceiveWindow(publication.boot, publication.base)
        elif publication.boot < receive_window.boot:
            return
        if not self.due:
            self._state.owing()
        self.due[origin.id] = origin
        if receive_window.unserved:
            receive_window.unserved = {
                at: groups for at, groups in receive_window.unserved.items() if at >= publication.base
            }
        if publication.base > receive_window.next:
            self._skip(origin, receive_window, publication.base)
        if publication.number < receive_window.next or publication.number in receive_window.ahead:
            self._state.counters.duplicates += 1
            self.repeated(origin, publication)
        elif publication.number == receive_window.next:
            receive_window.next += 1
            self._give_numbered(origin, receive_window, publication)
            self._drain(origin, receive_window)
        elif len(receive_window.ahead) < self._state.config.max_ahead:
            receive_window.ahead[publication.number] = publication

    def _skip(self, origin: Peer, receive_window: ReceiveWindow, base: int) -> None:
        """The publisher has given up what is below: give out what there is of it."""
        for number in sorted(number for number in receive_window.ahead if number < base):
            self._give(origin, receive_window.ahead.pop(number))
        receive_window.next = base
        self._drain(origin, receive_window)

    def _drain(self, origin: Peer, receive_window: ReceiveWindow) -> None:
        while receive_window.next in receive_window.ahead:
            publication = receive_window.ahead.pop(receive_window.next)
            receive_window.next += 1
            self._give_numbered(origin, receive_window, publication)

    def _give_numbered(self, origin: Peer, receive_window: ReceiveWindow, publication: Publication) -> None:
        if publication.shared:
            missing = tuple([group for group in publication.shared if not self.serves(group)])
            if missing:
                receive_window.unserved[publication.number] = missing
        self._give(origin, publication)

    @property
    def owes(self) -> bool:
        return bool(self.due)

    def acknowledge(self) -> None:
        """Tell each publisher that was heard what its clients have here."""
        if not self.due:
            return
        due, self.due = self.due, {}
        for point, origin in due.items():
            receive_window = self._receive_windows[point]
            unserved = tuple([Unserved(number, groups) for number, groups in receive_window.unserved.items()])
            self._state.send(
                origin,
                Held(receive_window.boot, receive_window.next - 1, tuple(sorted(receive_window.ahead)), unserved),
            )
