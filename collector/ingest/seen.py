"""The records that have been seen: for each start of a peer a high-water mark, and the numbers missing below it.

Owns the detection of repetitions and the count of missing records. Pure: knows no files, and only the peer, boot and
number of a record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from enum import Enum
from itertools import chain, pairwise
from operator import itemgetter
from typing import Annotated, Final

import msgspec
from msgspec import Meta

MAX_SOURCES: Final = 10_000
"""The most starts of peers. Beyond it the least recently heard start is forgotten, and its records count as new."""
MAX_HOLES: Final = 10_000
"""The most holes of all sources together. Beyond it the source with a new hole gives up its lowest hole: its numbers
stay missing, and a record that arrives late for it cannot be distinguished from a repetition."""
MAX_COUNT: Final = (1 << 63) - 1

Number = Annotated[int, Meta(ge=0)]


class Verdict(Enum):
    """Whether a record is new."""

    NEW = "new"
    REPEATED = "repeated"
    TOO_LATE = "too late"
    """Its number is lower than all remembered numbers: it may be new or repeated."""


# `array_like` keeps the state file small, which is written with every batch: members have no names in it.
class Source(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The records seen of one start of a peer: all numbers from `floor` to `next` - 1, except the holes."""

    peer: str
    boot: Number
    started: Number
    """The lowest number ever seen."""
    floor: Number
    """The lowest remembered number, above `started` once a hole was given up."""
    next: Number
    holes: list[tuple[Number, Number]]
    """Missing numbers as half-open ranges, ascending and separate from each other."""

    def check(self) -> None:
        """Raises ValueError for an impossible state."""
        edges = [self.floor, *chain.from_iterable(self.holes), self.next]
        if self.started > self.floor or self.next > MAX_COUNT + 1 or any(low >= high for low, high in pairwise(edges)):
            raise ValueError(f"the numbers seen of peer {self.peer} are no sequence")


class Seen:
    """The records seen of all sources. The arguments are `sources` and `given_up` of an earlier instance."""

    def __init__(self, sources: Iterable[Source] = (), given_up: int = 0) -> None:
        """Raises ValueError for an impossible state."""
        self._sources: dict[tuple[str, int], Source] = {}
        self._holes = 0
        self.missing = given_up
        """Numbers that were not seen, below a number that was."""
        self.given_up = given_up
        """The part of `missing` that can no longer arrive: its holes were given up or its source forgotten."""
        for source in sources:
            source.check()
            name = (source.peer, source.boot)
            if name in self._sources:
                raise ValueError(f"peer {source.peer} occurs twice with boot {source.boot}")
            self._sources[name] = source
            self._holes += len(source.holes)
            self.missing += _size(source)
        # Records arrive in batches of one source, so most of them need no lookup and no change of the order.
        self._current = Source("", 0, 0, 0, 0, [])

    @property
    def sources(self) -> list[Source]:
        """All sources, the least recently heard first."""
        return list(self._sources.values())

    @property
    def earlier(self) -> int:
        """Records numbered below the first record seen of their source."""
        return sum([source.started for source in self._sources.values()])

    def add(self, peer: str, boot: int, number: int) -> Verdict:
        """Call this for each record. If the verdict is NEW, the caller must store the record."""
        source = self._current
        if source.boot != boot or source.peer != peer:
            source = self._current = self._source_of(peer, boot, number)
        if number == source.next:
            source.next = number + 1
            return Verdict.NEW
        if number > source.next:
            self._add_hole(source, len(source.holes), source.next, number)
            source.next = number + 1
            return Verdict.NEW
        if number >= source.floor:
            return self._fill_hole(source, number)
        # Once a hole was given up, the numbers below the floor are forgotten. Before that, they were never seen.
        if source.floor > source.started:
            return Verdict.TOO_LATE
        after, source.started, source.floor = source.started, number, number
        if number + 1 < after:
            self._add_hole(source, 0, number + 1, after)
        return Verdict.NEW

    def _source_of(self, peer: str, boot: int, number: int) -> Source:
        # Removed and added again: the order of the dict is the order in which sources were last heard.
        source = self._sources.pop((peer, boot), None)
        if source is None:
            source = Source(peer, boot, number, number, number, [])
        self._sources[peer, boot] = source
        if len(self._sources) > MAX_SOURCES:
            forgotten = self._sources.pop(next(iter(self._sources)))
            self._holes -= len(forgotten.holes)
            self.given_up = min(self.given_up + _size(forgotten), MAX_COUNT)
        return source

    def _add_hole(self, source: Source, index: int, start: int, end: int) -> None:
        source.holes.insert(index, (start, end))
        self._holes += 1
        self.missing += end - start
        self._limit_holes(source)

    def _fill_hole(self, source: Source, number: int) -> Verdict:
        index = bisect_right(source.holes, number, key=itemgetter(0)) - 1
        if index < 0 or source.holes[index][1] <= number:
            return Verdict.REPEATED
        start, end = source.holes[index]
        rest = [hole for hole in ((start, number), (number + 1, end)) if hole[0] < hole[1]]
        source.holes[index : index + 1] = rest
        self._holes += len(rest) - 1
        self.missing -= 1
        # A number in the middle of a hole makes two holes of it.
        self._limit_holes(source)
        return Verdict.NEW

    def _limit_holes(self, source: Source) -> None:
        if self._holes > MAX_HOLES and source.holes:
            start, source.floor = source.holes.pop(0)
            self._holes -= 1
            # Numbers come from the network: a few sources with huge holes would exceed what the state file can hold.
            self.given_up = min(self.given_up + source.floor - start, MAX_COUNT)


def _size(source: Source) -> int:
    return sum([end - start for start, end in source.holes])
