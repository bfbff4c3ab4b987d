"""The coordinator of partitions answers homes and publishers (Table 2.1: Sub, UnSub, SubReq).

SUBACK is strict: an entry is in force when all shadows have it, and every holder of its partition has applied it or can
trust no older routes any more. So every message published anywhere after a SUBACK is sent to that home too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from ringmq.mqtt_front.matching.topics import has_wildcard
from ringmq.overlay.core.ids import Id, nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.finds import Finds
from ringmq.peer.engines.partitioned.coordinating.holders import HolderTable
from ringmq.peer.engines.partitioned.coordinating.home_leases import Home, HomeLeases
from ringmq.peer.engines.partitioned.coordinating.lasting import OF_HOMES, is_away, is_lasting, is_over, lapsed
from ringmq.peer.engines.partitioned.coordinating.quota import Quota
from ringmq.peer.engines.partitioned.coordinating.recalls import Recalls
from ringmq.peer.engines.partitioned.coordinating.retaining import Retaining
from ringmq.peer.engines.partitioned.coordinating.silence import Silence
from ringmq.peer.engines.partitioned.enrolling.client_registry import ClientRegistry
from ringmq.peer.engines.partitioned.messages import (
    Acting,
    Begun,
    Elsewhere,
    Entry,
    EntryFlag,
    Find,
    Hold,
    Present,
    Presented,
    Register,
    Registered,
    Registry,
    Release,
    Renew,
    Silent,
    Where,
)
from ringmq.peer.engines.partitioned.names import NameHash
from ringmq.peer.engines.partitioned.truth import Truth
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.shared_filters import is_shared
from ringmq.peer.replication.copying import PIECE_BYTES, Copying
from ringmq.peer.replication.followers import ItemStreams
from ringmq.peer.replication.neighbourhood import Neighbourhood
from ringmq.peer.replication.partition_store import PartitionStore
from ringmq.peer.replication.record import Epoch, Number, RecordKind, SharedRecord
from ringmq.peer.replication.rows import RowWriter
from ringmq.peer.replication.space import PARTITIONS, Runs, key_of_partition, ones_of, partitions_in, runs_of
from ringmq.peer.replication.takeover import Takeover
from ringmq.peer.replication.tombstones import Tombstones

MAX_ASKERS: Final = 4096
"""Peers that a silent coordinator leaves without answers, and that are notified who acts for it. Others ask again."""


class Answers:
    """What a home gets in the answer of this iteration."""

    __slots__ = ("ended", "in_force", "incomplete", "refused", "retained")

    def __init__(self) -> None:
        self.in_force: list[Number] = []
        self.incomplete = False
        self.ended: list[Number] = []
        self.refused: list[Number] = []
        self.retained = RowWriter()


class Coordinator:
    """One per engine."""

    __slots__ = (
        "_answers", "_askers", "_cleared", "_elsewhere", "_finds", "_leases", "_looked_at", "_names",
        "_neighbourhood", "_quota", "_stash", "_state", "_streams", "_truth", "client_ids", "copying", "holders",
        "recalls", "retaining", "silence", "store", "takeover",
    )  # fmt: skip

    def __init__(
        self, state: MessagingContext, streams: ItemStreams, neighbourhood: Neighbourhood, cleared: Tombstones
    ) -> None:
        self._state = state
        self._streams = streams
        self._neighbourhood = neighbourhood
        self._cleared = cleared
        self._leases = HomeLeases()
        self._looked_at = 0
        """The partition that was looked at last for entries whose homes have been away for too long."""
        self._quota = Quota()
        self._answers: dict[Peer, Answers] = {}
        self._elsewhere: dict[tuple[Peer, Peer | None], set[int]] = {}
        """Partitions that peers are referred elsewhere for, by the peer that acts in them."""
        self._askers: dict[Peer, dict[Peer, None]] = {}
        """The peers that wait for an answer of a peer which is being checked."""
        self._stash: dict[int, deque[tuple[Peer, Callable[[], None]]]] = {}
        """Requests that wait until this peer coordinates their partition."""
        self.store = PartitionStore(lambda: state.me, self._changed, is_away)
        self.holders = HolderTable(state, streams, self.store)
        self.copying = Copying(
            state, streams, neighbourhood, self.store, self, self.holders, self._deposed, self._copies_begun,
            self.suspect,
        )  # fmt: skip
        self.silence = Silence(state, streams, self._silence_changed)
        self.holders.attach(self.copying)
        self.recalls = Recalls(state, streams, self.holders, lambda: ones_of(self.store.acting))
        self.takeover = Takeover(state, streams, neighbourhood, self.store, self.copying, self, self)
        self.retaining = Retaining(state, streams, self, self._quota, cleared)
        self.client_ids = ClientRegistry(state, streams, self)
        self._finds = Finds(state, streams, self.store, self, self.retaining.index)
        self._truth = Truth(state)
        self._names = NameHash(state.config.hash_seed)

    # Requests

    def serving(self, partition: int, sender: Peer, again: Callable[[], None]) -> bool:
        """Whether this peer coordinates a partition. Otherwise the request waits for that, or is refused."""
        if self.store.acting[partition]:
            return True
        self.takeover.wake()
        if self.store.acting[partition]:
            return True
        if self.takeover.gathers(partition):
            stash = self._stash.setdefault(partition, deque())
            if len(stash) < self._state.config.max_stashed:
                stash.append((sender, again))
                return False
        self.refer(sender, (partition,))
        return False

    def decides(self, partition: int) -> bool:
        """Whether this peer coordinates a partition, or is about to: then it acts on changes of records."""
        return bool(self.store.acting[partition]) or self.takeover.gathers(partition)

    def refer(self, sender: Peer, partitions: Iterable[int]) -> None:
        """Another peer coordinates these partitions."""
        by_actor: dict[Peer | None, list[int]] = {}
        for partition in partitions:
            by_actor.setdefault(self.takeover.actor(partition), []).append(partition)
        for actor, theirs in by_actor.items():
            self._elsewhere.setdefault((sender, actor), set()).update(theirs)
            self._state.join_later()

    def register(self, sender: Peer, message: Register) -> None:
        self._heard(sender)
        for entry in message.entries:
            if self._truth.accepts_filter(entry.filter):
                self._register(sender, entry)

    def _register(self, sender: Peer, entry: Entry) -> None:
        partition = self._names.partition_of_filter(entry.filter)
        if self._state.is_far_boot(entry.number[0]):
            self._state.counters.false_records += 1
        elif self.serving(partition, sender, partial(self._register, sender, entry)):
            self._admit(partition, sender, entry)

    def _heard(self, home: Peer) -> None:
        if self._leases.heard(home, self._state.clock.now + self._state.config.entry_s):
            self._end_passing(home)

    def _answer_to(self, home: Peer) -> Answers:
        answers = self._answers.get(home)
        if answers is None:
            answers = self._answers[home] = Answers()
            self._state.join_later()
        return answers

    def _admit(self, partition: int, home: Peer, entry: Entry) -> None:
        """Store an entry or its end, and answer when that is in force."""
        # Away is for the coordinator to say, and not for the home.
        flags = 0 if entry.gone else entry.flags & OF_HOMES
        record = SharedRecord(RecordKind.ENTRY, entry.filter, home, entry.number, entry.gone, False, flags)
        known = self.store.get(partition, record.key)
        if known is not None and (known.number, known.gone) > (record.number, record.gone):
            # The count names the entry of this request. The boot lets the home give a number above the known one.
            self._answer_to(home).ended.append((known.number[0], entry.number[1]))
            return
        if known is None or known.rank() < record.rank():
            # A further number of a live entry takes no room.
            further = not entry.gone and (known is None or known.gone)
            if further and self._quota.refuses_entry(partition, entry.filter, len(self.store.records(partition))):
                self._answer_to(home).refused.append(entry.number)
                return
            self.copying.put(partition, record, soon=not entry.gone)
        then = partial(self._grant, partition, record)
        # An end does not wait for the holders: the home drops or refuses messages sent by older routes.
        soon = not entry.gone
        self.copying.wait(partition, then, partial(self.refer, home, (partition,)), listed=soon, soon=soon)

    def _grant(self, partition: int, record: SharedRecord) -> None:
        """Every shadow and holder has the entry: answer its home."""
        known = self.store.get(partition, record.key)
        assert record.home is not None, "entries have homes"
        if known is not None and known.number > record.number:
            return  # a later request is answered by itself
        answers = self._answer_to(record.home)
        # A tombstone may be forgotten by now, and an entry may have lapsed: its home must give it a new number.
        if record.gone or known is None or known.gone:
            answers.ended.append(record.number)
            return
        answers.in_force.append(record.number)
        answers.incomplete |= self.holders.is_incomplete(partition)
        # MQTT 5.0, 3.3.1.3: only a non-shared subscription gets the retained messages.
        if not has_wildcard(record.name) and not is_shared(record.name):
            retained = self.store.get(partition, (RecordKind.RETAINED, record.name, 0))
            if retained is not None:
                answers.retained.add(partition, self.told(retained))
                if answers.retained.size >= PIECE_BYTES:
                    self._send_answers(record.home, self._answers.pop(record.home))

    def present(self, sender: Peer, message: Present) -> None:
        self._heard(sender)
        acting = self.store.acting
        elsewhere = [p for p in partitions_in(message.runs) if not acting[p] and not self.takeover.gathers(p)]
        home = self._leases.get(sender.id)
        digests: dict[int, tuple[int, int]] = {}
        if home is not None:
            # The end of its only filter in a partition may be lost with a coordinator: the home says nothing about
            # that partition then.
            digests = home.digests if message.all else self._leases.within(home, message.runs)
        count, digest = 0, 0
        for partition_count, partition_digest in digests.values():
            count += partition_count
            digest ^= partition_digest
        same = not elsewhere and (count, digest) == (message.count, message.digest)
        details = () if same else tuple([(p, *digests[p]) for p in sorted(digests)])
        answered = runs_of(p for p in partitions_in(message.runs) if acting[p]) if not same else message.runs
        self._streams.send(sender, Presented(same, answered, details, runs_of(elsewhere), message.asked_at))
        if elsewhere:
            self.takeover.wake()
            self.refer(sender, [p for p in elsewhere if self.takeover.actor(p) is not None])

    def registry(self, sender: Peer, message: Registry) -> None:
        """Make true that a home has exactly these entries in one partition."""
        partition = message.partition
        if not self.serving(partition, sender, partial(self.registry, sender, message)):
            return
        names = {entry.filter for entry in message.entries}
        for record in list(self.store.records(partition).values()):
            if record.kind is not RecordKind.ENTRY or record.home is None or record.home.id != sender.id:
                continue
            counts = not record.gone or is_away(record)
            if counts and record.number <= message.up_to and record.name not in names:
                # The number of the end overrules both the live entry and the one whose home was away.
                self.copying.put(partition, replace(record.ended(), number=message.up_to))
        for entry in message.entries:
            if self._truth.accepts_entry(partition, entry.filter, entry.number):
                self._admit(partition, sender, entry)

    def hold(self, sender: Peer, message: Hold) -> None:
        self.takeover.wake()
        self.recalls.met(sender)
        if not message.all:
            for partition in partitions_in(message.runs):
                self.serving(partition, sender, partial(self.holders.hold, sender, (partition,), False))
        self.holders.hold(sender, partitions_in(message.runs), message.all)

    def release(self, sender: Peer, message: Release) -> None:
        self.holders.release(sender, message.runs, message.all)

    def renew(self, sender: Peer, message: Renew) -> None:
        self.recalls.met(sender)
        self.holders.renew(sender, message.asked_at)

    def find(self, sender: Peer, message: Find) -> None:
        self.takeover.wake()
        self._finds.find(sender, message, [name for name in message.filters if self._truth.accepts_filter(name)])

    # Records, as the copies see them

    def overruled(self, record: SharedRecord) -> SharedRecord:
        return self._cleared.overrule(record)

    def accepts(self, partition: int, record: SharedRecord) -> bool:
        return self._truth.accepts(partition, record)

    def told(self, record: SharedRecord) -> SharedRecord:
        return self.retaining.told(record) if record.kind is RecordKind.RETAINED else record

    def _changed(self, partition: int, before: SharedRecord | None, after: SharedRecord | None) -> None:
        record = after or before
        assert record is not None, "a change has a record before or after it"
        if record.kind is RecordKind.RETAINED:
            self.retaining.changed(partition, before, after)
            return
        if record.kind is RecordKind.CLIENT_ID:
            self.client_ids.changed(partition, before, after)
            return
        if after is not None and is_lasting(after):
            self._state.keep_entry(after)
        elif before is not None and is_lasting(before):
            self._state.leave_entry(before)
        if self.store.acting[partition]:
            if before is not None:
                self._entry_left(partition, before)
            if after is not None:
                self._entry_came(partition, after)

    def _entry_came(self, partition: int, record: SharedRecord) -> None:
        if record.gone and not is_away(record):
            return
        self._leases.added(partition, record, self._state.clock.now + self._state.config.entry_s)
        if not record.gone:
            self._quota.entry_came(partition, record)

    def _entry_left(self, partition: int, record: SharedRecord) -> None:
        if record.gone and not is_away(record):
            return
        self._leases.removed(partition, record)
        if not record.gone:
            self._quota.entry_left(partition, record)

    # Takeovers

    def leaves_changed(self) -> None:
        if self._neighbourhood.update(self._state.overlay.leaves):
            self._review()

    def activity_changed(self, active: bool) -> None:
        """A peer that becomes active again collects the state of its partitions first: it may have missed changes."""
        self._neighbourhood.update(self._state.overlay.leaves)
        self._review()

    def _review(self) -> None:
        self.silence.follow(self._neighbourhood.knows)
        self._neighbourhood.silent = self.silence.silent
        self.recalls.follow()
        self.takeover.review()

    # Silent peers

    def suspect(self, peer: Peer) -> None:
        """A peer has left a request unanswered for `doubt_s`."""
        if self._neighbourhood.knows(peer):
            self.silence.suspect(peer)

    def silent(self, sender: Peer, message: Silent) -> None:
        """Somebody waits for an answer of a coordinator that this peer might have to act for."""
        self.missed(message.peer, message.partition, message.origin)

    def bypassed(self, message: Where) -> None:
        """A question for the nearest peer has been routed around it."""
        first = self._neighbourhood.owners(message.partition)[0]
        if first.id != self._state.me.id:
            self.missed(first, message.partition, message.origin)

    def missed(self, peer: Peer, partition: int, origin: Peer) -> None:
        """A coordinator leaves a role of this peer, or another peer, without an answer."""
        self.takeover.wake()
        if self.store.acting[partition]:
            self._say_acting([origin])
            return
        owners = self._neighbourhood.owners(partition)
        if owners[0] != peer or len(owners) == 1:
            return
        if owners[1].id == self._state.me.id:
            askers = self._askers.setdefault(peer, {})
            if len(askers) < MAX_ASKERS:
                askers[origin] = None
            self.suspect(peer)
        elif owners[0].id != self._state.me.id:
            key = key_of_partition(partition)
            if nearness(key, owners[1].id) < nearness(key, self._state.me.id):
                # The origin does not know the neighbours of its coordinator.
                self._state.send(owners[1], Silent(peer, partition, origin))

    def _silence_changed(self) -> None:
        self._askers = {peer: askers for peer, askers in self._askers.items() if self.silence.watches(peer)}
        self._review()

    def _say_acting(self, peers: Iterable[Peer]) -> None:
        runs = runs_of(partition for partition, flag in enumerate(self.store.acting) if flag)
        for peer in peers:
            self._streams.send(peer, Acting(runs))

    def claim(self, but: Callable[[Peer], bool] | None = None) -> None:
        """Have the shadows confirm that they obey this peer, but those that `but` names, as often as leases end."""
        if len(self.holders):
            self.copying.authority.claim(but=but)

    def claim_of(self, peer: Peer) -> None:
        """Likewise of one peer, if it is a shadow."""
        if len(self.holders):
            self.copying.authority.claim_of(peer)

    def stream_lost(self, peer: Peer) -> None:
        self.copying.lost(peer)
        self.takeover.lost(peer)
        self.holders.lost(peer)
        self.recalls.lost(peer)
        # Not at once: a peer that has started again is lost with each item.
        self._state.after(self._state.config.retry_s, partial(self._lose_answers, peer))

    def _lose_answers(self, peer: Peer) -> None:
        """Answers to a home or a publisher are lost, which it does not know: it must ask for them again."""
        home = self._leases.get(peer.id)
        if (home is not None and home.peer == peer) or self.holders.knows(peer):
            self.refer(peer, ones_of(self.store.acting))

    def _deposed(self, partitions: list[int]) -> None:
        self.takeover.deposed(partitions)

    def _copies_begun(self, begun: Iterable[Begun]) -> None:
        self.takeover.copies_begun(begun)

    def succeeds(self, partitions: Sequence[int], holders: Iterable[Peer]) -> None:
        self.holders.expect(list(partitions), holders)

    def doubts(self, partitions: Sequence[int], until: float, lacking: bool) -> None:
        self.holders.doubt(list(partitions), until, lacking)

    def took_over(self, partitions: Sequence[int]) -> None:
        self.client_ids.took_over()
        for partition in partitions:
            for record in self.store.records(partition).values():
                if record.kind is RecordKind.ENTRY:
                    self._entry_came(partition, record)
        until = self._state.clock.now + self._state.config.entry_s
        for home in self._leases:
            # Records carry no remaining time: leases begin anew. So lasting entries of the disk count until their homes
            # have had the time to register.
            home.until, home.away = max(home.until, until), False
        self.recalls.took_over(partitions)
        self.holders.took_over(list(partitions))
        self._announce(partitions)
        for partition in partitions:
            for _, again in self._stash.pop(partition, ()):
                again()

    def _announce(self, partitions: Sequence[int]) -> None:
        """Those who would ask another peer must know that this one acts."""
        concerned: dict[Peer, None] = {}
        for silent in dict.fromkeys(self._neighbourhood.silent_first(partition) for partition in partitions):
            if silent is not None:
                concerned.update(dict.fromkeys((*self.holders.peers, *self._askers.pop(silent, ()))))
        if self.takeover.is_back(partitions):
            concerned.update(dict.fromkeys(self.holders.peers))
        self._say_acting(concerned)

    def stepped_down(self, partitions: Sequence[int]) -> None:
        stopped = set(partitions)
        self._leases.left(stopped)
        for partition in stopped:
            self._quota.left(partition)
        self.holders.stepped_down(list(partitions))
        self.recalls.stopped(stopped)

    def holders_of(self, partitions: Iterable[int], epochs: Iterable[Epoch]) -> Collection[Peer]:
        return self.holders.known_of(partitions, epochs)

    def inherited(self, holders: Iterable[Peer], actor: Id) -> None:
        self.holders.inherit(holders, actor)

    # Time

    def flush(self) -> None:
        """At the end of each iteration: join its changes and answers into items."""
        while True:
            self.copying.flush()
            if not self._answers and not self._elsewhere:
                return
            answers, self._answers = self._answers, {}
            for home, answer in answers.items():
                self._send_answers(home, answer)
            elsewhere, self._elsewhere = self._elsewhere, {}
            for (peer, actor), partitions in elsewhere.items():
                self._streams.send(peer, Elsewhere(runs_of(partitions), actor))

    def _send_answers(self, home: Peer, answers: Answers) -> None:
        rows = tuple(answers.retained.rows)
        item = Registered(
            tuple(answers.in_force), tuple(answers.ended), tuple(answers.refused), rows, answers.incomplete
        )
        self._streams.send(home, item)

    def shadowed(self) -> int:
        """The number of partitions that this peer follows the coordinators of."""
        return sum(map(self._neighbourhood.belongs, self.store.followed()))

    @property
    def waiting(self) -> int:
        """Requests that wait for copies, for holders, or for a takeover."""
        return self.copying.waiting + sum(len(requests) for requests in self._stash.values())

    def neighbours(self, peer: Peer) -> tuple[Peer, ...]:
        """The peers that act for a peer when it is silent, as far as this one knows."""
        return self._neighbourhood.beside(peer)

    def owned_runs(self) -> Runs:
        return self._neighbourhood.owned_runs() if self._state.overlay.active else ()

    def tick(self) -> None:
        """Once a second: drop what has expired, and remind silent coordinators."""
        now, config = self._state.clock.now, self._state.config
        for home in self._leases.expired(now, config.entry_s, self._streams.heard_at):
            self._lapse(home)
        self._forget_away()
        self.holders.tick()
        self.retaining.expire()
        self.store.forget_gone(now - config.tomb_s)
        self._drop_stale_stash()
        self.takeover.tick()
        self.holders.forget_coordinators(self._neighbourhood.ids)
        self.copying.forget_coordinators(self._neighbourhood.ids)

    def _end_passing(self, peer: Peer) -> None:
        """A home has restarted: end the passing entries of its earlier boots. Its sessions are restored, so their
        lasting entries count until it has registered them again."""
        home = self._leases.get(peer.id)
        assert home is not None, "a home that was heard is known"
        for partition, record in self._live_entries(home):
            assert record.home is not None, "entries have homes"
            if record.home.boot < peer.boot and not is_lasting(record):
                self.copying.put(partition, record.ended(EntryFlag.LAPSED))

    def _lapse(self, home: Home) -> None:
        """A home was silent for the length of its lease: no publisher waits for it any longer."""
        for partition, record in self._live_entries(home):
            self._state.counters.expired += 1
            self.copying.put(partition, lapsed(record, self._wall_s()))
        self._leases.lapsed(home)

    def _live_entries(self, home: Home) -> Iterator[tuple[int, SharedRecord]]:
        for partition in list(home.digests):
            for record in list(self.store.records(partition).values()):
                if record.kind is not RecordKind.ENTRY or record.home is None or record.home.id != home.peer.id:
                    continue
                if not record.gone:
                    yield partition, record

    def _wall_s(self) -> int:
        return self._state.clock_us() // 1_000_000

    def _forget_away(self) -> None:
        """Forget the entries of homes that never returned: each copy by itself, one partition in each call."""
        self._looked_at = (self._looked_at + 1) % PARTITIONS
        self.client_ids.forget_silent(self._looked_at)
        now_s = self._wall_s()
        for key, record in list(self.store.records(self._looked_at).items()):
            if is_over(record, now_s):
                self._state.counters.forgotten_away += 1
                self.store.forget(self._looked_at, key)

    def _drop_stale_stash(self) -> None:
        for partition in [p for p in self._stash if not self.takeover.gathers(p)]:
            for sender, _ in self._stash.pop(partition):
                self.refer(sender, (partition,))
