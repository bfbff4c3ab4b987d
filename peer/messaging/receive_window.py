"""Publications from other peers: each is delivered once and in order, and acknowledged when the clients here have it.

QoS 1 and 2 are numbered by the publisher for this peer alone, so a few numbers per publisher suffice. QoS 0 is
delivered if it is later than the last one of its publisher and topic: overtaken messages and duplicates are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.messages import Held, Unserved
from ringmq.peer.messaging.publication import Publication

Deliver = Callable[[Peer, Publication], None]
FAR_SEQ: Final = 1 << 20
"""A publication that comes over the link of its publisher is not late by as many others: one that came through a tree,
and seemed later, was not of this publisher. Above what a publisher sends within the delays of two ways."""


class ReceiveWindow:
    """Numbered publications from one boot of one publisher."""

    __slots__ = ("ahead", "answered_at", "boot", "direct", "first", "given", "next", "unserved")

    def __init__(self, boot: int, first: int) -> None:
        self.boot = boot
        self.answered_at = 0.0
        self.first = first
        """No lower number was delivered by this window."""
        self.given = range(0)
        """Numbers that were delivered before the publisher itself was heard, and come later in order."""
        self.direct = False
        """Whether the publisher itself has sent anything with this boot: retries come directly, and some messages."""
        self.next = first
        self.ahead: dict[int, Publication] = {}
        """Publications that cannot be delivered yet, since an earlier number is missing."""
        self.unserved: dict[int, tuple[str, ...]] = {}
        """Shared filters of a publication that have no client here, until the publisher has this answer."""

    def accepts(self, number: int) -> bool:
        """Whether this number is the next in order; the window then moves on."""
        if number != self.next:
            return False
        self.next += 1
        if self.given:
            self._pass_given()
        return True

    def believe(self, base: int, most: int) -> None:
        """The publisher itself waits for numbers below those that others have named in its place."""
        self.given = range(self.first, self.next)
        self.first = self.next = base
        # It may know that the near ones are here.
        self.ahead = {number: kept for number, kept in self.ahead.items() if base < number <= base + most}
        self.unserved = {number: groups for number, groups in self.unserved.items() if number <= base + most}

    def settle(self, base: int) -> None:
        """The publisher needs no answer about numbers below its base any more."""
        if self.unserved:
            self.unserved = {number: groups for number, groups in self.unserved.items() if number >= base}

    def skip(self, base: int) -> list[Publication]:
        """The publisher has given up all numbers below its base: returns the publications that have come, in order."""
        skipped = [self.ahead.pop(number) for number in sorted(number for number in self.ahead if number < base)]
        self.next = base
        self._pass_given()
        return skipped

    def _pass_given(self) -> None:
        if self.next in self.given:
            self.next = self.given.stop
            self.given = range(0)

    def put(self, publication: Publication, most: int) -> None:
        """Keep a publication that came out of order, if there is room for it: its publisher sends it again."""
        # No publisher has as many on their way; numbers beyond would stay for ever.
        if len(self.ahead) < most and publication.number - self.next <= most:
            self.ahead[publication.number] = publication

    def take_next(self) -> Publication | None:
        """The next publication in order, if it came before."""
        publication = self.ahead.pop(self.next, None)
        if publication is not None:
            self.next += 1
            if self.given:
                self._pass_given()
        return publication

    def refuse(self, number: int, groups: tuple[str, ...]) -> None:
        """A publication was for groups without a client here: the publisher must choose other peers for them."""
        self.unserved[number] = groups


class ReceiveWindows:
    """One per engine. At the end of each iteration call `acknowledge`."""

    __slots__ = ("_orders", "_receive_windows", "_repeated", "_serves", "_state", "deliver", "due")

    def __init__(
        self, state: MessagingContext, deliver: Deliver, repeated: Deliver, serves: Callable[[str], bool]
    ) -> None:
        """`deliver` is called with each publication once, `repeated` with the dropped ones. `serves` says whether a
        client here is in a group."""
        self._state = state
        self.deliver = deliver
        self._repeated = repeated
        self._serves = serves
        self._receive_windows: dict[Id, ReceiveWindow] = {}
        self._orders: dict[tuple[Id, bytes], tuple[int, int]] = {}
        """Boot and sequence of the last publication with QoS 0, by publisher and topic."""
        self.due: dict[Id, Peer] = {}
        """Publishers that `acknowledge` will answer."""

    def __len__(self) -> int:
        return len(self._receive_windows)

    def take(self, origin: Peer, publication: Publication) -> None:
        if publication.boot > origin.boot:
            # Whatever the origin sends later with its true boot would count as late.
            self._state.counters.false_boots += 1
        elif publication.qos:
            self._numbered(origin, publication)
        else:
            self._unnumbered(origin, publication)

    def take_fast(self, origin: Peer, boot: int, seq: int, topic: bytes, body: bytes) -> bool:
        """Deliver a message of the fast path. False: nothing was done, as the clients need the general path."""
        state = self._state
        counters = state.counters
        if boot > origin.boot:
            counters.false_boots += 1
            return True
        if self.has_given(origin, topic, boot, seq):
            counters.came += 1
            counters.duplicates += 1
            return True
        wanted = state.clients.deliver_fast(topic, body)
        if wanted is None:
            return False  # Nothing is counted or remembered yet: the general path will do so.
        counters.came += 1
        if state.brought is not None:
            state.brought(topic.decode(errors="replace"), wanted, None, None)
        self._gave(origin, topic, boot, seq)
        if wanted:
            counters.received += 1
        else:
            counters.unwanted += 1
        return True

    def _unnumbered(self, origin: Peer, publication: Publication) -> None:
        # The key has the topic in bytes, as on the fast path, so that both paths share one order.
        order = publication.topic.encode(), publication.boot, publication.seq
        if self.has_given(origin, *order, direct=publication.relay is None):
            self._state.counters.duplicates += 1
            self._repeated(origin, publication)
        else:
            self._gave(origin, *order)
            self.deliver(origin, publication)

    def has_given(self, origin: Peer, topic: bytes, boot: int, seq: int, direct: bool = True) -> bool:
        """Whether this message with QoS 0, or a later one of its topic, was delivered before. `direct`: it comes over
        the link of its publisher."""
        last = self._orders.get((origin.id, topic))
        if last is None or last < (boot, seq):
            return False
        # Through a tree, any peer can name any boot and sequence.
        false = direct and boot == origin.boot and (last[0] > boot or last[1] - seq > FAR_SEQ)
        return not false

    def _gave(self, origin: Peer, topic: bytes, boot: int, seq: int) -> None:
        orders, key, most = self._orders, (origin.id, topic), self._state.config.max_orders
        # Moving an entry to the end costs time for each message: it is done only when the bound comes near.
        if 2 * len(orders) > most:
            orders.pop(key, None)
            while len(orders) >= most:
                del orders[next(iter(orders))]
        orders[key] = (boot, seq)

    def _numbered(self, origin: Peer, publication: Publication) -> None:
        window = self._receive_windows.get(origin.id)
        direct = publication.relay is None
        # A peer that was passed by a tree may be named with any boot. What it sends itself has its boot.
        false = window is not None and direct and not window.direct and publication.boot == origin.boot != window.boot
        if window is not None and publication.boot < window.boot and direct:
            false |= self._is_over(window, origin, publication)
        if window is None or publication.boot > window.boot or false:
            # It begins at the base: lower numbers than this may still be on their way, through a tree or in a retry.
            window = self._receive_windows[origin.id] = ReceiveWindow(publication.boot, publication.base)
            window.answered_at = self._state.clock.now
        elif publication.boot < window.boot:
            return  # It was late, and its publisher has restarted: nobody waits for its acknowledgement.
        if direct and not window.direct:
            window.direct = True
            if publication.number < window.first:
                window.believe(publication.base, self._state.config.max_ahead)
        if not direct and publication.base > window.next:
            # Only the publisher itself can say that it has given up what is missing here. It sends this one again.
            return
        # Duplicates are answered as well: they came because the acknowledgement of the first copy may be lost.
        if not self.due:
            self._state.owing()
        self.due[origin.id] = origin
        if window.unserved:
            window.settle(publication.base)
        if publication.base > window.next:
            for skipped in window.skip(publication.base):
                self.deliver(origin, skipped)
            self._drain(origin, window)
        number = publication.number
        if number < window.next or number in window.ahead or number in window.given:
            self._state.counters.duplicates += 1
            self._repeated(origin, publication)
        elif window.accepts(number):
            self._deliver_numbered(origin, window, publication)
            if window.ahead:
                self._drain(origin, window)
        else:
            window.put(publication, self._state.config.max_ahead)

    def _is_over(self, window: ReceiveWindow, origin: Peer, publication: Publication) -> bool:
        """Whether somebody had the id of the publisher with a higher boot, and is gone: no message of an earlier
        process comes so late."""
        state = self._state
        return publication.boot == origin.boot and state.clock.now - window.answered_at > state.config.entry_s

    def _drain(self, origin: Peer, window: ReceiveWindow) -> None:
        while (publication := window.take_next()) is not None:
            self._deliver_numbered(origin, window, publication)

    def _deliver_numbered(self, origin: Peer, window: ReceiveWindow, publication: Publication) -> None:
        # Groups are looked up at delivery, not at arrival: their clients may have left while it was out of order.
        if publication.shared:
            missing = tuple([group for group in publication.shared if not self._serves(group)])
            if missing:
                window.refuse(publication.number, missing)
        self.deliver(origin, publication)

    @property
    def owes(self) -> bool:
        return bool(self.due)

    def acknowledge(self) -> None:
        """Report to each publisher that was heard since the last call which numbers are held here."""
        # The shell calls this after all journals have committed: a crash between an earlier answer and the commit would
        # lose the message.
        if not self.due:
            return
        due, self.due = self.due, {}
        for peer_id, origin in due.items():
            window = self._receive_windows[peer_id]
            window.answered_at = self._state.clock.now
            unserved = tuple([Unserved(number, groups) for number, groups in window.unserved.items()])
            self._state.send(origin, Held(window.boot, window.next - 1, tuple(sorted(window.ahead)), unserved))
