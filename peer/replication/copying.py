"""A coordinator sends copies of its partitions to their shadows, and a shadow takes them.

The first message about a partition begins it, with all its records; changes follow in the same stream. An answer to a
home or a publisher waits until all shadows have applied it. Knows nothing of the meaning of records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import chain
from math import inf
from typing import Final, Protocol

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Append, Begun, Claim, Deposed, Extra
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.authority import Authority
from ringmq.peer.replication.followers import EVERY, Answer, Call, Follower, ItemStreams, Patience, Then, Waiter
from ringmq.peer.replication.neighbourhood import Neighbourhood
from ringmq.peer.replication.partition_store import WHOLE, PartitionStore
from ringmq.peer.replication.record import Epoch, Key, SharedRecord
from ringmq.peer.replication.rows import RowWriter, read_rows
from ringmq.peer.replication.space import NUMBERS, equal_runs, ones_of

LATER_S: Final = 0.05
"""The longest wait of an end that nobody waits for. An unsubscribe costs as many messages as a subscription, unless it
goes along with one; messages that come to its home meanwhile are dropped there."""
PIECE_BYTES: Final = 1 << 13
"""Estimated bytes of rows in one message; a single record may be larger."""

Changes = list[tuple[int, SharedRecord]]


class Listeners(Protocol):
    """Further followers of partitions, which know nothing of records: holders of routes."""

    def publish(self, changes: Changes) -> None:
        """Send them what follows from these changes."""

    def of(self, partition: int) -> tuple[Follower, ...]:
        """The followers that must know of a change of a partition."""

    def shadow_added(self, peer: Peer) -> None:
        """A possible successor of this peer, which must know the listeners. It has no copy yet."""

    def shadow_removed(self, peer: Peer) -> None:
        """No successor of this peer any more."""

    def vouched(self) -> None:
        """The authority of this peer has been confirmed anew, or depends on others now."""


class Records(Protocol):
    """The meaning of records, which this module does not know."""

    def overruled(self, record: SharedRecord) -> SharedRecord:
        """The record, or a newer end of it."""

    def told(self, record: SharedRecord) -> SharedRecord:
        """The record as it is sent to another peer."""

    def accepts(self, partition: int, record: SharedRecord) -> bool:
        """Whether a record of another peer can be one of this partition. Counts those that cannot."""


class Copying:
    """One per engine. At the end of each iteration call `flush`."""

    __slots__ = (
        "_answers", "_armed", "_changes", "_copied_from", "_copies_begun", "_copying", "_deposed", "_followers",
        "_idents", "_listeners", "_neighbourhood", "_new", "_open", "_patience", "_records", "_soon", "_state",
        "_streams", "authority", "followed", "store",
    )  # fmt: skip

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemStreams,
        neighbourhood: Neighbourhood,
        store: PartitionStore,
        records: Records,
        listeners: Listeners,
        deposed: Callable[[list[int]], None],
        copies_begun: Callable[[Iterable[Begun]], None],
        suspect: Callable[[Peer], None],
    ) -> None:
        """`deposed` is called with partitions that another peer has a higher epoch of, `copies_begun` with those that
        another peer has copies made of here, `suspect` with a shadow that leaves changes unanswered."""
        self._state = state
        self._streams = streams
        self._neighbourhood = neighbourhood
        self.store = store
        self._records = records
        self._listeners = listeners
        self._deposed = deposed
        self._copies_begun = copies_begun
        self._followers: dict[Id, Follower] = {}
        self.followed: dict[int, tuple[Follower, ...]] = {}
        """The shadows of each partition that this peer coordinates, which have been sent its beginning."""
        self._changes: Changes = []
        self._new: list[Call] = []
        self._soon = False
        """Whether changes or calls must not wait for later ones."""
        self._armed = False
        self._open: dict[Waiter, None] = {}
        self._patience = Patience(state, self._open, self._is_shadow, suspect)
        self.authority = Authority(state, streams, store, self._followers, self.followed, listeners.vouched)
        self._copying: dict[int, tuple[Epoch, set[Key]]] = {}
        """Partitions whose beginning is coming in several messages: its epoch, and the keys that have come."""
        self._copied_from: dict[Id, set[int]] = {}
        """Partitions that each coordinator believes to have copies of here."""
        self._answers: dict[int, Answer] = {}
        self._idents = 0

    # The coordinator

    def put(self, partition: int, record: SharedRecord, *, soon: bool = True) -> bool:
        """Merge a record into a partition that this peer coordinates; returns whether it was news. Unless `soon`, the
        change may wait a little for others that go with it."""
        record = self._records.overruled(record)
        if not self.store.take(partition, record, self._state.clock.now):
            return False
        self._changes.append((partition, record))
        self._call_for_flush(soon)
        return True

    def _call_for_flush(self, soon: bool) -> None:
        if soon:
            self._soon = True
            self._state.join_later()
        elif not self._armed:
            self._armed = True
            self._state.after(LATER_S, self._flush_late)

    def _flush_late(self) -> None:
        self._armed = False
        if self._changes or self._new:
            self._call_for_flush(True)

    def merge(self, partition: int, record: SharedRecord) -> bool:
        """Merge a record of another peer as the coordinator of a partition, or its next one.

        After a split each half has dropped the entries of the other half, whose leases are valid there: they stay.
        """
        if self.store.lapsed(partition, record):
            if record.gone:
                return False
            self.store.forget(partition, record.key)
        if self.store.acting[partition]:
            return self.put(partition, record)
        return self.store.take(partition, self._records.overruled(record), self._state.clock.now)

    def wait(self, partition: int, then: Then, otherwise: Then, *, listed: bool = False, soon: bool = True) -> None:
        """Make a call when all shadows have applied every change of this partition up to now; with `listed`, when the
        listeners have too, or trust nothing older any more. `otherwise` is called if this peer stops coordinating."""
        self._new.append(Call(partition, then, listed, otherwise))
        self._call_for_flush(soon)

    def wait_for_shadows(self, then: Then) -> None:
        """Make a call when every shadow of any partition has applied all that it was sent, with this iteration. It is
        made whatever happens to the partitions."""
        self._new.append(Call(EVERY, then, False, then))
        self._call_for_flush(True)

    @property
    def waiting(self) -> int:
        """Calls that wait for followers."""
        return sum(len(waiter.calls) for waiter in self._open) + len(self._new)

    @property
    def shadows(self) -> list[Peer]:
        """All shadows of partitions that this peer coordinates."""
        return [follower.peer for follower in self._followers.values()]

    def note(self, item: object, peer: Peer | None = None) -> None:
        """Send an item about the listeners to a shadow, or to all; `wait_for_shadows` then waits for it."""
        for follower in self._followers.values():
            # The others are sent all listeners when they begin again.
            if follower.ready and peer in (None, follower.peer):
                self._send(follower, item)
                follower.noted = follower.sent

    @property
    def noted(self) -> bool:
        """Whether all shadows know all listeners."""
        return all(follower.ready and follower.applied >= follower.noted for follower in self._followers.values())

    def begin(self, partitions: Iterable[int]) -> None:
        """This peer coordinates these partitions from now on. A takeover begins some in each of many iterations."""
        for partition in partitions:
            self.store.acting[partition] = 1
        self._review(partitions)

    def stop(self, partitions: Iterable[int]) -> None:
        """This peer does not coordinate these partitions any more. Who waits for an answer must ask again elsewhere."""
        stopped = set(partitions)
        self.authority.changed()
        for partition in stopped:
            self.store.acting[partition] = 0
            self.followed.pop(partition, None)
        self._changes = [change for change in self._changes if change[0] not in stopped]
        removed = [call for call in self._new if call.partition in stopped]
        self._new = [call for call in self._new if call.partition not in stopped]
        for waiter in list(self._open):
            if not waiter.partitions.isdisjoint(stopped):
                removed += waiter.without(stopped)
                if not waiter.calls:
                    del self._open[waiter]
        for call in removed:
            call.otherwise()

    def review(self) -> None:
        """Let the right shadows follow every coordinated partition."""
        self._review(ones_of(self.store.acting))
        in_use = {follower for followers in self.followed.values() for follower in followers}
        for peer_id, follower in list(self._followers.items()):
            if follower not in in_use:
                del self._followers[peer_id]
                self._dismiss(follower)

    def _review(self, partitions: Iterable[int]) -> None:
        since = self.authority.since
        self.authority.changed()
        followed, shadows_of = self.followed, self._neighbourhood.shadows
        begun: dict[Follower, list[int]] = {}
        changed: set[int] = set()
        fresh: list[Follower] = []
        former: list[Follower] = []
        for partition in partitions:
            now = []
            before = followed.get(partition, ())
            for peer in shadows_of(partition):
                follower = self._followers.get(peer.id)
                if follower is None or follower.peer != peer:
                    if follower is not None:
                        former.append(follower)
                    follower = self._followers[peer.id] = Follower(peer)
                    follower.vouched_at = since
                    fresh.append(follower)
                if follower not in before and follower.ready:
                    begun.setdefault(follower, []).append(partition)
                now.append(follower)
            after = tuple(now)
            if after != before:
                followed[NUMBERS[partition]] = after
                changed.add(partition)
        for follower in fresh:
            self._listeners.shadow_added(follower.peer)
            for waiter in self._open:
                # It waits until all possible successors know of a listener: also those that have just become ones.
                if EVERY in waiter.partitions:
                    follower.await_by(waiter)
        for follower, partitions in begun.items():
            self._send_beginnings(follower, partitions)
        if changed:
            # Before the former shadows are forgotten: no call may be complete because its last shadow left, while its
            # next one has no copy yet.
            self._restart_waiters(changed)
        for follower in former:
            self._dismiss(follower)

    def _dismiss(self, follower: Follower) -> None:
        """Nothing is expected of a former shadow any more."""
        self._complete(follower.gone())
        if follower.peer.id not in self._followers and self._neighbourhood.knows(follower.peer):
            self._listeners.shadow_removed(follower.peer)
        self._listeners.vouched()

    def _restart_waiters(self, changed: set[int]) -> None:
        """Let the waiters of these partitions wait for the shadows that they have now."""
        for waiter in list(self._open):
            if waiter.partitions.isdisjoint(changed):
                continue
            followed = [self.followed.get(partition, ()) for partition in waiter.partitions]
            shadows = dict.fromkeys(chain.from_iterable(followed))
            former = [follower for follower in waiter.missing if self._is_shadow(follower) and follower not in shadows]
            for follower in shadows:
                follower.await_by(waiter)
            if waiter.released(former):
                self._complete([waiter])

    def is_followed_by(self, partition: int, peer: Peer) -> bool:
        """Whether a peer is a shadow of a partition that this peer coordinates."""
        return any(follower.peer.id == peer.id for follower in self.followed.get(partition, ()))

    def _is_shadow(self, follower: Follower) -> bool:
        return self._followers.get(follower.peer.id) is follower

    def _send_beginnings(self, follower: Follower, partitions: list[int]) -> None:
        """All records of these partitions, in pieces. Empty partitions take no room but in the ranges."""
        begun: list[int] = []
        writer = RowWriter()
        for partition in partitions:
            for record in self.store.records(partition).values():
                writer.add(partition, self._records.told(record))
                if writer.size >= PIECE_BYTES:
                    self._send_piece(follower, [*begun, partition], writer, partition)
                    begun, writer = [], RowWriter()
            begun.append(partition)
        self._send_piece(follower, begun, writer, -1)

    def copy_again(self, partitions: Collection[int]) -> None:
        """No record of these partitions is missing here any more: their shadows get whole copies."""
        for partition in partitions:
            self.store.whole[partition] = WHOLE
        for follower in self._followers.values():
            theirs = [partition for partition in sorted(partitions) if follower in self.followed.get(partition, ())]
            if theirs and follower.ready:
                self._send_beginnings(follower, theirs)

    def _send_piece(self, follower: Follower, begun: list[int], writer: RowWriter, incomplete: int) -> None:
        epoch_of, whole = self.store.epoch, self.store.whole
        runs = equal_runs(begun, lambda p: (epoch_of(p).number, p != incomplete, whole[p] == WHOLE))
        ranges = [Begun(first, last, *state) for first, last, state in runs]
        self._send(follower, Append(tuple(ranges), writer.homes, tuple(writer.rows)))

    def _send(self, follower: Follower, item: object) -> None:
        self._streams.send(follower.peer, item, partial(self._applied, follower, follower.sends()))

    def _applied(self, follower: Follower, number: int) -> None:
        self._complete(follower.has_applied(number))

    def applied(self, follower: Follower, number: int) -> None:
        """A listener has applied a message."""
        self._applied(follower, number)

    def await_beginning(self, follower: Follower) -> None:
        """Let calls that wait for a follower wait for all messages sent to it by now."""
        for waiter in self._open:
            if follower in waiter.missing:
                follower.await_by(waiter)

    def released(self, follower: Follower) -> None:
        """Nothing is expected of a listener any more."""
        self._complete(follower.gone())

    def begun(self, follower: Follower, number: int) -> None:
        """A follower has been sent a beginning, which has this number beside those of its messages."""
        self.await_beginning(follower)
        self._applied(follower, number)

    def begun_again(self, follower: Follower, number: int) -> None:
        """A follower has been sent a beginning that replaces all messages up to this number."""
        self.await_beginning(follower)
        self._complete(follower.forget(number))

    def _complete(self, waiters: Iterable[Waiter]) -> None:
        for waiter in waiters:
            if self._open.pop(waiter, self) is None:
                waiter.call()

    def flush(self) -> None:
        """Send the changes of this iteration, with those that waited for them; make the calls that need not wait."""
        while self._soon:
            self._soon = False
            changes, self._changes = self._changes, []
            new, self._new = self._new, []
            self._spread(changes)
            self._open_waiters(new)

    def _spread(self, changes: Changes) -> None:
        writers: dict[Follower, RowWriter] = {}
        for partition, record in changes:
            for follower in self.followed.get(partition, ()):
                if not follower.ready:
                    continue
                writer = writers.get(follower)
                if writer is None:
                    writer = writers[follower] = RowWriter()
                writer.add(partition, self._records.told(record))
                if writer.size >= PIECE_BYTES:
                    self._send(follower, Append((), writer.homes, tuple(writer.rows)))
                    del writers[follower]
        for follower, writer in writers.items():
            self._send(follower, Append((), writer.homes, tuple(writer.rows)))
        if changes:
            self._listeners.publish(changes)

    def _open_waiters(self, new: list[Call]) -> None:
        """One waiter for all calls with the same followers: a crowd of filters takes few of them."""
        waiters: dict[tuple[tuple[Follower, ...], tuple[Follower, ...]], Waiter] = {}
        every = tuple(self._followers.values())
        for call in new:
            shadows = every if call.partition == EVERY else self.followed.get(call.partition, ())
            listeners = self._listeners.of(call.partition) if call.listed else ()
            waiter = waiters.get((shadows, listeners))
            if waiter is None:
                deadline = self._state.clock.now + self._state.config.void_s if listeners else inf
                waiter = waiters[shadows, listeners] = Waiter(deadline, self._state.clock.now)
            waiter.partitions.add(call.partition)
            waiter.calls.append(call)
        for (shadows, listeners), waiter in waiters.items():
            for follower in (*shadows, *listeners):
                follower.await_by(waiter)
            if not waiter.missing:
                waiter.call()
                continue
            self._open[waiter] = None
            self._patience.look_later()
            if waiter.deadline < inf:
                self._state.after(self._state.config.void_s, partial(self._void, waiter))

    def claimed(self, sender: Peer, message: Claim) -> None:
        """A coordinator asks whether this peer obeys its epochs: the acknowledgement says so."""
        refused: set[int] = set()
        for first, last, number in message.epochs:
            refused.update(self.store.above(Epoch(number, sender.id), first, last))
        if refused:
            self._refuse(sender, refused)

    def _void(self, waiter: Waiter) -> None:
        """A silent listener trusts nothing older any more. One that holds its confirmation back is not silent."""
        if waiter not in self._open:
            return
        now, void_s = self._state.clock.now, self._state.config.void_s
        listeners = [follower for follower in waiter.missing if not self._is_shadow(follower)]
        until = {follower: self._streams.held_back_at(follower.peer) + void_s for follower in listeners}
        silent = [follower for follower in listeners if until[follower] <= now]
        if silent:
            self._state.counters.silent_publishers += len(waiter.calls)
        if waiter.released(silent):
            self._complete([waiter])
        elif len(silent) < len(listeners):
            self._state.after(min(at for at in until.values() if at > now) - now, partial(self._void, waiter))

    def lost(self, peer: Peer) -> None:
        """The stream to a peer was lost: if it is a shadow, it needs everything again."""
        self._answer_again(peer)
        former = self._followers.get(peer.id)
        if former is None or former.peer != peer:
            return
        follower = self._followers[peer.id] = Follower(peer)
        follower.vouched_at = former.vouched_at
        follower.ready = False
        self.authority.changed()
        beginning = follower.sends()
        for partition, followers in list(self.followed.items()):
            if former in followers:
                self.followed[partition] = tuple([follower if each is former else each for each in followers])
        for waiter in self._open:
            if former in waiter.missing:
                follower.await_by(waiter)
        self._complete(former.gone())
        # Not at once: a peer that has started again is lost with each message until the ring knows of its start.
        self._state.after(self._state.config.retry_s, partial(self._begin_again, follower, beginning))

    def _begin_again(self, follower: Follower, beginning: int) -> None:
        """A shadow is sent everything a second time."""
        if not self._is_shadow(follower):
            return
        follower.ready = True
        self._listeners.shadow_added(follower.peer)
        partitions = [partition for partition, followers in self.followed.items() if follower in followers]
        if partitions:
            self._send_beginnings(follower, sorted(partitions))
        self.begun(follower, beginning)

    def deposed(self, sender: Peer, message: Deposed) -> None:
        """A shadow obeys a higher epoch, or a publisher knows one."""
        over = []
        for first, last, epoch in message.epochs:
            for partition in range(first, last + 1):
                if epoch > self.store.epoch(partition):
                    self.store.obey(partition, epoch)
                    if self.store.acting[partition]:
                        over.append(partition)
        if over:
            self._state.counters.superseded += len(over)
            self._deposed(over)

    def extra(self, sender: Peer, message: Extra) -> None:
        """Records that only a shadow has."""
        for partition, record in read_rows(message.homes, message.rows, self._records.accepts):
            if self.store.acting[partition]:
                self.merge(partition, record)

    # The shadow

    def append(self, sender: Peer, message: Append) -> None:
        """Copy records of a coordinator. Records that only this peer has go back to it."""
        higher = self._begin_copies(sender, message.begun)
        extra = RowWriter()
        refused: set[int] = set(higher)
        now = self._state.clock.now
        for partition, record in read_rows(message.homes, message.rows, self._records.accepts):
            if partition in refused or self.store.epoch(partition).actor != sender.id or self.store.acting[partition]:
                refused.add(partition)
                continue
            copied = self._copying.get(partition)
            if copied is not None:
                copied[1].add(record.key)
            valid = self._records.overruled(record)
            if self.store.lapsed(partition, valid):
                self.store.forget(partition, valid.key)  # the coordinator alone decides which leases are valid
            known = self.store.get(partition, valid.key)
            if known is not None and known.rank() > record.rank():
                extra.add(partition, self._records.told(known))
            elif valid is not record:
                extra.add(partition, valid)
            self.store.take(partition, valid, now)
        for begun in message.begun:
            if begun.complete:
                self._end_copies(sender, begun, extra)
        if refused:
            self._refuse(sender, refused)
        if extra.rows:
            # The coordinator must not count this peer as in step before it has these records too.
            self._answer(sender, Extra(extra.homes, tuple(extra.rows)))
        if message.begun:
            self._copies_begun(message.begun)

    def _begin_copies(self, sender: Peer, begun: Iterable[Begun]) -> list[int]:
        """The partitions of these that this peer obeys a higher epoch of."""
        store, higher, over = self.store, [], []
        copied = self._copied_from.setdefault(sender.id, set())
        for run in begun:
            epoch = Epoch(run.epoch, sender.id)
            for partition in NUMBERS[run.first : run.last + 1]:
                if store.epoch(partition) > epoch:
                    higher.append(partition)
                    continue
                store.obey(partition, epoch)
                copied.add(partition)
                if store.acting[partition]:
                    over.append(partition)
                # Without records here the coordinator can lack nothing, and thousands of partitions may begin.
                if not run.complete or self.store.records(partition):
                    known = self._copying.get(partition)
                    if known is None or known[0] != epoch:
                        self._copying[partition] = epoch, set()
        if over:
            self._deposed(over)
        return higher

    def _end_copies(self, sender: Peer, run: Begun, extra: RowWriter) -> None:
        """A coordinator has sent all records of these partitions: find those that it lacks."""
        epoch = Epoch(run.epoch, sender.id)
        for partition in range(run.first, run.last + 1):
            copied = self._copying.pop(partition, None)
            if copied is not None:
                for key, record in self.store.records(partition).items():
                    if key not in copied[1] and not record.gone:
                        extra.add(partition, self._records.told(record))
            if run.whole and self.store.epoch(partition) == epoch:
                self.store.whole[partition] = WHOLE

    def _refuse(self, sender: Peer, partitions: set[int]) -> None:
        copied = self._copied_from.get(sender.id)
        if copied is not None:
            copied -= partitions
        epochs = tuple([(partition, partition, self.store.epoch(partition)) for partition in sorted(partitions)])
        # A confirmation before this answer would let the sender grant what its successor does not know.
        self._answer(sender, Deposed(epochs))

    def refuse_deposed(self, sender: Peer) -> None:
        """Within the handling of an item of a coordinator: it must know of all higher epochs that this peer obeys
        before it counts the item as applied."""
        copied = self._copied_from.get(sender.id, set())
        refused = {partition for partition in copied if self.store.epoch(partition).actor != sender.id}
        if refused:
            self._refuse(sender, refused)

    def forget_coordinators(self, known: Collection[Id]) -> None:
        """Coordinators that are not among these peers have no shadow here any more."""
        for actor in [actor for actor in self._copied_from if actor not in known]:
            del self._copied_from[actor]
        before = self._state.clock.now - self._state.config.tomb_s
        for ident, answer in list(self._answers.items()):
            # A newcomer may be asked before it knows the asker.
            if answer.at < before and not self._neighbourhood.knows(answer.peer):
                del self._answers[ident]

    def _answer(self, peer: Peer, item: object) -> None:
        """Send an answer, which must be there before the present batch counts as applied."""
        self._idents += 1
        self._answers[self._idents] = Answer(peer, item, self._streams.hold_back(), self._state.clock.now)
        self._streams.send(peer, item, partial(self._answered, self._idents))

    def _answered(self, ident: int) -> None:
        answer = self._answers.pop(ident, None)
        if answer is not None:
            answer.release()

    def _answer_again(self, peer: Peer) -> None:
        """The stream to a peer was lost, with answers that it waits for."""
        lost = [ident for ident, answer in self._answers.items() if answer.peer == peer]
        if lost:
            # Not at once: a peer that has started again is lost with each message.
            self._state.after(self._state.config.slow_retry_s, partial(self._send_answers, lost))

    def _send_answers(self, idents: list[int]) -> None:
        for ident in idents:
            answer = self._answers.get(ident)
            if answer is not None:
                self._streams.send(answer.peer, answer.item, partial(self._answered, ident))
