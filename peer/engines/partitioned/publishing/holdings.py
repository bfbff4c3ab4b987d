"""The partitions whose routes this peer holds, as a publisher, and the coordinators that it has them from.

A partition is held when its coordinator has sent the beginning of it, and its changes since. Because a stream is
ordered, an answered renewal says that all earlier changes have been applied: one lease for each coordinator is enough.
Owns requests and releases of partitions. Knows no topics' plans and no publications.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf, nextafter
from typing import Final, Protocol

from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.partitioned.messages import Deposed, Elsewhere, Hold, Release, Renew, Renewed, Routes
from ringmq.peer.engines.partitioned.names import NameHash, prefixes_of
from ringmq.peer.engines.partitioned.publishing.route_table import RouteChanges, RouteRows, RouteTable
from ringmq.peer.engines.partitioned.publishing.route_trust import RouteLease, RouteTrust
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.followers import ItemStreams
from ringmq.peer.replication.record import Epoch
from ringmq.peer.replication.space import NUMBERS, PARTITIONS, equal_runs, partitions_in, runs_of

RENEWALS: Final = 3
"""Renewals within a lease."""
YOUNG: Final = 0.6
"""A renewal that is younger than this part of a period is not repeated. More than a half: otherwise two peers whose
periods lie half a period apart would each be the first to ask the other, and renew twice as often."""
FEW_COORDINATORS: Final = 16
"""With no more of them, a publisher holds all partitions from its first message on: no later topic waits."""
ALL_FROM: Final = 8
"""Partitions of one coordinator in use from which on all of its partitions are held: after the first 200 topics in a
ring of 50 peers, nearly no further topic waits for a request."""
ALL_UNTIL: Final = 4
"""Partitions of one coordinator in use below which single ones are held again. Lower than ALL_FROM, so that a few
topics that come and go do not have everything sent again and again."""
MOST_LOOKED_AT: Final = 4096
"""Topics whose partitions are computed in one sweep, some 10 ms. A partition that is released although an older topic
uses it is asked for again with its next message."""


class Coordinators(Protocol):
    """The parts of the directory that a publisher uses."""

    def coordinator(self, partition: int) -> Peer | None: ...
    def review(self) -> None: ...
    def by_partition(self) -> list[Peer | None]: ...
    def few(self, most: int) -> tuple[Peer, ...]: ...
    def verify(self, partition: int) -> None: ...
    def doubt(self, partition: int) -> None: ...
    def wrong(self, peer: Peer, partitions: Iterable[int]) -> None: ...


ON_THEIR_WAY: Final = 3
"""Renewals without an answer, to a coordinator that answers late or not at all."""


class RouteSource:
    """A coordinator that this peer has routes from, or has asked for them."""

    __slots__ = ("all", "asked", "asked_at", "begun", "lease", "peer", "releasing", "term", "unanswered")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.lease = RouteLease()
        self.all = False
        """Whether it was asked for all partitions that it coordinates, now and later."""
        self.asked: dict[int, float] = {}
        """Single partitions that were asked for and have not begun, and when."""
        self.begun: set[int] = set()
        """Partitions whose changes come from there."""
        self.asked_at = -inf
        """The time in the last renewal; grows with each of them."""
        self.unanswered = 0
        """How many of the last renewals have no answer yet."""
        self.term = 0
        """The number that the coordinator gave this holder."""
        self.releasing = -inf
        """The time in the renewal behind the last release. Partitions that begin before its answer were sent by a
        coordinator that had not processed the release, and sends no changes of them now."""


class Holdings:
    """One per publisher."""

    __slots__ = (
        "_checking", "_directory", "_doubting", "_epochs", "_few", "_frozen", "_known_until", "_names", "_source_of",
        "_sources", "_state", "_streams", "_table", "_trust", "_used_at", "_wait_s", "_wanted",
    )  # fmt: skip

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemStreams,
        directory: Coordinators,
        table: RouteTable,
        trust: RouteTrust,
    ) -> None:
        self._state = state
        self._streams = streams
        self._directory = directory
        self._table = table
        self._trust = trust
        self._names = NameHash(state.config.hash_seed)
        self._sources: dict[Peer, RouteSource] = {}
        self._source_of: list[RouteSource | None] = [None] * PARTITIONS
        self._epochs: dict[int, Epoch] = {}
        self._known_until = array("d", [-inf]) * PARTITIONS
        """When the trust in each partition ended that is not held any more."""
        # No set: the order of its members would differ from run to run, and with it the order of requests.
        self._frozen: dict[RouteLease, None] = {}
        """Leases of coordinators that have stepped down or were succeeded. Nothing extends them."""
        self._used_at = array("d", [-inf]) * PARTITIONS
        self._wanted: dict[int, None] = {}
        """Partitions that a publication waits for."""
        self._few: tuple[Peer, ...] | None = None
        """All coordinators if the directory knows them and they are few, otherwise none; None: they must be counted."""
        self._checking = False
        self._doubting = False
        self._wait_s = 0.0

    def __len__(self) -> int:
        """The number of coordinators that this peer has routes from, or has asked."""
        return len(self._sources)

    def __iter__(self) -> Iterator[RouteSource]:
        return iter(self._sources.values())

    # Requests

    def want(self, topic: str) -> int:
        """Ask for the partitions of a topic that cannot be trusted. Returns one of them."""
        now = self._state.clock.now
        needed = {self._names.partition_of(prefix) for prefix in prefixes_of(topic)}
        for partition in needed:
            self._used_at[partition] = now
        missing = [partition for partition in needed if not self._trust.trusted[partition]]
        fresh = [partition for partition in missing if partition not in self._wanted]
        if fresh:
            self._wanted.update(dict.fromkeys(fresh))
            self._ask(fresh)
            self._check_later(again=False)
            self._doubt_later()
        return missing[0]

    def _source(self, peer: Peer) -> RouteSource:
        source = self._sources.get(peer)
        if source is None:
            source = self._sources[peer] = RouteSource(peer)
        return source

    def _ask(self, partitions: Iterable[int], explicitly: bool = False) -> None:
        """Ask the coordinators of these partitions for them, or renew their lease. `explicitly`: also a coordinator
        that was asked for all partitions is asked for these."""
        for each in self._few_coordinators():
            self._hold_all(self._source(each))
        asked: dict[RouteSource, list[int]] = {}
        for partition in partitions:
            peer = self._directory.coordinator(partition)
            # Otherwise the directory asks, and `coordinators_changed` is called.
            if peer is not None:
                asked.setdefault(self._source(peer), []).append(partition)
        for source, theirs in asked.items():
            self._ask_source(source, theirs, explicitly)

    def _ask_source(self, source: RouteSource, partitions: list[int], explicitly: bool) -> None:
        now, config = self._state.clock.now, self._state.config
        lacking = [
            partition
            for partition in partitions
            # An answer within a lease is still under way, or the stream is being repeated.
            if partition not in source.begun and source.asked.get(partition, -inf) + config.lease_s <= now
        ]
        if lacking and (explicitly or not source.all):
            source.asked.update(dict.fromkeys(lacking, now))
            if source.all or len(source.begun) + len(source.asked) < ALL_FROM:
                self._hold(source, Hold(runs_of(lacking), False))
            else:
                self._hold_all(source)
        self._renew_now(source)

    def _hold_all(self, source: RouteSource) -> None:
        if not source.all:
            source.all = True
            self._hold(source, Hold((), True))
        self._renew_now(source)

    def _hold(self, source: RouteSource, request: Hold) -> None:
        if source.begun:
            # A coordinator that has forgotten this peer, or lost its stream to it, would take it for a new holder of
            # these partitions alone. It says so in the answer to the renewal, before it begins them.
            self._send_renewal(source)
        self._streams.send(source.peer, request)

    def _renew_now(self, source: RouteSource) -> None:
        """Ask for a lease if there is none, behind the request for routes in the same stream."""
        if source.lease.until <= self._state.clock.now:
            self._renew(source)

    def _renew(self, source: RouteSource) -> None:
        """Ask for a lease unless the answer is awaited: the stream repeats a renewal until it arrives. Only
        `Streams.close` can end it, when the peer was thought dead. A lease counts from its question, so an answer that
        takes most of a lease would be of no use if no other were on its way."""
        lease_s = self._state.config.lease_s
        wait_s = lease_s / ON_THEIR_WAY if source.begun and source.unanswered < ON_THEIR_WAY else lease_s
        if not source.unanswered or source.asked_at + wait_s <= self._state.clock.now:
            self._send_renewal(source)

    def _send_renewal(self, source: RouteSource) -> None:
        # Strictly later than before: the time identifies the answer.
        source.asked_at = max(self._state.clock.now, nextafter(source.asked_at, inf))
        source.unanswered += 1
        self._streams.send(source.peer, Renew(source.asked_at))

    def _few_coordinators(self) -> tuple[Peer, ...]:
        """All coordinators, if everything is held from the first message on."""
        if self._few is None:
            self._few = self._directory.few(FEW_COORDINATORS)
        return self._few

    def _doubt_later(self) -> None:
        if not self._doubting:
            self._doubting = True
            self._state.after(self._state.config.doubt_s, self._doubt)

    def _doubt(self) -> None:
        """Publications still wait: the coordinators of their partitions may be silent."""
        self._doubting = False
        silent: dict[Peer, list[int]] = {}
        coordinators = self._directory.by_partition() if self._wanted else []
        for partition in self._wanted:
            peer = coordinators[partition]
            if peer is not None:
                silent.setdefault(peer, []).append(partition)
        for partitions in silent.values():
            # Its two neighbours divide what it coordinates.
            self._directory.doubt(min(partitions))
            self._directory.doubt(max(partitions))
        if self._wanted:
            self._doubt_later()

    def _check_later(self, again: bool) -> None:
        config = self._state.config
        # A fresh question must not wait as long as the old ones do by now.
        self._wait_s = min(2 * self._wait_s, config.slow_retry_s) if again else self._state.ask_s
        if again or not self._checking:
            self._checking = True
            self._state.after(self._wait_s, self._check)

    def _check(self) -> None:
        """Ask again for partitions that publications still wait for, where the directory says now."""
        if not self._wanted:
            self._checking = False
            return
        for partition in self._wanted:
            # The leaf set knows no deaths beyond it.
            self._directory.verify(partition)
        self._ask(list(self._wanted), explicitly=True)
        self._check_later(again=True)

    # Answers

    def routes(self, sender: Peer, message: Routes) -> RouteChanges | None:
        """Apply routes. None: nothing of the message could be applied, and its sender must be asked again."""
        try:
            if any(self._state.is_far_boot(peer.boot) for peer in message.peers):
                raise ProtocolError("a route leads to a boot from a distant future")
            rows = RouteRows(message)
        except ProtocolError:
            self._state.counters.unreadable += 1
            known = self._sources.get(sender)
            if known is not None:
                self._directory.wrong(sender, [*known.begun, *known.asked])
                self._lose(known)
            return None
        source = self._source(sender)
        ended = [partition for partition in partitions_in(message.ended) if self._source_of[partition] is source]
        if message.term and message.term != source.term:
            if source.begun:
                # It had forgotten this peer, and may know it only as a holder of its predecessor.
                ended, source.all = list(source.begun), False
            source.term = message.term
        if ended:
            self._end(source, ended)
        succeeded: dict[RouteLease, list[int]] = {}
        outdated: list[int] = []
        for run in message.begun:
            epoch = Epoch(run.epoch, sender.id)
            for partition in NUMBERS[run.first : run.last + 1]:
                if source.releasing > -inf and partition not in source.begun:
                    source.asked.pop(partition, None)
                elif self._accepts(partition, epoch, run.complete):
                    if run.complete:
                        self._table.drop(partition)
                    elif not self._is_trusted_still(partition):
                        # The coordinator has met no copy of its predecessor. It sends the partition again when it has
                        # the entries of all homes. Until then a message would miss some of them.
                        self._begin_untrusted(source, partition, epoch)
                        continue
                    # Otherwise what is known here has all entries from before, and stays beside the new routes.
                    self._begin(source, partition, epoch, succeeded)
                else:
                    source.asked.pop(partition, None)
                    outdated.append(partition)
        if outdated:
            # The peers that this coordinator has asked have not obeyed the higher epoch. It must begin above it.
            runs = equal_runs(outdated, self._epochs.__getitem__)
            self._streams.send(sender, Deposed(tuple(runs)))
        for lease, partitions in succeeded.items():
            # The successor counts this peer as a holder for as long as the earlier lease lasts, so both leases count.
            if lease.until <= source.lease.until:
                for partition in partitions:
                    self._trust.assign(partition, source.lease)
            elif lease not in self._frozen:
                self._frozen[self._trust.freeze(partitions, lease)] = None
        self._table.apply(rows, source.begun)
        self._renew_now(source)
        if ended:
            self._rehold(ended)
        self._see_wanted()
        return self._table.settle()

    def _accepts(self, partition: int, epoch: Epoch, complete: bool) -> bool:
        """Whether routes of this epoch count. A deposed coordinator may not know its successor yet."""
        known = self._epochs.get(partition)
        if known is None or epoch >= known:
            return True
        lease = self._trust.lease_of(partition)
        until = self._known_until[partition] if lease is None else lease.until
        # All peers that knew the higher epoch may be gone. A coordinator says so if it has met none of them; otherwise
        # each home has registered again by now.
        return until + (self._state.config.entry_s if complete else 0.0) <= self._state.clock.now

    def _is_trusted_still(self, partition: int) -> bool:
        lease = self._trust.lease_of(partition)
        return lease is not None and lease.until > self._state.clock.now

    def _begin_untrusted(self, source: RouteSource, partition: int, epoch: Epoch) -> None:
        self._trust.assign(partition, None)
        self._follow(source, partition, epoch)

    def _begin(self, source: RouteSource, partition: int, epoch: Epoch, succeeded: dict[RouteLease, list[int]]) -> None:
        self._follow(source, partition, epoch)
        lease = self._trust.lease_of(partition)
        if lease is None or self._may_be_of_another_part(source):
            self._trust.assign(partition, source.lease)
        elif lease is not source.lease:
            succeeded.setdefault(lease, []).append(partition)

    def _follow(self, source: RouteSource, partition: int, epoch: Epoch) -> None:
        """The changes of a partition come from this coordinator now."""
        self._epochs[partition] = epoch
        before = self._source_of[partition]
        if before is not None:
            before.begun.discard(partition)
        else:
            # A successor sends all that it took over, also partitions that nothing here was published to.
            self._used_at[partition] = max(self._used_at[partition], self._state.clock.now)
        self._source_of[partition] = source
        source.begun.add(partition)
        source.asked.pop(partition, None)

    def _may_be_of_another_part(self, source: RouteSource) -> bool:
        """Whether a coordinator may have been behind a cut when it took the place of another: it has left the renewals
        of a lease unanswered. What the other has granted since then is not in its routes, which may have come late. So
        only the word counts that it gives now."""
        return source.unanswered > 0 and source.lease.until <= self._state.clock.now

    def _end(self, source: RouteSource, partitions: list[int]) -> None:
        """Their changes do not come from this coordinator any more. What is known counts until its lease is over."""
        for partition in partitions:
            self._source_of[partition] = None
            source.begun.discard(partition)
        frozen = self._trust.freeze(partitions, source.lease)
        if frozen.partitions:
            self._frozen[frozen] = None

    def _rehold(self, partitions: Iterable[int]) -> None:
        """Ask for partitions again that are in use."""
        since = self._state.clock.now - self._state.config.idle_s
        # Few coordinators are asked for everything: nobody counts the use of single partitions.
        everything = bool(self._few_coordinators())
        used = [partition for partition in partitions if everything or self._used_at[partition] >= since]
        if used:
            self._ask(used)

    def renewed(self, sender: Peer, message: Renewed) -> None:
        state = self._state
        state.observe(message.clock)
        source = self._sources.get(sender)
        if source is None:
            return
        now = state.clock.now
        source.unanswered = 0 if message.asked_at >= source.asked_at else max(0, source.unanswered - 1)
        if message.asked_at >= source.releasing:
            source.releasing = -inf
        if not message.known:
            self._lose(source)
            return
        until = min(message.asked_at, now) - message.lag_s + state.config.lease_s
        if until <= now:
            # The peer was silent for longer than a lease, and is back.
            self._renew(source)
            return
        self._trust.extend(source.lease, until, now)
        for lease in list(self._frozen):
            if lease.until <= source.lease.until:
                for partition in [each for each in lease.partitions if self._source_of[each] is source]:
                    self._trust.assign(partition, source.lease)
            if not lease.partitions:
                self._frozen.pop(lease, None)
        self._see_wanted()

    def _see_wanted(self) -> None:
        """Partitions that are trusted again are asked for at once if their trust ends another time."""
        if self._wanted and self._trust.gained:
            self._wanted = {partition: None for partition in self._wanted if not self._trust.trusted[partition]}

    def elsewhere(self, sender: Peer, message: Elsewhere) -> None:
        """A peer does not coordinate these partitions. They are asked for again after a while: at once, two peers that
        take each other for the coordinator would be asked without end."""
        source = self._sources.get(sender)
        if source is not None:
            for partition in partitions_in(message.runs):
                source.asked.pop(partition, None)

    def stream_lost(self, peer: Peer) -> None:
        """Requests to it may be missing. If changes of its routes are, it says so in the answer to the next renewal."""
        source = self._sources.get(peer)
        if source is None:
            return
        self._directory.wrong(peer, [*source.begun, *source.asked])
        if source.begun:
            # Its own stream to this peer goes on. Changes in it are confirmed here, so they must be applied for as long
            # as anything older is trusted: a home is granted its filter by that.
            source.asked.clear()
            source.all = False
            source.unanswered = 0
        else:
            self._lose(source)

    def _lose(self, source: RouteSource) -> None:
        """The coordinator sends no changes: what is known counts until its lease is over."""
        del self._sources[source.peer]
        begun, asked = sorted(source.begun), list(source.asked)
        self._end(source, begun)
        self._rehold([*begun, *asked])

    def coordinators_changed(self) -> None:
        """Some partitions may have other coordinators now."""
        self._few = None
        if not self._sources and not self._wanted:
            return
        self._directory.review()
        moved = [
            partition
            for partition, (source, peer) in enumerate(
                zip(self._source_of, self._directory.by_partition(), strict=True)
            )
            if source is not None and peer is not None and peer is not source.peer and peer != source.peer
        ]
        # A successor that knows the holders of its predecessor sends its routes without a request; it may not know all.
        self._rehold([*moved, *self._wanted])

    # Periodic calls

    def renew(self) -> list[Peer]:
        """Renew the leases, but those renewed lately by `renew_with`. Call it RENEWALS times in a lease. Returns the
        coordinators whose turn it is."""
        config, now = self._state.config, self._state.clock.now
        renewed = []
        for source in list(self._sources.values()):
            if self._is_young(source):
                continue
            late = now - config.lease_s
            if not source.begun and source.lease.until <= now and source.asked_at <= late:
                # It has died, or there was nothing to send: partitions that are needed are asked for again.
                del self._sources[source.peer]
                continue
            # It has not answered the last renewals: the ring may have another coordinator.
            if source.begun and source.lease.until < now + config.lease_s / (2 * RENEWALS):
                for partition in (min(source.begun), max(source.begun)):
                    self._directory.verify(partition)
            self._renew(source)
            renewed.append(source.peer)
        self._rehold([each for lease in self._frozen for each in lease.partitions if self._source_of[each] is None])
        return renewed

    def renew_with(self, peer: Peer) -> bool:
        """A peer renews its lease here: renew the one there in the message with the answer. Returns whether it is the
        turn of this coordinator. So a pair of peers needs three messages in a period, not four."""
        source = self._sources.get(peer)
        if source is None or not source.begun or self._is_young(source):
            return False
        self._renew(source)
        return True

    def renews(self, peer: Peer) -> bool:
        """Whether a renewal goes to this coordinator within the next period, or went within the last."""
        source = self._sources.get(peer)
        return source is not None and bool(source.begun)

    def _is_young(self, source: RouteSource) -> bool:
        now = self._state.clock.now
        return source.lease.until > now and source.asked_at > now - YOUNG * self._state.config.lease_s / RENEWALS

    def used(self, topics: Iterable[str]) -> None:
        """These topics were published to lately. Looks no further than the decisions of `release` need."""
        if self._few_coordinators():
            return
        now = self._state.clock.now
        missing = {source.peer: ALL_UNTIL for source in self._sources.values() if source.all}
        single = any(source.begun and not source.all for source in self._sources.values())
        for topic in islice(topics, MOST_LOOKED_AT):
            if not missing and not single:
                return
            for prefix in prefixes_of(topic):
                partition = self._names.partition_of(prefix)
                source = self._source_of[partition]
                if self._used_at[partition] != now and source is not None and source.peer in missing:
                    missing[source.peer] -= 1
                    if not missing[source.peer]:
                        del missing[source.peer]
                self._used_at[partition] = now

    def release(self, anything: bool) -> RouteChanges:
        """Give back partitions without use for `idle_s`. `anything`: whether a topic was published to since."""
        since = self._state.clock.now - self._state.config.idle_s
        if anything and self._few_coordinators():
            return self._table.settle()
        for source in list(self._sources.values()):
            used = [partition for partition in source.begun if anything and self._used_at[partition] >= since]
            if source.all and len(used) >= ALL_UNTIL:
                continue
            unused = source.begun.difference(used)
            if source.all or unused:
                released = Release(runs_of(used), True) if source.all else Release(runs_of(unused), False)
                source.all = False
                self._streams.send(source.peer, released)
                self._send_renewal(source)
                source.releasing = source.asked_at
                self._drop(source, unused)
        self._drop_orphans(since)
        return self._table.settle()

    def _drop(self, source: RouteSource, partitions: Iterable[int]) -> None:
        for partition in partitions:
            source.begun.discard(partition)
            self._source_of[partition] = None
            self._forget(partition)

    def _drop_orphans(self, since: float) -> None:
        """Forget partitions that no coordinator sends changes of, and that nobody needs."""
        for lease in list(self._frozen):
            for partition in list(lease.partitions):
                if self._source_of[partition] is None and self._used_at[partition] < since:
                    self._forget(partition)
            if not lease.partitions:
                self._frozen.pop(lease, None)

    def _forget(self, partition: int) -> None:
        lease = self._trust.lease_of(partition)
        if lease is not None:
            self._known_until[partition] = min(lease.until, self._state.clock.now)
        self._trust.assign(partition, None)
        self._table.drop(partition)
