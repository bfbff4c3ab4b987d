"""Who coordinates a place as the ring changes: taking over, stepping down, handing over.

Whoever is nearest to the key asks the others for all they hold before it answers anybody, so it knows every
acknowledged subscription and every publisher that may trust a list. Who was asked obeys no lower reign any more: a
coordinator that has not noticed can bring nothing new into force, because that takes all its shadows.
"""

from __future__ import annotations

from collections.abc import Callable

from overlay.ids import nearness
from overlay.messages import Peer
from peer.pubsub.holding import Holding, Role, Waiter
from peer.pubsub.holdings import Holdings
from peer.pubsub.messages import Control, Gather, Kind, Nudge, Record, Reign, Taken, UpSub
from peer.pubsub.replication import Replication
from peer.pubsub.state import State


class Succession:
    """One per core. `answer` is given the requests that waited for a coordinator."""

    __slots__ = ("_holdings", "_replication", "_state", "answer", "crowned")

    def __init__(self, state: State, holdings: Holdings, replication: Replication) -> None:
        self._state = state
        self._holdings = holdings
        self._replication = replication
        self.answer: Callable[[Peer, Control], None] = lambda sender, message: None
        self.crowned: Callable[[Holding], None] = lambda holding: None
        """A place has this peer for its coordinator now."""
        holdings.review = self.review
        holdings.look = self._look
        replication.superseded = self._superseded

    def review_all(self) -> None:
        for holding in self._holdings:
            self.review(holding)

    def review(self, holding: Holding) -> None:
        """See who is to coordinate this place, and act on it."""
        if self._holdings.first(holding):
            if holding.coordinates:
                self._replication.followed_by(holding, self._holdings.shadows(holding))
            else:
                self._gather(holding)
            return
        if holding.role is not Role.HOLDER:
            holding.end()
        self._hand_over(holding)

    def _superseded(self, holding: Holding) -> None:
        holding.end()
        self.review(holding)

    def _look(self, holding: Holding) -> None:
        """From time to time: leases that ran out, silence, and places of no more use."""
        state = self._state
        if holding.coordinates:
            self._expire(holding)
        holding.forget_gone(state.now - state.config.tomb_s)
        if not len(holding.book) and not holding.waiters and holding.role is not Role.GATHERING:
            self._holdings.close(holding)
            return
        self._holdings.look_soon(holding, state.config.look_s)
        if holding.role is Role.GATHERING:
            self._ask(holding)
        elif holding.role is Role.HOLDER:
            self.review(holding)

    def _expire(self, holding: Holding) -> None:
        """Drop entries that were not renewed, and publishers that cannot trust a list any more."""
        state, now, book = self._state, self._state.now, holding.book
        changed = False
        for key in [key for key, until in holding.expires.items() if until <= now]:
            record = book.get(key)
            del holding.expires[key]
            if record is not None:
                state.counters.expired += record.kind is Kind.ENTRY
                changed |= self._replication.take(holding, _ended(record))
        for point, publisher in list(holding.publishers.items()):
            if publisher.until <= now:
                record = book.get((Kind.PUBLISHER, "", point))
                del holding.publishers[point]
                changed |= record is not None and self._replication.take(holding, _ended(record))
        if changed:
            self._replication.spread(holding)

    # Taking over

    def _gather(self, holding: Holding) -> None:
        """Ask everybody, again if the ring has changed meanwhile."""
        holding.role = Role.GATHERING
        holding.awaited = {peer.id: peer for peer in holding.owners[1:]}
        holding.asked_at = self._state.now
        self._ask(holding)

    def _ask(self, holding: Holding) -> None:
        """Shadows are waited for as long as the ring counts them; those beside them, who hardly know more, not so."""
        if holding.asked_at + self._state.config.slow_retry_s <= self._state.now:
            shadows = {peer.id for peer in self._holdings.shadows(holding)}
            holding.awaited = {point: peer for point, peer in holding.awaited.items() if point in shadows}
        for peer in list(holding.awaited.values()):
            self._state.send(peer, Gather(holding.place))
        if holding.awaited:
            self._state.after(self._state.config.retry_s, lambda: self._ask_again(holding))
        self._go_on(holding)

    def _ask_again(self, holding: Holding) -> None:
        if holding.role is Role.GATHERING and self._holdings.get(holding.place) is holding:
            self._ask(holding)

    def gathered(self, sender: Peer, message: Gather) -> None:
        """Somebody is to coordinate a place: tell what is held of it, and step down."""
        holding = self._holdings.get(message.place)
        if holding is None:
            self._state.send(sender, UpSub(message.place, 0, (), False))
            return
        if holding.coordinates and nearness(holding.key, self._state.me.id) < nearness(holding.key, sender.id):
            return  # Its leaf set is not up to date; it will be.
        if holding.role is not Role.HOLDER:
            holding.end()
        holding.reign = Reign(holding.reign.number + 1, sender.id)
        holding.synced = 0
        self._state.send(sender, UpSub(message.place, holding.reign.number, tuple(holding.book), False))

    def told(self, sender: Peer, message: UpSub) -> None:
        """What somebody else holds, because it was asked, or because it leaves."""
        holding = self._holdings.get(message.place)
        if holding is None and message.leaving:
            holding = self._holdings.open(message.place)
        if holding is None or not self._holdings.first(holding):
            return
        for record in message.records:
            self._replication.take(holding, record)
        if message.number > holding.reign.number:
            holding.reign = Reign(message.number, holding.reign.coordinator)
        if holding.coordinates:
            self._replication.spread(holding)
            if message.leaving and sender.id not in holding.shadows:
                # One that is counted as a shadow here has to stay one, until both see the same ring.
                then = Waiter(holding.book.position, lambda: self._state.send(sender, Taken(message.place)))
                self._replication.wait(holding, ("taken", sender.id), then)
            return
        if holding.role is Role.GATHERING:
            holding.awaited.pop(sender.id, None)
            self._go_on(holding)
        else:
            self.review(holding)

    def _go_on(self, holding: Holding) -> None:
        """All have answered, or are gone: reign."""
        if holding.awaited or holding.role is not Role.GATHERING:
            return
        state = self._state
        state.counters.reigns += 1
        stash, holding.stash = holding.stash, []
        reign = Reign(holding.reign.number + 1, state.me.id)
        holding.begin(reign, state.now, state.config)
        self._replication.followed_by(holding, self._holdings.shadows(holding))
        self.crowned(holding)
        for sender, message in stash:
            self.answer(sender, message)

    # Handing over

    def _hand_over(self, holding: Holding) -> None:
        """Remind the peer that is to coordinate this place; and leave it all to it if this one has no part in it."""
        if not holding.owners or not len(holding.book):
            return
        first = holding.owners[0]
        if first.id == self._state.me.id:
            return
        if not self._holdings.belongs(holding):
            book = tuple(holding.book)
            self._state.send(first, UpSub(holding.place, holding.reign.number, book, True))
        elif holding.reign.coordinator != first.id or not holding.synced:
            self._state.send(first, Nudge(holding.place))

    def nudged(self, sender: Peer, message: Nudge) -> None:
        holding = self._holdings.get(message.place)
        if holding is None:
            holding = self._holdings.open(message.place)
        if not holding.coordinates:
            self.review(holding)
        elif sender.id in holding.shadows and not holding.shadows[sender.id].sent:
            self._replication.spread(holding)

    def taken(self, sender: Peer, message: Taken) -> None:
        holding = self._holdings.get(message.place)
        if holding is not None and holding.role is Role.HOLDER and not self._holdings.belongs(holding):
            self._state.counters.handed_over += 1
            self._holdings.close(holding)


def _ended(record: Record) -> Record:
    """The same, gone. Coordinators number what is not the subscribers' to number."""
    first, second = record.number
    number = record.number if record.kind is Kind.ENTRY else (first + 1, second)
    return Record(record.kind, record.name, record.peer, number, True)
