"""The finder: retained messages for filters that were just granted, unless the grant has brought them.

Filters that are granted in one iteration make one search. It asks each coordinator once, and ends when all partitions
have answered: every partition for filters with wildcards, that of the topic for a filter without. Knows no stages of
filters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ringmq.mqtt_front.matching.topics import has_wildcard
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.directory import Directory, PartitionRanges
from ringmq.peer.engines.partitioned.messages import Find, Found, Row
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.engines.partitioned.subscribing.home_lease import ItemSender, pieces
from ringmq.peer.engines.partitioned.subscribing.local_filter import LocalFilter
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.space import ALL, PARTITIONS, Runs, partitions_in

PATIENCE: Final = 2.0
"""A coordinator that was asked and has sent no piece for this factor of `slow_retry_s` is asked again, and then waited
for twice as long each time. Streams repeat whatever is lost, so this is for a coordinator that has dropped the
question, since it had too many."""


class RetainedSearch:
    """One question to all coordinators. Sets of partitions are the bits of an integer."""

    __slots__ = ("asked", "everywhere", "filters", "ident", "missing", "patience_s", "wait_s")

    def __init__(self, ident: int, filters: list[LocalFilter], wait_s: float, patience_s: float) -> None:
        """The filters all have wildcards, or none of them has."""
        self.ident = ident
        self.everywhere = has_wildcard(filters[0].filter)
        self.filters = [(own, own.count) for own in filters]
        """With their numbers: a filter that was granted again since has another search."""
        partitions = () if self.everywhere else {partition_of(own.filter) for own in filters}
        self.missing = bits_of(ALL if self.everywhere else [(partition, partition) for partition in partitions])
        self.asked: dict[Peer, tuple[int, float]] = {}
        """The partitions that a coordinator was asked for and has not covered, and the time of its last sign."""
        self.wait_s = wait_s
        self.patience_s = patience_s


class Finder:
    """One per engine."""

    __slots__ = ("_count", "_directory", "_found", "_fresh", "_keep", "_searches", "_state", "_streams")

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemSender,
        directory: Directory,
        keep: Callable[[Row], None],
        found: Callable[[LocalFilter, int], None],
    ) -> None:
        """`found` is called with a filter and its number at `want` when all is here; `keep` for each message."""
        self._state = state
        self._streams = streams
        self._directory = directory
        self._keep = keep
        self._found = found
        self._count = 0
        self._fresh: list[LocalFilter] = []
        self._searches: dict[int, RetainedSearch] = {}

    def want(self, own: LocalFilter) -> None:
        """Find the messages retained for this filter, from the end of this iteration on."""
        self._fresh.append(own)

    def flush(self) -> None:
        if self._fresh:
            # A SUBSCRIBE with 1,000 wildcard filters would otherwise ask each coordinator 1,000 times.
            fresh, self._fresh = self._fresh, []
            exact = [own for own in fresh if not has_wildcard(own.filter)]
            if len(exact) < len(fresh):
                self._search([own for own in fresh if has_wildcard(own.filter)])
            self._search(exact)

    def _search(self, filters: list[LocalFilter]) -> None:
        for piece in pieces(filters):
            self._count += 1
            state = self._state
            search = RetainedSearch(self._count, piece, state.ask_s, PATIENCE * state.config.slow_retry_s)
            self._searches[search.ident] = search
            self._ask(search)
            self._again(search)

    def found(self, sender: Peer, message: Found) -> None:
        search = self._searches.get(message.ident)
        if search is None:
            return
        for row in message.rows:
            self._keep(row)
        covered = bits_of(message.runs)
        search.missing &= ~covered
        if not search.missing:
            self._end(search)
            return
        if message.elsewhere:
            # It is asked again when its turn comes, as nobody else may know yet who is in charge.
            covered |= bits_of(message.elsewhere)
        if sender in search.asked:
            search.asked[sender] = search.asked[sender][0] & ~covered, self._state.clock.now

    def lost(self, peer: Peer) -> None:
        """Questions to this peer, or answers of it, may be lost."""
        for search in self._searches.values():
            search.asked.pop(peer, None)

    def review(self) -> None:
        """Ask the coordinators that have become known for partitions that nobody was asked for."""
        for search in self._searches.values():
            self._ask(search)

    def _ranges(self, search: RetainedSearch) -> dict[Peer, PartitionRanges]:
        """Partitions of each coordinator that is known; the others are asked for."""
        if search.everywhere:
            return self._directory.everyone()[0]
        ranges: dict[Peer, PartitionRanges] = {}
        for run in runs_of_bits(search.missing):
            for partition in partitions_in((run,)):
                peer = self._directory.coordinator(partition)
                if peer is not None:
                    ranges.setdefault(peer, []).append((partition, partition))
        return ranges

    def _ask(self, search: RetainedSearch) -> None:
        ranges = self._ranges(search)
        now = self._state.clock.now
        silent = now - search.patience_s
        names: tuple[str, ...] = ()
        for peer, theirs in ranges.items():
            asked, heard_at = search.asked.get(peer, (0, now))
            if heard_at < silent:
                asked = 0
                search.patience_s *= 2
            # What a former coordinator was asked for is asked for here too: its answer may never come.
            wanted = bits_of(theirs) & search.missing & ~asked
            if wanted:
                if not search.everywhere:
                    names = tuple([own.filter for own, _ in search.filters if wanted >> partition_of(own.filter) & 1])
                elif not names:
                    names = tuple([own.filter for own, _ in search.filters])
                search.asked[peer] = asked | wanted, now
                self._streams.send(peer, Find(search.ident, names, runs_of_bits(wanted)))

    def _again(self, search: RetainedSearch) -> None:
        """Look from time to time whether the missing partitions must be asked for elsewhere."""

        def again() -> None:
            if search.ident not in self._searches:
                return
            # A filter that was removed or has lapsed has another count: nobody waits for this search any more.
            if not any(own.count == count for own, count in search.filters):
                del self._searches[search.ident]
                return
            search.wait_s = min(2 * search.wait_s, self._state.config.slow_retry_s)
            self._ask(search)
            self._again(search)

        self._state.after(search.wait_s, again)

    def _end(self, search: RetainedSearch) -> None:
        del self._searches[search.ident]
        for own, count in search.filters:
            self._found(own, count)


def bits_of(runs: Iterable[tuple[int, int]]) -> int:
    """Ranges as bits. They may come from another peer: ranges that make no sense are left out."""
    bits = 0
    for first, last in runs:
        length = min(last, PARTITIONS - 1) - first + 1
        if first >= 0 and length > 0:
            bits |= ((1 << length) - 1) << first
    return bits


def runs_of_bits(bits: int) -> Runs:
    runs: list[tuple[int, int]] = []
    start = 0
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        bits >>= skipped
        length = (~bits & (bits + 1)).bit_length() - 1
        bits >>= length
        runs.append((start + skipped, start + skipped + length - 1))
        start += skipped + length
    return tuple(runs)
