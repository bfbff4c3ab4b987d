"""A coordinator keeps its followers up to date: the shadows with copies of its book, the publishers with its entries.

A follower is told what changed since what it was told last, and again from what it acknowledged when it is silent. Who
waits (a SUBACK, say) waits for all of them: for shadows until the ring says they are gone, for publishers as long as
they can trust a list that is older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Copied, Copy, Kind, Known, List, Record
from ringmq.peer.messaging.context import State
from ringmq.peer.replication.interning import Sharing
from ringmq.peer.replication.replica import Follower, Holding, Role, Waiter
from ringmq.peer.replication.replicas import LASTING, Holdings
from ringmq.peer.replication.tombstones import Cleared

MOST_DOUBLINGS: Final = 6


class Replication:
    """One per core. `superseded` is called when a holding turns out to have a coordinator of a higher reign."""

    __slots__ = ("_cleared", "_holdings", "_sharing", "_state", "cleared", "superseded")

    def __init__(self, state: State, holdings: Holdings, cleared: Cleared) -> None:
        self._state = state
        self._holdings = holdings
        self._cleared = cleared
        self._sharing = Sharing()
        self.superseded: Callable[[Holding], None] = lambda holding: None
        self.cleared: Callable[[Holding, Record], None] = lambda holding, record: None
        """Called with what ended the retained message of a topic that is coordinated here."""

    # The coordinator's side

    def take(self, holding: Holding, record: Record) -> bool:
        """Merge a record into the book of a place, and say what that means for leases; whether it was news.

        If it is a retained message that was cleared since, that is the news.
        """
        record = self._sharing.of(self._cleared.overrule(record), holding.place)
        before = holding.last_retained if record.kind is Kind.RETAINED else None
        if not holding.take(record, self._state.clock.now, self._state.config):
            return False
        self._keep(holding, (record,))
        if holding.coordinates and record.gone and before is not None and not before.gone:
            self.cleared(holding, record)
        return True

    def merge(self, holding: Holding, record: Record) -> None:
        """Take what another peer holds of a place that this one coordinates, or is about to.

        After a split each half has dropped those of the other, whose leases hold: these are no less there for that.
        """
        if holding.book.lapsed(record):
            if record.gone:
                return
            holding.book.forget(record.key)
        self.take(holding, record)

    def _keep(self, holding: Holding, news: Iterable[Record]) -> None:
        """What is new here is to outlive the process, if it is of that kind; and there may be something to do."""
        for record in news:
            if record.kind in LASTING:
                self._state.keep(holding.place, record)
            if record.kind is Kind.RETAINED:
                self._state.hybrid_clock = max(self._state.hybrid_clock, record.number[0])
                self._cleared.heard(record)
        self._holdings.look_soon(holding, self._state.config.look_s)

    def followed_by(self, holding: Holding, shadows: tuple[Peer, ...]) -> None:
        """These are the shadows from now on; one that was before goes on from where it is."""
        known = holding.shadows
        holding.shadows = {}
        for peer in shadows:
            follower = known.get(peer.id)
            same = follower is not None and follower.peer.boot == peer.boot
            holding.shadows[peer.id] = follower if same and follower is not None else Follower(peer)
        self.spread(holding)

    def spread(self, holding: Holding) -> None:
        """Tell each follower what it has not been told, and whoever waited for nothing else."""
        if not holding.coordinates:
            return
        position, listed = holding.book.position, holding.book.listed
        for shadow in holding.shadows.values():
            if shadow.sent < position:
                self._copy(holding, shadow, shadow.sent)
        for publisher in holding.publishers.values():
            if publisher.sent < listed:
                self._tell(holding, publisher, publisher.sent)
        self.settle(holding)

    def _copy(self, holding: Holding, shadow: Follower, since: int) -> None:
        book = holding.book
        records = holding.told(book.since(since), self._state.clock.now)
        message = Copy(holding.place, holding.reign, since, book.position, records)
        self._sent(holding, shadow)
        self._state.send(shadow.peer, message)

    def _tell(self, holding: Holding, publisher: Follower, since: int) -> None:
        self._sent(holding, publisher)
        self._state.send(publisher.peer, self.list_for(holding, since, None))

    def list_for(self, holding: Holding, since: int, asked_at: float | None) -> List:
        book = holding.book
        changes = [record for record in book.since(since) if record.kind is Kind.ENTRY]
        entries = tuple([record for record in changes if since or not record.gone])
        return List(holding.place, holding.reign, since, book.position, entries, asked_at, self._state.hybrid_clock)

    def _sent(self, holding: Holding, follower: Follower) -> None:
        follower.sent = holding.book.position
        self.expect(holding, follower)

    def expect(self, holding: Holding, follower: Follower) -> None:
        """It was told: tell it again if it does not answer."""
        config = self._state.config
        retry_s = max(config.retry_s, self._state.ask_s)
        wait_s = min(config.slow_retry_s, retry_s * (1 << min(follower.tries, MOST_DOUBLINGS)))
        follower.retry_at = self._state.clock.now + wait_s
        if not holding.retrying:
            holding.retrying = True
            self._state.after(wait_s, lambda: self._retry(holding))

    def _retry(self, holding: Holding) -> None:
        """Tell those again who were told and stayed silent."""
        holding.retrying = False
        if not holding.coordinates:
            return
        now, next_at = self._state.clock.now, inf
        position, listed = holding.book.position, holding.book.listed
        for followers, wanted, tell in (
            (holding.shadows, position, self._copy),
            (holding.publishers, listed, self._tell),
        ):
            for follower in followers.values():
                if follower.acked < wanted:
                    if follower.retry_at <= now:
                        follower.tries += 1
                        tell(holding, follower, follower.acked)
                    next_at = min(next_at, follower.retry_at)
        self.settle(holding)
        if next_at < inf and not holding.retrying:
            holding.retrying = True
            self._state.after(max(0.0, next_at - now), lambda: self._retry(holding))

    def wait(self, holding: Holding, key: object, waiter: Waiter) -> None:
        """Do something when all have it; what had the same key before is forgotten."""
        holding.wait(key, waiter)
        self.settle(holding)
        if key in holding.waiters and waiter.deadline < inf:
            self._state.after(waiter.deadline - self._state.clock.now, lambda: self.settle(holding))

    def settle(self, holding: Holding) -> None:
        """See who has waited enough."""
        if not holding.waiters:
            return
        copied = self.copied_up_to(holding)
        known = min((publisher.acked for publisher in holding.publishers.values()), default=inf)
        now = self._state.clock.now
        for key, waiter in list(holding.waiters.items()):
            if waiter.position > copied or holding.waiters.get(key) is not waiter:
                continue
            if waiter.listed and waiter.position > known:
                if now < waiter.deadline:
                    continue
                self._state.counters.silent_publishers += 1
            del holding.waiters[key]
            waiter.then()

    def copied_up_to(self, holding: Holding) -> float:
        """The position that all shadows have."""
        return min((shadow.acked for shadow in holding.shadows.values()), default=inf)

    def known(self, sender: Peer, message: Known) -> None:
        """A publisher uses a list."""
        holding = self._holdings.get(message.place)
        if holding is None or not holding.coordinates or holding.reign != message.reign:
            return
        publisher = holding.publishers.get(sender.id)
        if publisher is not None and publisher.peer.boot == sender.boot:
            self._heard(publisher, message.position)
            self.settle(holding)

    def copied(self, sender: Peer, message: Copied) -> None:
        """A shadow has something, or knows better."""
        holding = self._holdings.get(message.place)
        if holding is None or not holding.coordinates or message.reign < holding.reign:
            return
        if message.reign > holding.reign:
            self._state.counters.superseded += 1
            holding.reign = message.reign
            self.superseded(holding)
            return
        shadow = holding.shadows.get(sender.id)
        if shadow is None:
            return
        for record in message.extra:
            self.merge(holding, record)
        if message.missing:
            shadow.acked = shadow.sent = message.position
        else:
            self._heard(shadow, message.position)
        self.spread(holding)

    def _heard(self, follower: Follower, position: int) -> None:
        follower.tries = 0
        follower.acked = max(follower.acked, position)

    # The shadow's side

    def copy(self, sender: Peer, message: Copy) -> None:
        """Be a copy of the coordinator's book. What only this peer holds goes back with the answer."""
        holding = self._holdings.get(message.place)
        if holding is None:
            holding = self._holdings.open(message.place)
        if message.reign < holding.reign:
            self._state.send(sender, Copied(message.place, holding.reign, 0, False, ()))
            return
        if holding.role is not Role.HOLDER:
            holding.reign = message.reign
            self.superseded(holding)
        same = message.reign == holding.reign
        missing = False
        overruled = [self._cleared.overrule(record) for record in message.records]
        records = [self._sharing.of(record, message.place) for record in overruled]
        extra = [mine for mine, theirs in zip(records, message.records, strict=True) if mine.rank() > theirs.rank()]
        for record in records:
            if holding.book.lapsed(record):
                holding.book.forget(record.key)  # whose leases hold is the coordinator's to say
        if message.since == 0 and not (same and holding.synced):
            extra += self._become(holding, message.position, records)
        elif not same or message.since > holding.synced:
            missing = True
        else:
            for record in records:
                self.take(holding, record)
            holding.synced = max(holding.synced, message.position)
        holding.reign = message.reign
        position = holding.synced if same or not missing else 0
        if missing and not same:
            holding.synced = 0
        told = holding.told(extra, self._state.clock.now)
        self._state.promise(sender, Copied(message.place, message.reign, position, missing, told))

    def _become(self, holding: Holding, position: int, records: list[Record]) -> list[Record]:
        """Returns what the coordinator does not know."""
        merged = {record.key: record for record in records}
        extra = []
        for record in holding.book:
            known = merged.get(record.key)
            if known is None and record.gone:
                continue
            if known is None or known.rank() < record.rank():
                extra.append(record)
            if known is None or known.rank() <= record.rank():
                merged[record.key] = record
        self._keep(holding, holding.become(merged.values(), position, self._state.clock.now))
        holding.synced = position
        return extra
