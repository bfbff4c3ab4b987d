"""Who coordinates a place as the ring changes: taking over, stepping down, handing over.

Whoever is nearest to the key asks the others for all they hold before it answers anybody, so it knows every
acknowledged subscription and every publisher that may trust a list. Who was asked obeys no lower reign any more: a
coordinator that has not noticed can bring nothing new into force, because that takes all its shadows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from ringmq.overlay.core.ids import nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Control, Gather, Kind, Nudge, Record, Reign, Taken, UpSub
from ringmq.peer.messaging.context import State
from ringmq.peer.replication.replica import Gathering, Holding, Role, Waiter
from ringmq.peer.replication.replicas import Holdings
from ringmq.peer.replication.replicator import Replication
from ringmq.peer.replication.tombstones import Cleared

MOST_DOUBLINGS: Final = 6


class Succession:
    """One per core. `answer` is given the requests that waited for a coordinator."""

    __slots__ = ("_cleared", "_holdings", "_replication", "_state", "answer", "crowned")

    def __init__(self, state: State, holdings: Holdings, replication: Replication, cleared: Cleared) -> None:
        self._state = state
        self._holdings = holdings
        self._replication = replication
        self._cleared = cleared
        self.answer: Callable[[Peer, Control], None] = lambda sender, message: None
        self.crowned: Callable[[Holding], None] = lambda holding: None
        """A place has this peer for its coordinator now."""
        holdings.review = self.review
        holdings.look = self._look
        replication.superseded = self._superseded

    def review(self, holding: Holding) -> None:
        """See who is to coordinate this place, and act on it."""
        if self._holdings.first(holding):
            if holding.coordinates:
                self._replication.followed_by(holding, self._holdings.shadows(holding))
            elif holding.gathering is None or holding.gathering.owners != holding.owners:
                self._gather(holding)
            return
        if holding.role is not Role.HOLDER:
            holding.end()
        if not holding.doubts:
            self._holdings.look_soon(holding, self._state.config.look_s)
        self._hand_over(holding)

    def _superseded(self, holding: Holding) -> None:
        holding.end()
        self.review(holding)

    def _look(self, holding: Holding) -> None:
        """From time to time: leases that ran out, silence, and places of no more use."""
        state = self._state
        if holding.coordinates:
            self._expire(holding)
        holding.forget_gone(state.clock.now - state.config.tomb_s)
        if not len(holding.book) and not holding.waiters and holding.role is not Role.GATHERING:
            self._holdings.close(holding)
            return
        self._holdings.look_soon(holding, self._quiet_s(holding))
        if holding.role is Role.HOLDER and not self._at_rest(holding):
            self.review(holding)
        else:
            holding.slim()

    def _quiet_s(self, holding: Holding) -> float:
        """For how long nothing will be to do here, unless somebody calls. The ring calls when it changes."""
        config = self._state.config
        if len(holding.book) and holding.role is Role.HOLDER and not self._at_rest(holding):
            holding.doubts += 1
            return min(config.idle_look_s, config.look_s * (1 << min(holding.doubts, MOST_DOUBLINGS) - 1))
        holding.doubts = 0
        if not len(holding.book) or not holding.settled:
            return config.look_s
        due_s = holding.due_at(config) - self._state.clock.now
        # What is planned holds on to the place until then, also if it is left long before.
        return due_s if due_s == inf else min(config.idle_look_s, max(config.look_s, due_s))

    def _at_rest(self, holding: Holding) -> bool:
        """Whether it has a coordinator, and this peer is the coordinator or one of its shadows."""
        return holding.settled and self._holdings.belongs(holding)

    def _expire(self, holding: Holding) -> None:
        """Drop entries that were not renewed, and publishers that cannot trust a list any more."""
        state, now, book = self._state, self._state.clock.now, holding.book
        changed = False
        for key in [key for key, until in holding.expires.items() if until <= now]:
            record = book.get(key)
            del holding.expires[key]
            if record is not None:
                state.counters.expired += record.kind is Kind.ENTRY
                changed |= self._replication.take(holding, record.ended())
        for point, publisher in list(holding.publishers.items()):
            if publisher.until <= now:
                record = book.get((Kind.PUBLISHER, "", point))
                del holding.publishers[point]
                changed |= record is not None and self._replication.take(holding, record.ended())
        retained = holding.last_retained
        if holding.ends_at <= now and retained is not None:
            changed |= self._replication.take(holding, retained.ended())
        if changed:
            self._replication.spread(holding)

    # Taking over

    def _gather(self, holding: Holding) -> None:
        """Ask everybody, again if the ring has changed meanwhile."""
        holding.role = Role.GATHERING
        holding.gathering = gathering = Gathering(holding.owners, self._state.clock.now)
        self._ask(holding, gathering)

    def _ask(self, holding: Holding, gathering: Gathering) -> None:
        """Shadows are waited for as long as the ring counts them; those beside them, who hardly know more, not so."""
        if holding.gathering is not gathering or self._holdings.get(holding.place) is not holding:
            return
        state, config = self._state, self._state.config
        if gathering.began_at + config.slow_retry_s <= state.clock.now:
            shadows = {peer.id for peer in self._holdings.shadows(holding)}
            gathering.awaited = {point: peer for point, peer in gathering.awaited.items() if point in shadows}
        for peer in gathering.awaited.values():
            state.send(peer, Gather(holding.place))
        if gathering.awaited:
            gathering.wait_s = min(config.slow_retry_s, 2 * gathering.wait_s or state.ask_s)
            state.after(gathering.wait_s, partial(self._ask, holding, gathering))
        self._go_on(holding)

    def gathered(self, sender: Peer, message: Gather) -> None:
        """Somebody is to coordinate a place: tell what is held of it, and step down."""
        holding = self._holdings.get(message.place)
        if holding is None:
            cleared = self._cleared.of(message.place)
            self._state.send(sender, UpSub(message.place, 0, () if cleared is None else (cleared,), False))
            return
        if holding.coordinates and nearness(holding.key, self._state.me.id) < nearness(holding.key, sender.id):
            return  # Its leaf set is not up to date; it will be.
        if holding.role is not Role.HOLDER:
            holding.end()
        holding.reign = Reign(holding.reign.number + 1, sender.id)
        holding.synced = 0
        self._holdings.look_soon(holding, self._state.config.look_s)
        self._state.send(sender, UpSub(message.place, holding.reign.number, self._all_of(holding), False))

    def _all_of(self, holding: Holding) -> tuple[Record, ...]:
        """All that is known here of a place."""
        records = holding.told(holding.book, self._state.clock.now)
        cleared = self._cleared.of(holding.place)
        return records if cleared is None or cleared.key in holding.book else (*records, cleared)

    def told(self, sender: Peer, message: UpSub) -> None:
        """What somebody else holds, because it was asked, or because it leaves."""
        holding = self._holdings.get(message.place)
        if holding is None and message.leaving:
            holding = self._holdings.open(message.place)
        if holding is None or not self._holdings.first(holding):
            return
        for record in message.records:
            if holding.book.get(record.key) != record:  # most know the same
                self._replication.merge(holding, record)
        if message.number > holding.reign.number:
            holding.reign = Reign(message.number, holding.reign.coordinator)
        if holding.coordinates:
            self._replication.spread(holding)
            if message.leaving and sender.id not in holding.shadows:
                # One that is counted as a shadow here has to stay one, until both see the same ring.
                then = Waiter(holding.book.position, lambda: self._state.promise(sender, Taken(message.place)))
                self._replication.wait(holding, ("taken", sender.id), then)
            return
        gathering = holding.gathering
        if gathering is not None:
            if gathering.awaited.pop(sender.id, None) is not None:
                self._state.answered(self._state.clock.now - gathering.began_at)
            self._go_on(holding)
        else:
            self.review(holding)

    def _go_on(self, holding: Holding) -> None:
        """All have answered, or are gone: reign."""
        if holding.gathering is None or holding.gathering.awaited:
            return
        state = self._state
        state.counters.reigns += 1
        stash, holding.stash = holding.stash, ()
        reign = Reign(holding.reign.number + 1, state.me.id)
        holding.begin(reign, state.clock.now, state.config)
        self._replication.followed_by(holding, self._holdings.shadows(holding))
        self._holdings.look_soon(holding, state.config.look_s)
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
            self._state.send(first, UpSub(holding.place, holding.reign.number, self._all_of(holding), True))
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
