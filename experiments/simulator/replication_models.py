"""Models of the peers that a coordinator deals with: a home with filters, and a publisher that holds routes."""

from __future__ import annotations

from functools import partial
from math import inf

from ringmq.experiments.simulator.replication_checks import PublicationChecks, Route
from ringmq.overlay.core.ids import nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.coordinator import Coordinator
from ringmq.peer.engines.partitioned.item_codec import unpacked
from ringmq.peer.engines.partitioned.messages import (
    Elsewhere,
    Entry,
    Hold,
    Present,
    Presented,
    Ranges,
    Recall,
    Recalled,
    Register,
    Registered,
    Registry,
    Renew,
    Renewed,
    RouteChange,
    Routes,
    Silent,
)
from ringmq.peer.engines.partitioned.names import fingerprint_of
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.record import Epoch, Number, digest_of
from ringmq.peer.replication.space import key_of_partition, partitions_in, runs_of
from ringmq.peer.streams.streams import Streams


class ModelDirectory:
    """The coordinators, as one peer knows them: the ring's owners, and peers that act for them."""

    def __init__(self, state: MessagingContext, coordinator: Coordinator) -> None:
        self.state = state
        self.coordinator = coordinator
        self.acting: dict[int, tuple[Peer, Peer]] = {}

    def owner(self, partition: int) -> Peer:
        owner = self.state.overlay.owner(key_of_partition(partition))
        assert owner is not None
        if partition in self.acting:
            peer, instead_of = self.acting[partition]
            if owner == instead_of and not self.state.overlay.doubts(peer):
                return peer
            del self.acting[partition]
        return owner

    def set_acting(self, peer: Peer, runs: Ranges) -> None:
        for partition in partitions_in(runs):
            owner = self.state.overlay.owner(key_of_partition(partition))
            assert owner is not None
            self.acting.pop(partition, None)
            if peer not in (owner, self.state.me):
                self.acting[partition] = peer, owner

    def wrong(self, peer: Peer, runs: Ranges) -> None:
        for partition in partitions_in(runs):
            if partition in self.acting and self.acting[partition][0] == peer:
                del self.acting[partition]

    def doubt(self, partition: int) -> None:
        """The coordinator of a partition has left a request unanswered."""
        silent, key = self.owner(partition), key_of_partition(partition)
        others = [peer for peer in (self.state.me, *self.state.overlay.leaves) if peer != silent]
        peer = min(others, key=lambda other: nearness(key, other.id), default=self.state.me)
        if silent == self.state.me:
            return
        if peer == self.state.me:
            self.coordinator.missed(silent, partition, self.state.me)
        else:
            self.state.send(peer, Silent(silent, partition, self.state.me))


class ModelHome:
    """A peer with filters, which it registers and renews."""

    def __init__(
        self, state: MessagingContext, streams: Streams, directory: ModelDirectory, checks: PublicationChecks
    ) -> None:
        self.state = state
        self.streams = streams
        self.directory = directory
        self.checks = checks
        self.me = state.me
        self.count = 0
        self.wanted: dict[str, Number] = {}
        self.pending: dict[Number, tuple[Entry, Peer | None]] = {}
        """Entries without an answer, with the coordinator that was asked."""
        self.owners: dict[int, Peer] = {}
        self.checked: set[Number] = set()
        """Entries that had no answer at the last check."""

    def _number(self) -> Number:
        self.count += 1
        return self.me.boot, self.count

    def change(self, name: str) -> None:
        """A client here subscribes, or the last one unsubscribes."""
        if name in self.wanted:
            self.remove(name)
        else:
            self.add(name)

    def add(self, name: str) -> None:
        number = self.wanted[name] = self._number()
        self._forget_pending(name)
        self.pending[number] = Entry(name, number, False), None

    def remove(self, name: str) -> None:
        del self.wanted[name]
        self.checks.ends(self.me, name)
        number = self._number()
        self._forget_pending(name)
        self.pending[number] = Entry(name, number, True), None

    def _forget_pending(self, name: str) -> None:
        for number, (entry, _) in list(self.pending.items()):
            if entry.filter == name:
                del self.pending[number]

    def _owner(self, partition: int) -> Peer:
        return self.directory.owner(partition)

    def flush(self) -> None:
        asked: dict[Peer, list[Entry]] = {}
        for number, (entry, peer) in self.pending.items():
            if peer is None:
                owner = self._owner(self.checks.partition_of[entry.filter])
                self.pending[number] = entry, owner
                asked.setdefault(owner, []).append(entry)
        for peer, entries in asked.items():
            self.streams.send(peer, Register(tuple(entries)))

    def check(self) -> None:
        """Ask again if another peer is the coordinator now; doubt one that has not answered since the last check."""
        unanswered: dict[int, None] = {}
        for number, (entry, peer) in self.pending.items():
            partition = self.checks.partition_of[entry.filter]
            if peer != self._owner(partition):
                self.pending[number] = entry, None
            elif number in self.checked:
                unanswered[partition] = None
        self.checked = set(self.pending)
        for partition in unanswered:
            self.directory.doubt(partition)

    def registered(self, sender: Peer, message: Registered) -> None:
        for number in message.in_force:
            asked = self.pending.pop(number, None)
            if asked is not None and self.wanted.get(asked[0].filter) == number:
                self.checks.comes_into_force(self.me, asked[0].filter)
        for number in message.ended:
            asked = self.pending.pop(number, None)
            if asked is None or not asked[0].gone:
                for name in [name for name, known in self.wanted.items() if known == number]:
                    # Its lease has run out.
                    self.checks.leases_lost += 1
                    self.checks.ends(self.me, name)
                    self.add(name)
        for number in message.refused:
            self.pending.pop(number, None)

    def elsewhere(self, sender: Peer, message: Elsewhere) -> None:
        partitions = set(partitions_in(message.runs))
        for number, (entry, peer) in self.pending.items():
            if peer == sender and self.checks.partition_of[entry.filter] in partitions:
                # Asked again after a while.
                self.state.after(self.state.config.ask_s, partial(self._ask_again, number))

    def _ask_again(self, number: Number) -> None:
        if number in self.pending:
            self.pending[number] = self.pending[number][0], None

    def stream_lost(self, peer: Peer) -> None:
        for number, (_, asked) in self.pending.items():
            if asked == peer:
                # Not at once: the peer may have started again, which the ring does not know yet.
                self.state.after(self.state.config.ask_s, partial(self._ask_again, number))

    def coordinators_changed(self) -> None:
        owners = {self.checks.partition_of[name] for name in self.wanted}
        changed = set()
        for partition in owners:
            owner = self._owner(partition)
            if self.owners.get(partition) != owner:
                self.owners[partition] = owner
                changed.add(owner)
        self._present(changed)

    def renew(self) -> None:
        self._present(None)

    def _present(self, only: set[Peer] | None) -> None:
        theirs: dict[Peer, list[str]] = {}
        for name in self.wanted:
            theirs.setdefault(self._owner(self.checks.partition_of[name]), []).append(name)
        for peer, names in theirs.items():
            if only is None or peer in only:
                digest = 0
                for name in names:
                    digest ^= digest_of(fingerprint_of(name), self.wanted[name])
                runs = runs_of({self.checks.partition_of[name] for name in names})
                self.streams.send(peer, Present(runs, len(names), digest))

    def recall(self, sender: Peer, message: Recall) -> None:
        """All entries in these partitions, before the answer."""
        asked = set(partitions_in(message.runs))
        for partition in sorted({self.checks.partition_of[name] for name in self.wanted} & asked):
            names = [name for name in self.wanted if self.checks.partition_of[name] == partition]
            entries = tuple([Entry(name, self.wanted[name], False) for name in names])
            self.streams.send(sender, Registry(partition, (self.me.boot, self.count), entries))
        self.streams.send(sender, Recalled(message.ident))

    def presented(self, sender: Peer, message: Presented) -> None:
        self.directory.wrong(sender, message.elsewhere)
        if message.same:
            return
        theirs = {partition: (count, digest) for partition, count, digest in message.digests}
        for partition in partitions_in(message.runs):
            names = [name for name in self.wanted if self.checks.partition_of[name] == partition]
            digest = 0
            for name in names:
                digest ^= digest_of(fingerprint_of(name), self.wanted[name])
            if theirs.get(partition, (0, 0)) != (len(names), digest):
                entries = tuple([Entry(name, self.wanted[name], False) for name in names])
                self.streams.send(sender, Registry(partition, (self.me.boot, self.count), entries))


class Held:
    """A partition at a publisher."""

    def __init__(self, epoch: Epoch, source: Peer, kept_until: float) -> None:
        self.epoch = epoch
        self.source: Peer | None = source
        self.kept_until = kept_until
        """The end of the lease under which an earlier coordinator gave it."""
        self.routes: set[Route] = set()


class ModelHolder:
    """A publisher's peer, which wants some partitions, or all."""

    def __init__(
        self, state: MessagingContext, streams: Streams, directory: ModelDirectory, checks: PublicationChecks
    ) -> None:
        self.state = state
        self.streams = streams
        self.directory = directory
        self.checks = checks
        self.leases: dict[Peer, float] = {}
        self.held: dict[int, Held] = {}
        self.all = checks.random.random() < 0.5
        self.wanted = set(checks.partitions if self.all else checks.random.sample(checks.partitions, 5))
        self.asked: dict[Peer, float] = {}
        self.terms: dict[Peer, int] = {}
        """The number that each coordinator gave this holder."""

    def _owner(self, partition: int) -> Peer:
        return self.directory.owner(partition)

    def renew(self) -> None:
        """Three times in a lease."""
        if not self.state.overlay.active:
            return
        now = self.state.clock.now
        lacking: dict[Peer, list[int]] = {}
        sources: dict[Peer, None] = {}
        for partition in self.wanted:
            held = self.held.get(partition)
            owner = self._owner(partition)
            needed = held is None or held.source is None or (held.source != owner and not self._trusts(held, now))
            if needed and now - self.asked.get(owner, -inf) > self.state.config.lease_s:
                lacking.setdefault(owner, []).append(partition)
            if held is not None and held.source is not None:
                sources[held.source] = None
        for peer, partitions in lacking.items():
            self.asked[peer] = now
            self.streams.send(peer, Hold((), True) if self.all else Hold(runs_of(partitions), False))
        for peer in sources | dict.fromkeys(lacking):
            self.streams.send(peer, Renew(now))

    def _until(self, held: Held) -> float:
        lease = -inf if held.source is None else self.leases.get(held.source, -inf)
        return max(held.kept_until, lease)

    def _trusts(self, held: Held, now: float) -> bool:
        return now < self._until(held)

    def routes(self, sender: Peer, message: Routes) -> None:
        if message.term and message.term != self.terms.get(sender):
            # The coordinator had forgotten this holder: it sends no changes of what it began before.
            self.terms[sender] = message.term
            for partition in list(self.held):
                self._detach(partition, sender)
        for partition in partitions_in(message.ended):
            self._detach(partition, sender)
        for begun in message.begun:
            epoch = Epoch(begun.epoch, sender.id)
            for partition in range(begun.first, begun.last + 1):
                if partition not in self.wanted:
                    continue
                held = self.held.get(partition)
                if held is not None and held.epoch > epoch and (held.source is not None or self._recent(held)):
                    continue
                until = -inf if held is None else self._until(held) if held.source != sender else held.kept_until
                self.held[partition] = Held(epoch, sender, until)
        self._apply(sender, message)
        self.asked.pop(sender, None)

    def _recent(self, held: Held) -> bool:
        return self.state.clock.now < held.kept_until + self.state.config.entry_s

    def _apply(self, sender: Peer, message: Routes) -> None:
        columns = zip(
            unpacked(message.partitions, "H"),
            unpacked(message.fingerprints, "Q"),
            unpacked(message.homes, "I"),
            unpacked(message.changes, "B"),
            strict=True,
        )
        for partition, fingerprint, home, change in columns:
            held = self.held.get(partition)
            if held is None or held.source != sender:
                continue
            route = fingerprint, message.peers[home]
            if change & RouteChange.GONE:
                held.routes.discard(route)
            else:
                held.routes.add(route)

    def _detach(self, partition: int, sender: Peer) -> None:
        held = self.held.get(partition)
        if held is not None and held.source == sender:
            held.kept_until = self._until(held)
            held.source = None

    def renewed(self, sender: Peer, message: Renewed) -> None:
        if not message.known:
            for partition in list(self.held):
                self._detach(partition, sender)
            self.leases.pop(sender, None)
            self.asked.pop(sender, None)
        else:
            until = message.asked_at - message.lag_s + self.state.config.lease_s
            self.leases[sender] = max(self.leases.get(sender, -inf), until)

    def elsewhere(self, sender: Peer, message: Elsewhere) -> None:
        self.asked.pop(sender, None)

    def stream_lost(self, peer: Peer) -> None:
        """Requests may be missing there. Its own stream to this peer goes on, and the routes in it must be applied, as
        they are confirmed. Had that been lost, the next answer to a renewal would say so."""
        self.asked.pop(peer, None)

    def publish(self) -> None:
        partition = self.checks.random.choice(self.checks.partitions)
        held = self.held.get(partition)
        trusted = held is not None and self._trusts(held, self.state.clock.now)
        if not trusted and partition in self.wanted and self.state.overlay.active:
            self.directory.doubt(partition)
        self.checks.published(self.state.me, partition, held.routes if trusted and held is not None else None)
