"""The holders of routes at a coordinator: publishers' peers that are sent its entries, and may trust them for a lease.

A successor must know the holders before they have a list to trust: it notifies them of changes. Knows how an entry
becomes a route, and nothing of retained messages.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

from msgspec.structs import replace

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.item_codec import packed
from ringmq.peer.engines.partitioned.messages import Begun, EntryFlag, Grouped, Holders, Renewed, RouteChange, Routes
from ringmq.peer.engines.partitioned.names import NameHash, shape_of
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.replication.copying import Changes, Copying
from ringmq.peer.replication.followers import Follower, ItemStreams, join_peers
from ringmq.peer.replication.partition_store import WHOLE, PartitionStore
from ringmq.peer.replication.record import Epoch, RecordKind, SharedRecord
from ringmq.peer.replication.space import Runs, equal_runs, ones_of, partitions_in, runs_of
from ringmq.peer.streams.stream_messages import Lane

ROWS_AT_ONCE: Final = 512
"""Routes in one item, some 9 kB: a holder takes them without a pause."""


ROWS_IN_A_TURN: Final = 4096
"""Records in partitions that a holder is sent at a time, some 40 ms of work."""
LOOK_S: Final = 0.02
"""The wait between two looks whether a holder has applied them."""
MOST_LATE: Final = 4
"""Leases for which a holder may send other messages and no renewal."""

# Operators and calls of an IntFlag take longer than the rest of a route.
_GONE: Final = int(RouteChange.GONE)
_EXPIRED: Final = int(RouteChange.GONE | RouteChange.EXPIRED)


class RouteWriter:
    """Collects routes as the columns of a message."""

    __slots__ = (
        "_changes", "_fingerprints", "_groups", "_homes", "_names", "_partitions", "_patterns", "_peers", "_shapes",
    )  # fmt: skip

    def __init__(self, names: NameHash) -> None:
        self._names = names
        self._peers: dict[Peer, int] = {}
        self._patterns: dict[bytes, int] = {}
        self._partitions = array("H")
        self._fingerprints = array("Q")
        self._shapes = array("H")
        self._homes = array("I")
        self._changes = array("B")
        self._groups: list[Grouped] = []

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: int, record: SharedRecord) -> None:
        assert record.home is not None, "entries have homes"
        inner = inner_of(record.name)
        if inner is not record.name:
            self._groups.append(Grouped(len(self._partitions), record.name))
        self._partitions.append(partition)
        self._fingerprints.append(self._names.fingerprint_of(inner))
        self._shapes.append(self._patterns.setdefault(shape_of(inner), len(self._patterns)))
        self._homes.append(self._peers.setdefault(record.home, len(self._peers)))
        change = 0
        if record.gone:
            change = _EXPIRED if record.flags & EntryFlag.LAPSED else _GONE
        self._changes.append(change)

    def routes(self, begun: tuple[Begun, ...] = (), ended: Runs = (), term: int = 0) -> Routes:
        return Routes(
            ended, begun, tuple(self._peers), tuple(self._patterns), packed(self._partitions),
            packed(self._fingerprints), packed(self._shapes), packed(self._homes), packed(self._changes),
            tuple(self._groups), term,
        )  # fmt: skip


class Holder(Follower):
    """A publisher's peer that was given routes, and may trust them."""

    __slots__ = ("all", "asked", "incomplete", "known", "lost_at", "partitions", "term", "until")

    def __init__(self, peer: Peer, term: int, until: float) -> None:
        super().__init__(peer)
        self.term = term
        """A number in its beginnings. A holder that was forgotten and is known again has a higher one."""
        self.asked: tuple[float, float] | None = None
        """A renewal that came before its beginning was sent: the time in it, and when it came."""
        # It is sent nothing before all possible successors know it.
        self.ready = False
        self.until = until
        """It trusts no routes of this peer after that time."""
        self.all = False
        """Whether it wants every partition that this peer coordinates."""
        self.partitions: set[int] = set()
        """Partitions that it was sent the beginning of, or will be."""
        self.incomplete: set[int] = set()
        """Those that it was sent while entries might be missing."""
        self.known = False
        """Whether all possible successors know it."""
        self.lost_at = 0
        """The number of its last message when its stream was lost, since when it has not asked again; otherwise 0."""


class HolderTable:
    """One per engine: the `Listeners` of the copies."""

    __slots__ = (
        "_copying",
        "_former",
        "_holders",
        "_incomplete",
        "_inherited",
        "_names",
        "_of",
        "_state",
        "_store",
        "_streams",
        "_terms",
        "_told",
        "_unknown",
        "_unvouched",
        "_written",
    )

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemStreams,
        store: PartitionStore,
    ) -> None:
        self._state = state
        self._streams = streams
        self._store = store
        self._names = NameHash(state.config.hash_seed)
        self._copying: Copying
        self._holders: dict[Id, Holder] = {}
        self._of: dict[int, tuple[Holder, ...]] = {}
        """The holders of each partition that anybody holds, until they change."""
        self._terms = 0
        self._told: dict[Id, dict[Id, Peer]] = {}
        """Holders of other coordinators, which this peer may succeed, as these coordinators know them."""
        self._inherited: dict[Id, dict[Id, tuple[Peer, float]]] = {}
        """The same of peers that are about to succeed other coordinators. They notify this peer of them again when
        they coordinate; until then, nothing that they send may remove them."""
        self._incomplete: dict[int, float] = {}
        """Partitions that may lack entries of their homes, as no copy of the predecessor was met; and until when."""
        self._unknown: list[Holder] = []
        """Each stands for all holders of partitions of which nobody knows the holders."""
        self._unvouched: list[tuple[Peer, float, float]] = []
        """Renewals that wait until the shadows have confirmed the epochs of this peer: the times are those in them, and
        when they came."""
        self._former: list[tuple[float, set[int], tuple[Peer, ...]]] = []
        """Partitions that this peer does not coordinate any more, with holders that may still trust its routes, and
        until when."""

        self._written: tuple[tuple[int, ...], list[Routes]] | None = None
        """The beginnings of some partitions, as long as nothing has changed in any."""

    def attach(self, copying: Copying) -> None:
        """Before anything happens."""
        self._copying = copying

    def __len__(self) -> int:
        return len(self._holders)

    @property
    def peers(self) -> list[Peer]:
        return [holder.peer for holder in self._holders.values()]

    def knows(self, peer: Peer) -> bool:
        """Whether this start of a peer is a holder."""
        holder = self._holders.get(peer.id)
        return holder is not None and holder.peer == peer

    def of(self, partition: int) -> tuple[Follower, ...]:
        holders = self._of.get(partition)
        # Looked for once, and not for each of the calls that wait.
        if holders is None:
            candidates = (*self._holders.values(), *self._unknown)
            found = [holder for holder in candidates if partition in holder.partitions]
            holders = self._of[partition] = tuple(found)
        return holders

    def publish(self, changes: Changes) -> None:
        """Send each holder the changes of the partitions that it holds, in one message."""
        self._written = None
        writers: dict[tuple[Follower, ...], RouteWriter] = {}
        for partition, record in changes:
            if record.kind is not RecordKind.ENTRY:
                continue
            holders = self.of(partition)
            if holders:
                writer = writers.get(holders)
                if writer is None:
                    writer = writers[holders] = RouteWriter(self._names)
                writer.add(partition, record)
        # Holders of the same partitions get equal messages; one with several sets of partners gets several.
        for holders, writer in writers.items():
            routes = writer.routes()
            for holder in holders:
                if holder.ready and isinstance(holder, Holder):
                    self._send(holder, routes)

    def _send(self, holder: Holder, routes: Routes) -> None:
        # Routes have a lane of their own, with the answers that are ordered by them. A holder confirms a batch when its
        # retained messages are stored. A batch with copies of them would wait for itself, if the holder is a shadow.
        applied = partial(self._copying.applied, holder, holder.sends())
        self._streams.send(holder.peer, routes, applied, lane=Lane.LOG)

    # Holders come and go

    def hold(self, peer: Peer, partitions: Iterable[int], everything: bool) -> None:
        """A peer wants the routes of these coordinated partitions, or of all present and future ones."""
        holder = self._holders.get(peer.id)
        if holder is None or holder.peer != peer:
            # If it has restarted, it has lost its routes.
            holder = self._add(peer)
        holder.until = self._state.clock.now + self._state.config.void_s
        holder.all |= everything
        wanted = set(ones_of(self._store.acting)) if everything else {p for p in partitions if self._store.acting[p]}
        if holder.lost_at:
            # Changes are missing there: it begins again, with all that it had. What it does not ask for now, it may
            # still have from the lost stream.
            lost_at, holder.lost_at = holder.lost_at, 0
            holder.ready = holder.known
            holder.term = self._next_term()
            wanted |= holder.partitions
            holder.partitions = set()
            self._of = {}
            self._give(holder, wanted)
            if holder.ready:
                self._copying.begun_again(holder, lost_at)
        else:
            self._give_in_turns(holder, holder.term, wanted)

    def _give_in_turns(self, holder: Holder, term: int, wanted: set[int]) -> None:
        """Begin these partitions, some now, and the others when the holder has applied these: the answers to its
        renewals come behind them in the stream, and everybody else waits meanwhile."""
        rows, first = 0, set[int]()
        for partition in sorted(wanted):
            if rows > ROWS_IN_A_TURN:
                break
            rows += len(self._store.records(partition))
            first.add(partition)
        self._give_when_noted(holder, first)
        if len(first) < len(wanted):
            self._state.after(LOOK_S, partial(self._give_rest, holder, term, wanted - first))

    def _give_rest(self, holder: Holder, term: int, rest: set[int]) -> None:
        if self._holders.get(holder.peer.id) is not holder or holder.term != term or holder.lost_at:
            return  # it begins again, with all that it asks for then
        if holder.behind:
            self._state.after(LOOK_S, partial(self._give_rest, holder, term, rest))
            return
        acting = self._store.acting
        rest = {partition for partition in rest - holder.partitions if acting[partition]}
        if rest:
            self._give_in_turns(holder, term, rest)

    def _add(self, peer: Peer) -> Holder:
        former = self._holders.get(peer.id)
        if former is not None:
            self._forget(former)
        until = self._state.clock.now + self._state.config.void_s
        holder = self._holders[peer.id] = Holder(peer, self._next_term(), until)
        # Its beginning is the first message: changes wait for it until it has been sent and applied.
        holder.sends()
        self._copying.note(Holders((peer,), ()))
        self._copying.wait_for_shadows(partial(self._begin, holder))
        return holder

    def _next_term(self) -> int:
        self._terms += 1
        return self._terms

    def _begin(self, holder: Holder) -> None:
        if self._holders.get(holder.peer.id) is not holder:
            return
        holder.known = True
        if holder.lost_at:
            return  # it is asked again
        holder.ready = True
        # It may have been silent while the shadows were.
        holder.until = max(holder.until, self._state.clock.now + self._state.config.void_s)
        before = holder.sent
        self._send_beginnings(holder, holder.partitions)
        self._copying.begun_again(holder, before)
        self._answer_behind(holder)

    def _answer_behind(self, holder: Holder) -> None:
        """Answer the renewal that came before the beginning, which now lies before the answer in the stream."""
        if holder.asked is not None:
            asked, holder.asked = holder.asked, None
            self._renew(holder.peer, *asked)

    def _give_when_noted(self, holder: Holder, partitions: set[int]) -> None:
        if not holder.ready or self._copying.noted:
            self._give(holder, partitions)
            return
        # There are new shadows, which must know the holder first.
        holder.partitions |= partitions
        self._of = {}
        beginning = holder.sends()
        self._copying.wait_for_shadows(partial(self._give_noted, holder, partitions, beginning))

    def _give_noted(self, holder: Holder, partitions: set[int], beginning: int) -> None:
        # After a lost stream, all partitions begin again.
        if self._holders.get(holder.peer.id) is holder and beginning > holder.applied:
            self._give(holder, partitions & holder.partitions)
            self._copying.begun(holder, beginning)

    def _give(self, holder: Holder, partitions: set[int]) -> None:
        if not partitions <= holder.partitions:
            holder.partitions |= partitions
            self._of = {}
        if holder.ready:
            self._send_beginnings(holder, partitions)

    def _send_beginnings(self, holder: Holder, partitions: Iterable[int]) -> None:
        """All routes of these partitions, in pieces that each have whole partitions."""
        acting = self._store.acting
        coordinated = tuple([partition for partition in sorted(partitions) if acting[partition]])
        # Publishers begin to hold all partitions at about the same time, and all of them learn of a takeover.
        if self._written is None or self._written[0] != coordinated:
            self._written = coordinated, self._write(coordinated)
        for routes in self._written[1]:
            self._send(holder, replace(routes, term=holder.term))
        holder.incomplete.difference_update(coordinated)
        if self._incomplete:
            holder.incomplete.update(partition for partition in coordinated if partition in self._incomplete)

    def _write(self, partitions: Iterable[int]) -> list[Routes]:
        pieces: list[Routes] = []
        writer, begun = RouteWriter(self._names), []
        for partition in partitions:
            for record in self._store.records(partition).values():
                if record.kind is RecordKind.ENTRY and not record.gone:
                    writer.add(partition, record)
            begun.append(partition)
            if len(writer) >= ROWS_AT_ONCE:
                pieces.append(writer.routes(self._begun(begun)))
                writer, begun = RouteWriter(self._names), []
        # Also if it is empty: the holder may be waiting for its first message, and changes wait for the holder.
        return [*pieces, writer.routes(self._begun(begun))]

    def _begun(self, partitions: list[int]) -> tuple[Begun, ...]:
        epoch_of, incomplete = self._store.epoch, self._incomplete
        runs = equal_runs(partitions, lambda partition: (epoch_of(partition).number, partition not in incomplete))
        return tuple([Begun(first, last, *state) for first, last, state in runs])

    def release(self, peer: Peer, runs: Runs, everything: bool) -> None:
        """A holder needs partitions no more; with `everything`, none but these."""
        holder = self._holders.get(peer.id)
        if holder is None or holder.peer != peer:
            return
        named = set(partitions_in(runs))
        if everything:
            holder.all = False
            holder.partitions &= named
        else:
            holder.partitions -= named
        self._of = {}
        if not holder.partitions and not holder.all:
            self._forget(holder)

    def renew(self, peer: Peer, asked_at: float) -> None:
        """A peer asks to trust the routes that it has from here."""
        now = self._state.clock.now
        holder = self._holders.get(peer.id)
        if holder is not None and holder.peer == peer and not holder.lost_at:
            holder.until = now + self._state.config.void_s
        self._renew(peer, asked_at, now)

    def _renew(self, peer: Peer, asked_at: float, came_at: float) -> None:
        holder = self._holders.get(peer.id)
        # After a lost stream the routes there are incomplete, and no lease of them may be renewed.
        if holder is None or holder.peer != peer or holder.lost_at:
            self._answer(peer, asked_at, False)
        elif not holder.ready:
            # The answer says that all changes have been sent before it, so it must not come before the beginning.
            holder.asked = asked_at, came_at
        else:
            # A successor waits for the leases that were given while the shadows obeyed this peer, and for no others.
            lag_s = max(0.0, came_at - self._copying.authority.since)
            if lag_s < self._state.config.lease_s / 2:
                self._answer(peer, asked_at, True, lag_s)
            else:
                self._unvouched = [known for known in self._unvouched if known[0] != peer]
                self._unvouched.append((peer, asked_at, came_at))
                # Not again those that have answered: with a silent one among them, that would have no end.
                self._copying.authority.claim(came_at)

    def vouched(self) -> None:
        unvouched, self._unvouched = self._unvouched, []
        for renewal in unvouched:
            self._renew(*renewal)

    def _answer(self, peer: Peer, asked_at: float, known: bool, lag_s: float = 0.0) -> None:
        self._streams.send(peer, Renewed(asked_at, known, self._state.hybrid_clock, lag_s), lane=Lane.LOG)

    def expect(self, partitions: list[int], peers: Iterable[Peer]) -> None:
        """These partitions will be coordinated here; these peers may hold routes of them from the predecessor.

        Call it before the first message about these partitions: then the shadows know the holders first.
        """
        until = self._state.clock.now + self._state.config.void_s
        for peer in peers:
            holder = self._holders.get(peer.id)
            # A holder may have restarted since its coordinator noted it, and the later boot may be known here.
            if holder is None or holder.peer.boot < peer.boot:
                holder = self._add(peer)
            # The lease from the predecessor may last longer than the lease from here.
            holder.until = max(holder.until, until)
            holder.partitions.update(partitions)
        self._of = {}

    def doubt(self, partitions: list[int], until: float, lacking: bool) -> None:
        """Nobody knows the holders of these partitions: a change waits until that time, as for a silent holder. If they
        are `lacking`, entries may be missing."""
        if until > self._state.clock.now:
            holder = Holder(self._state.me, self._next_term(), until)
            holder.sends()
            holder.partitions.update(partitions)
            self._unknown.append(holder)
            self._of = {}
        if lacking:
            self.lack(partitions)

    def lack(self, partitions: Collection[int]) -> None:
        """Entries may be missing in these partitions."""
        # By then each home that lives has registered again.
        complete_at = self._state.clock.now + self._state.config.entry_s
        self._incomplete.update((partition, complete_at) for partition in partitions)
        self._written = None

    def is_incomplete(self, partition: int) -> bool:
        """Whether entries in force may be missing here."""
        return partition in self._incomplete

    def took_over(self, partitions: list[int]) -> None:
        """These partitions are coordinated here now."""
        self._written = None
        taken = set(partitions)
        for holder in list(self._holders.values()):
            theirs = taken if holder.all else taken & holder.partitions
            if theirs:
                self._give_when_noted(holder, theirs)

    def stepped_down(self, partitions: list[int]) -> None:
        """The leases of these partitions must not be renewed with those of others."""
        ended = set(partitions)
        for partition in ended.intersection(self._incomplete):
            del self._incomplete[partition]
        runs = runs_of(ended)
        concerned = [holder for holder in self._holders.values() if not ended.isdisjoint(holder.partitions)]
        for holder in concerned:
            if holder.ready:
                self._send(holder, RouteWriter(self._names).routes(ended=runs))
            holder.partitions -= ended
        self._of = {}
        if concerned:
            until = self._state.clock.now + self._state.config.void_s
            self._former.append((until, ended, tuple([holder.peer for holder in concerned])))

    def tick(self) -> None:
        """Drop the holders whose leases have run out."""
        now = self._state.clock.now
        self._written = None  # it takes memory
        for holder in list(self._holders.values()):
            # While the shadows do not know it, it waits for its beginning.
            if holder.until <= now and holder.known and not self._is_late(holder, now):
                self._end(holder)
        self._former = [former for former in self._former if former[0] > now]
        self.complete([partition for partition, at in self._incomplete.items() if at <= now])
        for holder in [holder for holder in self._unknown if holder.until <= now]:
            self._unknown.remove(holder)
            self._of = {}
            self._copying.released(holder)

    def _is_late(self, holder: Holder, now: float) -> bool:
        """Whether a holder whose lease has run out is only late with its renewal: it sends other messages. Nobody waits
        for it, and it trusts nothing before it has applied all that was sent to it. If it were forgotten, it would have
        to be sent all routes again, by peers that are busy in any case."""
        void_s = self._state.config.void_s
        return now < holder.until + MOST_LATE * void_s and self._streams.heard_at(holder.peer) > now - void_s

    def complete(self, partitions: Iterable[int]) -> None:
        """Nothing is missing any more in these partitions. Holders that were given them meanwhile begin anew: some
        have kept what they knew before, and others trust nothing yet."""
        partitions = [partition for partition in partitions if partition in self._incomplete]
        if not partitions:
            return
        self._written = None
        for partition in partitions:
            del self._incomplete[partition]
        self._copying.copy_again([partition for partition in partitions if self._store.whole[partition] != WHOLE])
        for holder in list(self._holders.values()):
            theirs = holder.incomplete & holder.partitions.intersection(partitions)
            if theirs:
                self._give_when_noted(holder, theirs)

    def forget_coordinators(self, known: Collection[Id]) -> None:
        """Coordinators that are not among these peers, and are obeyed nowhere, have no successor here."""
        gone = {actor for table in (self._told, self._inherited) for actor in table if actor not in known}
        if gone:
            gone.difference_update([epoch.actor for epoch in self._store.epochs.values()])
        for table in (self._told, self._inherited):
            for actor in gone.intersection(table):
                del table[actor]

    def lost(self, peer: Peer) -> None:
        """Routes may be missing there: it holds none until it asks again."""
        holder = self._holders.get(peer.id)
        # It may still trust what it has until its lease is over, and is waited for until then.
        if holder is not None and holder.peer == peer:
            holder.ready = False
            holder.lost_at = holder.sends()

    def _end(self, holder: Holder) -> None:
        """Forget a holder that was silent. It may be back, and become a holder of other partitions before it asks."""
        # Before any answer to a renewal: that would count for what it still has.
        self._streams.send(
            holder.peer, RouteWriter(self._names).routes(ended=runs_of(holder.partitions)), lane=Lane.LOG
        )
        self._forget(holder)

    def _forget(self, holder: Holder) -> None:
        del self._holders[holder.peer.id]
        self._of = {}
        self._copying.note(Holders((), (holder.peer,)))
        self._copying.released(holder)

    # What successors know

    def shadow_added(self, peer: Peer) -> None:
        peers = tuple([holder.peer for holder in self._holders.values()])
        self._copying.note(Holders(peers, (), True), peer)

    def shadow_removed(self, peer: Peer) -> None:
        # It is not notified of holders that go. It may forget all once the other shadows know all.
        self._copying.wait_for_shadows(partial(self._release_shadow, peer))

    def _release_shadow(self, peer: Peer) -> None:
        if peer not in self._copying.shadows:
            self._streams.send(peer, Holders((), (), True))

    def holders(self, sender: Peer, message: Holders) -> None:
        # A coordinator that was deposed must not give routes of which its successor does not know. If this peer is its
        # shadow no more, the next shadows do not know of the successor.
        self._copying.refuse_deposed(sender)
        known = self._told.setdefault(sender.id, {})
        if message.all:
            known.clear()
        for peer in message.gone:
            known.pop(peer.id, None)
        for peer in message.added:
            known[peer.id] = peer
        if not known:
            del self._told[sender.id]

    def inherit(self, peers: Iterable[Peer], actor: Id) -> None:
        """A peer is about to succeed the coordinators of these holders. It may die before it has noted them; then its
        own successor must know them."""
        until = self._state.clock.now + self._state.config.entry_s
        if peers := tuple(peers):
            self._inherited.setdefault(actor, {}).update((peer.id, (peer, until)) for peer in peers)

    def known_of(self, partitions: Iterable[int], epochs: Iterable[Epoch]) -> list[Peer]:
        """Holders of the coordinators of these partitions with these epochs, as far as this peer knows."""
        now = self._state.clock.now
        found: dict[Id, Peer] = {}
        for actor in {epoch.actor for epoch in epochs}:
            inherited = self._inherited.get(actor, {})
            join_peers(found, [peer for peer, until in inherited.values() if until > now])
            if actor == self._state.me.id:
                join_peers(found, [holder.peer for holder in self._holders.values()])
            else:
                join_peers(found, self._told.get(actor, {}).values())
        asked = set(partitions)
        for until, ended, peers in self._former:
            # Its epoch was raised since, by a peer that may never have coordinated.
            if until > now and not ended.isdisjoint(asked):
                join_peers(found, peers)
        return list(found.values())
