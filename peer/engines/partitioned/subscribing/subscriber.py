"""The subscriber: keeps the filters of the clients here in force at their coordinators, and fetches retained messages.

A filter goes through the stages of `filter_stage.py`. Each change has a higher number, which only this peer gives, and
whose count identifies the filter in answers. Streams repeat what is lost; here a filter is registered again only if
its partition has another coordinator, or the stream to the coordinator broke.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.matching.filter_trie import FilterTrie
from ringmq.mqtt_front.matching.topics import has_wildcard
from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.directory import Directory
from ringmq.peer.engines.partitioned.messages import Elsewhere, Found, Presented, Recall, Registered, Row
from ringmq.peer.engines.partitioned.names import NameHash
from ringmq.peer.engines.partitioned.subscribing.entry_numbers import EntryNumbers
from ringmq.peer.engines.partitioned.subscribing.filter_stage import FilterEvent, FilterStage
from ringmq.peer.engines.partitioned.subscribing.finder import Finder
from ringmq.peer.engines.partitioned.subscribing.home_lease import HomeLease, ItemSender, nowhere
from ringmq.peer.engines.partitioned.subscribing.local_filter import IN_FORCE, HomePartition, LocalFilter
from ringmq.peer.engines.partitioned.subscribing.refused_filters import RefusedFilters
from ringmq.peer.engines.partitioned.subscribing.registrations import Ended, Registrations
from ringmq.peer.engines.partitioned.subscribing.wide_filter import WideEntry, WideFilter
from ringmq.peer.engines.partitioned.subscribing.widening import Widening
from ringmq.peer.engines.partitioned.truth import Truth
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.retained_cache import RetainedCache
from ringmq.peer.messaging.shared_filters import is_shared
from ringmq.peer.replication.record import RecordKind, SharedRecord
from ringmq.peer.replication.space import partitions_in

_MAY_BE_REFUSED: Final = (FilterStage.ASKING, FilterStage.CHANGING)

F = TypeVar("F", bound=LocalFilter)


class Subscriber:
    """One per engine. Call `flush` at the end of each iteration, before the streams."""

    __slots__ = (
        "_by_count", "_changed", "_checking", "_directory", "_ended", "_finder", "_in_force_soon",
        "_just_ended", "_lease", "_names", "_numbers", "_partitions", "_pending", "_plain", "_refused",
        "_registrations", "_renews", "_retained_cache", "_shared", "_state", "_streams", "_truth", "_widening",
    )  # fmt: skip

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemSender,
        directory: Directory,
        retained_cache: RetainedCache,
        in_force_soon: Callable[[str], None],
    ) -> None:
        """`in_force_soon` is called before the clients are notified that a filter is in force, with the last chance to
        add to the retained messages."""
        self._state = state
        self._streams = streams
        self._directory = directory
        self._retained_cache = retained_cache
        self._truth = Truth(state)
        self._names = NameHash(state.config.hash_seed)
        self._in_force_soon = in_force_soon
        self._partitions: dict[int, HomePartition] = {}
        self._by_count: dict[int, LocalFilter] = {}
        """All filters, also those that leave, and wide ones."""
        self._plain: FilterTrie[LocalFilter] = FilterTrie()
        self._shared: dict[str, LocalFilter] = {}
        self._numbers = EntryNumbers(state)
        self._renews: Callable[[Peer], bool] | None = None
        """A renewal of all leases waits until nothing is queued: the renewals that it leaves for `renew_at`."""
        self._pending: dict[int, HomePartition] = {}
        """Partitions to check: their coordinator owes an answer, or is unknown."""
        self._just_ended: list[Ended] = []
        self._ended: list[Ended] = []
        """Ends from before the last check."""
        self._registrations = Registrations(state, streams, directory, self._assign, self._applied)
        self._refused = RefusedFilters(state, self._register_again)
        self._changed = False
        self._checking = False
        self._lease = HomeLease(state, streams, directory, self._partitions, self._numbers.highest)
        self._finder = Finder(state, streams, directory, self._names, self._keep, self._found)
        self._widening = Widening(state, self, retained_cache)

    def __len__(self) -> int:
        """The number of filters of the clients here."""
        return len(self._by_count) - self.wide

    @property
    def wide(self) -> int:
        """Wide filters: registered by this peer itself."""
        return len(self._widening)

    def __iter__(self) -> Iterator[LocalFilter]:
        return iter(self._by_count.values())

    def wants(self, topic: str) -> bool:
        """Whether a filter here, in force or about to be, matches a topic; shared ones do not count."""
        return any(True for _ in self._plain.match(topic))

    def has(self, topic_filter: str) -> bool:
        """Whether clients here have this very filter, in force or about to be."""
        return self._find(topic_filter) is not None

    def in_force(self, topic_filter: str) -> bool:
        own = self._find(topic_filter)
        return own is not None and own.stage in IN_FORCE

    def served_by(self, topic_filter: str) -> str | None:
        """The wide filter by which the messages of a filter of clients here come; None: by its own entry."""
        own = self._find(topic_filter)
        return own.partition.entry.filter if own is not None and isinstance(own.partition, WideFilter) else None

    def _find(self, topic_filter: str) -> LocalFilter | None:
        # A shared filter is no name of an unshared one: `$share/` begins both, but the trie is never given such.
        return self._plain.get(topic_filter) or self._shared.get(topic_filter)

    def add(self, topic_filter: str, done: Done, lasting: bool = False, restored: bool = False) -> None:
        """Clients want a filter, or it is lasting from now on, or is so no more. `restored`: it was in force in an
        earlier process.

        `done` is called with SUCCESS when the filter is in force and its retained messages are here, or clients removed
        the filter before; with QUOTA_EXCEEDED when its partition is full. Then it is tried again from time to time
        until it is removed."""
        own = self._find(topic_filter)
        if own is None:
            own = self._begin(topic_filter, lasting, restored)
        elif own.stage is FilterStage.REFUSED:
            own.lasting = lasting
            self._refused.retry(own)
        elif own.lasting is not lasting:
            self._change(own, lasting)
        elif own.stage is FilterStage.IN_FORCE:
            done(Reason.SUCCESS)
            return
        own.asking().dones.append(done)

    def _begin(self, topic_filter: str, lasting: bool, restored: bool) -> LocalFilter:
        own = self._widening.begin(topic_filter, lasting)
        if own is None:
            own = self._register_new(LocalFilter, topic_filter, lasting, restored)
        if is_shared(topic_filter):
            self._shared[topic_filter] = own
        else:
            self._plain.put(topic_filter, own)
        return own

    def _register_new(self, kind: type[F], topic_filter: str, lasting: bool = False, restored: bool = False) -> F:
        own = kind(topic_filter, self._partition_for(topic_filter), self._numbers.next(), lasting, restored)
        self._by_count[own.count] = own
        self._queue(own)
        return own

    def _partition_for(self, topic_filter: str) -> HomePartition:
        """The partition of a filter, which is about to be registered."""
        index = self._names.partition_of_filter(topic_filter)
        partition = self._partitions.get(index)
        if partition is None:
            partition = HomePartition(index)
        leaving = partition.filters.get(topic_filter)
        if leaving is not None:
            # The new entry has a higher number, so it does not matter whether the coordinator has heard of the end.
            leaving.on(FilterEvent.REPLACED)
            self._forget(leaving)
        self._partitions[index] = partition
        return partition

    def _change(self, own: LocalFilter, lasting: bool) -> None:
        if own.unsent:
            own.lasting = lasting
            return
        served_by = own.partition
        del self._by_count[own.count]
        own.change(self._numbers.next(), lasting)
        self._by_count[own.count] = own
        if isinstance(served_by, WideFilter):
            self._widening.returns(served_by, own)
            self.register_served(own)
        # For the last kept session that has gone nobody waits.
        self._queue(own, soon=lasting)

    def remove(self, topic_filter: str) -> None:
        own = self._find(topic_filter)
        if own is None:
            return
        self._take_out(own)
        if own.stage is FilterStage.REFUSED:
            # Its coordinator has nothing of it that must end.
            own.on(FilterEvent.REMOVED)
            self._refused.remove(own)
            self._forget(own)
            return
        dones = self._withdraw(own)
        if isinstance(own.partition, WideFilter):
            # No coordinator knows it.
            self._end(own)
        else:
            self._queue(own, soon=False)
        self._widening.removed(own)
        # Each SUBSCRIBE gets its SUBACK, even if its filter is removed before the grant [MQTT-3.8.4-1].
        for done in dones:
            done(Reason.SUCCESS)

    def _take_out(self, own: LocalFilter) -> None:
        """No client gets anything for this filter any more."""
        if is_shared(own.filter):
            del self._shared[own.filter]
        else:
            self._plain.remove(own.filter)
            self._retained_cache.forget(own.filter, self.wants)

    def _withdraw(self, own: LocalFilter) -> list[Done]:
        del self._by_count[own.count]
        dones = own.leave(self._numbers.next())
        self._by_count[own.count] = own
        return dones

    # Calls of the widening

    def begin_wide(self, pattern: str) -> WideEntry | None:
        return None if self._find(pattern) is not None else self._register_new(WideEntry, pattern)

    def end_wide(self, entry: WideEntry) -> None:
        self._withdraw(entry)
        self._queue(entry, soon=False)

    def serve(self, topic_filter: str, wide: WideFilter) -> LocalFilter:
        own = LocalFilter(topic_filter, wide, self._numbers.next())
        self._by_count[own.count] = own
        own.on(FilterEvent.GRANTED)
        self._finder.want(own)
        self._state.join_later()
        return own

    def register_served(self, own: LocalFilter) -> None:
        self._move(own, self._partition_for(own.filter))
        own.asking().asked = 0
        self._queue(own)

    def serve_on(self, own: LocalFilter, wide: WideFilter) -> None:
        before = own.partition
        self._move(own, wide)
        self._forget_empty(before)
        own.on(FilterEvent.GRANTED)
        if own.stage is FilterStage.FETCHING:
            self._fetched(own)
        for done in own.take_dones():
            done(Reason.SUCCESS)

    def forget(self, own: LocalFilter) -> None:
        self._withdraw(own)
        self._end(own)

    def _move(self, own: LocalFilter, partition: HomePartition) -> None:
        del self._by_count[own.count]
        own.partition.queued.pop(own, None)
        own.move(partition, self._numbers.next())
        self._by_count[own.count] = own

    def _queue(self, own: LocalFilter, *, soon: bool = True) -> None:
        """Register it at the end of this iteration; its end, for which nobody waits, with the next registration."""
        partition = own.partition
        partition.queued[own] = None
        self._watch(partition)
        self._registrations.queue(partition, soon)

    def _forget(self, own: LocalFilter) -> None:
        """A filter is gone, and its coordinator knows, or will know by a higher number."""
        partition = own.partition
        del self._by_count[own.count]
        del partition.filters[own.filter]
        partition.queued.pop(own, None)
        self._forget_empty(partition)

    def _forget_empty(self, partition: HomePartition) -> None:
        # A wide filter is none of these partitions.
        if not partition.filters:
            self._partitions.pop(partition.index, None)
            self._registrations.drop(partition)
            self._pending.pop(partition.index, None)

    def flush(self) -> None:
        """The end of an iteration: send the registrations of this iteration, and whatever else has become due."""
        if self._changed:
            self._review()
        self._widening.flush()
        self._registrations.flush()
        if not len(self._registrations):
            if self._renews is not None:
                renews, self._renews = self._renews, None
                self._lease.renew(renews)
            self._lease.flush()
        self._finder.flush()

    def _applied(self, peer: Peer, ends: list[Ended]) -> None:
        """A coordinator has the ends of these filters."""
        self._lease.heard(peer)
        self._registrations.answered(len(ends))
        self._just_ended += ends

    def _assign(self, partition: HomePartition, peer: Peer) -> None:
        """A partition has its first coordinator, or another one, or the stream to the same one begins again."""
        if partition.coordinator is not None or partition.left is not None:
            for own in list(partition.filters.values()):
                if own.stage is FilterStage.REFUSED:
                    self._refused.retry(own)
                elif own.unanswered:
                    partition.queued[own] = None
            self._lease.announce(partition)
        partition.coordinator, partition.left = peer, None
        self._registrations.queue(partition, True)

    def registered(self, sender: Peer, message: Registered) -> None:
        self._lease.heard(sender)
        self._registrations.answered(len(message.in_force) + len(message.ended) + len(message.refused))
        for row in message.retained:
            self._keep(row)
        asked_at: set[float] = set()
        for number in message.in_force:
            own = self._by_count.get(number[1])
            # The answer is for a request from before the filter lapsed, or was removed.
            if own is None or own.number != number:
                continue
            if own.stage is FilterStage.LEAVING:
                self._end(own)
            elif own.stage is FilterStage.ASKING:
                # An answer to a repeated question may belong to any of its copies, so its time says nothing (Karn's
                # rule).
                if own.question is not None and own.question.asked == 1:
                    asked_at.add(own.question.asked_at)
                self._grant(own)
            elif own.stage is FilterStage.CHANGING:
                own.on(FilterEvent.GRANTED)
                self._widening.granted(own)
                for done in own.take_dones():
                    done(Reason.SUCCESS)
        for number in message.ended:
            own = self._by_count.get(number[1])
            if own is not None and own.stage is FilterStage.LEAVING:
                self._end(own)
            elif own is not None and own.stage is not FilterStage.REFUSED and number[0] >= own.boot:
                # The next number must be higher, and numbers from a distant future are refused everywhere.
                if self._state.is_far_boot(number[0]):
                    self._state.counters.false_boots += 1
                else:
                    self._lapse(own, number[0])
        for number in message.refused:
            own = self._by_count.get(number[1])
            if own is not None and own.number == number and own.stage in _MAY_BE_REFUSED:
                self._refuse(own)
        # All filters of a crowd were asked for by one item: their answers are one measurement.
        for began in sorted(asked_at):
            self._state.answered(self._state.clock.now - began)
            self._registrations.took(began)

    def _grant(self, own: LocalFilter) -> None:
        """The filter is in force everywhere. The clients are notified when its retained messages are here."""
        own.on(FilterEvent.GRANTED)
        own.partition.wait_s = 0.0
        if self._widening.granted(own):
            return
        if has_wildcard(own.filter) and not is_shared(own.filter):
            self._finder.want(own)
            self._state.join_later()
        else:
            # The answer has brought what is retained for a filter without wildcards. Shared filters get none
            # (5.0 §4.8.2).
            self._fetched(own)

    def _found(self, own: LocalFilter, count: int) -> None:
        if own.count == count and own.stage is FilterStage.FETCHING:
            self._fetched(own)

    def _fetched(self, own: LocalFilter) -> None:
        if not is_shared(own.filter):
            self._in_force_soon(own.filter)
        own.on(FilterEvent.FETCHED)
        own.promised = False
        for done in own.take_dones():
            done(Reason.SUCCESS)

    def _lapse(self, own: LocalFilter, known_boot: int) -> None:
        """It was not renewed in time, or an earlier boot of this peer gave higher numbers."""
        if self._widening.lapsed(own):
            # Its next entry must have a number above the known one.
            self._numbers.next(known_boot, refused=True)
            return
        refused = own.stage is FilterStage.ASKING
        self._state.counters.leases_lost += own.stage is FilterStage.IN_FORCE
        del self._by_count[own.count]
        own.lapse(self._numbers.next(known_boot, refused))
        self._by_count[own.count] = own
        self._queue(own)

    def _refuse(self, own: LocalFilter) -> None:
        """Quota exceeded: its partition is full. Whoever waits for it removes it, and a kept session keeps it."""
        if self._widening.refused(own):
            return
        self._state.counters.refused_filters += 1
        dones = own.refuse()
        self._refused.add(own)
        for done in dones:
            done(Reason.QUOTA_EXCEEDED)

    def is_refused(self, topic_filter: str) -> bool:
        if not self._refused:
            return False
        own = self._find(topic_filter)
        return own is not None and own.stage is FilterStage.REFUSED

    def _register_again(self, own: LocalFilter) -> None:
        """Register a refused filter once more."""
        del self._by_count[own.count]
        own.retry(self._numbers.next())
        self._by_count[own.count] = own
        self._queue(own)

    def _end(self, own: LocalFilter) -> None:
        own.on(FilterEvent.ENDED)
        self._forget(own)

    def _covered(self, topic: str) -> bool:
        """Whether a filter in force matches: then what is retained there is here, or on its way, or was lost."""
        return any(own.stage in IN_FORCE or self._widening.bears(own) for own in self._plain.match(topic))

    def _keep(self, row: Row) -> None:
        # A filter in force receives confirmed messages live: the fetched copy would be a repetition.
        if row.kind is not RecordKind.RETAINED or not self._truth.accepts_retained(row.partition, row.name, row.number):
            return
        if self.wants(row.name) and not (row.confirmed and self._covered(row.name)):
            record = SharedRecord(row.kind, row.name, None, row.number, row.gone, row.confirmed, row.flags, row.body)
            # A session that had the filter before may have missed this message while its peer was away. The live copy
            # comes to the others twice, which is better.
            self._retained_cache.fetched(record, any(own.promised for own in self._plain.match(row.name)))

    def found(self, sender: Peer, message: Found) -> None:
        self._finder.found(sender, message)
        if message.elsewhere:
            self._leave(sender, partitions_in(message.elsewhere))

    def recall(self, sender: Peer, message: Recall) -> None:
        self._lease.recall(sender, message)

    def presented(self, sender: Peer, message: Presented) -> None:
        self._lease.heard(sender)
        self._leave(sender, partitions_in(message.elsewhere))
        self._widening.presented(sender, message)
        self._lease.presented(sender, message)

    def elsewhere(self, sender: Peer, message: Elsewhere) -> None:
        self._lease.heard(sender)
        self._leave(sender, partitions_in(message.runs))

    def stream_lost(self, peer: Peer) -> None:
        """Whatever was sent there may be lost, and so may its answers."""
        theirs = [index for index, partition in self._partitions.items() if partition.coordinator == peer]
        self._lease.stream_lost(peer)
        self._finder.lost(peer)
        self._leave(peer, theirs)

    def _leave(self, peer: Peer, partitions: Iterable[int]) -> None:
        """This peer is not in charge of these partitions, or the stream to it broke."""
        state = self._state
        wrong = list(partitions)
        self._directory.wrong(peer, wrong)
        if wrong and self.wide:
            self._widening.doubt(set(wrong))
        for index in wrong:
            partition = self._partitions.get(index)
            if partition is not None and partition.coordinator == peer:
                partition.lose(state.clock.now, state.ask_s, state.config.slow_retry_s)
                self._watch(partition)

    def coordinators_changed(self) -> None:
        """Some partition may have another coordinator. Several of these calls in one iteration cost one look."""
        if not self._changed:
            self._changed = True
            self._state.join_later()

    def _review(self) -> None:
        self._changed = False
        now = self._state.clock.now
        self._directory.review()
        for partition in self._partitions.values():
            peer = self._directory.peek(partition.index)
            if peer is None:
                self._directory.coordinator(partition.index)
            elif peer != partition.coordinator and not partition.refuses(peer, now):
                self._assign(partition, peer)
                self._watch(partition)
        self._finder.review()

    def renew(self, later: Callable[[Peer], bool] = nowhere) -> None:
        """All leases; to be called RENEWALS times in a lease. Those at coordinators that `later` names wait for
        `renew_at`."""
        # The digest has the filters of this iteration, so they must be on their way before it.
        self._review()
        self._widening.review()
        self._registrations.register()
        # A digest must not have filters whose registration waits for a later iteration.
        if len(self._registrations):
            self._renews = later
        else:
            self._lease.renew(later)

    def renew_at(self, peer: Peer) -> None:
        """Another message goes to this peer now: renew the lease there with it, if it is due."""
        self._registrations.register()
        if not len(self._registrations):
            self._lease.renew_at(peer)

    def _watch(self, partition: HomePartition) -> None:
        """Check the partition until its coordinator is known and has answered everything."""
        self._pending[partition.index] = partition
        if not self._checking:
            self._checking = True
            self._state.after(self._state.ask_s, self._check)

    def _check(self) -> None:
        """One look at everything unanswered, whatever the number of filters."""
        self._checking = False
        self._finish()
        now = self._state.clock.now
        unanswered = sum([each.unanswered - len(each.queued) for each in self._pending.values()])
        self._registrations.count(unanswered - len(self._ended) - len(self._just_ended))
        silent: dict[Peer, list[int]] = {}
        self._directory.review()
        for partition in list(self._pending.values()):
            peer = self._directory.peek(partition.index)
            if peer is None:
                # This asks for it, and `coordinators_changed` follows.
                self._directory.coordinator(partition.index)
            elif peer != partition.coordinator and not partition.refuses(peer, now):
                self._assign(partition, peer)
                self._state.join_later()
            if partition.coordinator is not None:
                if partition.unanswered:
                    silent.setdefault(partition.coordinator, []).append(partition.index)
                else:
                    del self._pending[partition.index]
        for peer, partitions in silent.items():
            self._lease.owes(peer, partitions)
        if self._pending:
            self._checking = True
            self._state.after(self._state.ask_s, self._check)

    def _finish(self) -> None:
        """Forget filters whose end was applied before the last check."""
        # A coordinator that is not in charge confirms the end too, and then says so: `_leave` comes a little later.
        for own, count in self._ended:
            if own.count == count and own.stage is FilterStage.LEAVING and own.partition.coordinator is not None:
                self._end(own)
        if self._ended:
            self._by_count = slimmed(self._by_count)
        self._ended, self._just_ended = self._just_ended, []
