"""Which records have been seen: for each start of a peer a high-water mark, and the numbers missing below it.

Owns what a repetition is, and how many are missing. Pure: knows neither files nor more of records than their names.
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
"""Starts of peers. Beyond it the one heard the longest ago is forgotten: what comes of it again is taken for new."""
MAX_HOLES: Final = 10_000
"""Of all together. Beyond it the lowest hole of the source that has a new one is given up: it stays missing, and what
comes of it yet cannot be told from a repetition."""
MAX_COUNT: Final = (1 << 63) - 1

Number = Annotated[int, Meta(ge=0)]


class Verdict(Enum):
    """What is to be done with a record."""

    NEW = "new"
    AGAIN = "again"
    TOO_LATE = "too late"
    """Its number is below what is remembered: it may be either."""


class Source(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """What was seen of one peer since one of its starts: all from `floor` to before `next` but the holes."""

    peer: str
    boot: Number
    started: Number
    """The lowest number that was ever seen."""
    floor: Number
    """Above `started` once a hole was given up: below it nothing is remembered."""
    next: Number
    holes: list[tuple[Number, Number]]
    """From and to before, in ascending order and apart from each other."""

    def check(self) -> None:
        """Raises ValueError if this cannot be."""
        edges = [self.floor, *chain.from_iterable(self.holes), self.next]
        if self.started > self.floor or self.next > MAX_COUNT + 1 or any(low >= high for low, high in pairwise(edges)):
            raise ValueError(f"what was seen of peer {self.peer} is no sequence")


class Seen:
    """All that was seen. `given_up` and `sources` are what an earlier one said of itself."""

    def __init__(self, sources: Iterable[Source] = (), given_up: int = 0) -> None:
        """Raises ValueError if these cannot be."""
        self._sources: dict[tuple[str, int], Source] = {}
        self._holes = 0
        self.missing = given_up
        """Numbers below a higher one that did not come."""
        self.given_up = given_up
        """Of those the ones that can come no more, as their holes were given up or their source forgotten."""
        for source in sources:
            source.check()
            name = (source.peer, source.boot)
            if name in self._sources:
                raise ValueError(f"peer {source.peer} is there twice with boot {source.boot}")
            self._sources[name] = source
            self._holes += len(source.holes)
            self.missing += _size(source)
        self._current = Source("", 0, 0, 0, 0, [])
        """Records come in batches of one source."""

    @property
    def sources(self) -> list[Source]:
        """Those heard the longest ago first."""
        return list(self._sources.values())

    @property
    def earlier(self) -> int:
        """Records from before the first one that was seen of their source."""
        return sum([source.started for source in self._sources.values()])

    def add(self, peer: str, boot: int, number: int) -> Verdict:
        """To be called for each record; who is told that it is new must keep it."""
        source = self._current
        if source.boot != boot or source.peer != peer:
            source = self._current = self._heard(peer, boot, number)
        if number == source.next:
            source.next = number + 1
            return Verdict.NEW
        if number > source.next:
            self._dig(source, len(source.holes), source.next, number)
            source.next = number + 1
            return Verdict.NEW
        if number >= source.floor:
            return self._fill(source, number)
        if source.floor > source.started:
            return Verdict.TOO_LATE
        after, source.started, source.floor = source.started, number, number
        if number + 1 < after:
            self._dig(source, 0, number + 1, after)
        return Verdict.NEW

    def _heard(self, peer: str, boot: int, number: int) -> Source:
        source = self._sources.pop((peer, boot), None)
        if source is None:
            source = Source(peer, boot, number, number, number, [])
        self._sources[peer, boot] = source
        if len(self._sources) > MAX_SOURCES:
            forgotten = self._sources.pop(next(iter(self._sources)))
            self._holes -= len(forgotten.holes)
            self.given_up = min(self.given_up + _size(forgotten), MAX_COUNT)
        return source

    def _dig(self, source: Source, place: int, start: int, end: int) -> None:
        source.holes.insert(place, (start, end))
        self._holes += 1
        self.missing += end - start
        self._bound(source)

    def _fill(self, source: Source, number: int) -> Verdict:
        place = bisect_right(source.holes, number, key=itemgetter(0)) - 1
        if place < 0 or source.holes[place][1] <= number:
            return Verdict.AGAIN
        start, end = source.holes[place]
        rest = [hole for hole in ((start, number), (number + 1, end)) if hole[0] < hole[1]]
        source.holes[place : place + 1] = rest
        self._holes += len(rest) - 1
        self.missing -= 1
        self._bound(source)
        return Verdict.NEW

    def _bound(self, source: Source) -> None:
        if self._holes > MAX_HOLES and source.holes:
            start, source.floor = source.holes.pop(0)
            self._holes -= 1
            self.given_up = min(self.given_up + source.floor - start, MAX_COUNT)


def _size(source: Source) -> int:
    return sum([end - start for start, end in source.holes])
