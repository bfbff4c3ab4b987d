"""The rights of one client to write and read topics, and the relations between filters that they need.

A filter covers another if it matches all its topics, and overlaps it if both match some topic. Knows no sessions and no
files: broker and sessions ask `Rights` for each topic and filter, and `acl_file` makes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from ringmq.mqtt_front.matching.topics import SHARED

MAX_CACHED_TOPICS: Final = 256
"""Size of the cache of one client and direction. A full cache is emptied, which is never worse than no cache."""
MAX_CACHED_CHARS: Final = 256
"""Longer topics are not cached, so that no client can fill the memory with them."""


class Shape(NamedTuple):
    """A filter in the form for comparisons: its levels without a final `#`, and whether it had one.

    `#` becomes `+/#` and `/#` becomes `/+/#`, which match the same topics: no topic is only one empty level.
    """

    levels: tuple[str, ...]
    open: bool

    @classmethod
    def of(cls, filter_: str) -> Self:
        """Raises ValueError for an invalid filter (5.0 §4.7.1). A topic without wildcards is a filter too."""
        *levels, last = filter_.split("/")
        if last != "#":
            levels.append(last)
        if any("#" in level or ("+" in level and level != "+") for level in levels) or "\0" in filter_ or not filter_:
            raise ValueError(filter_)
        if last == "#" and levels in ([], [""]):
            levels.append("+")
        return cls(tuple(levels), last == "#")

    @property
    def has_wildcards(self) -> bool:
        return self.open or "+" in self.levels

    def covers(self, other: Shape) -> bool:
        """Whether this matches every topic that `other` matches."""
        mine, others = self.levels, other.levels
        if len(mine) > len(others) or (not self.open and (other.open or len(mine) < len(others))):
            return False
        # A wildcard at the first level does not match topics that begin with `$` [MQTT-4.7.2-1].
        if mine[0] == "+" and others[0][:1] == "$":
            return False
        for level, theirs in zip(mine, others, strict=False):  # noqa: SIM110  # any() takes twice as long
            if level not in (theirs, "+"):
                return False
        return True

    def overlaps(self, other: Shape) -> bool:
        """Whether both match some topic."""
        mine, others = self.levels, other.levels
        if (len(mine) > len(others) and not other.open) or (len(mine) < len(others) and not self.open):
            return False
        if "+" in (mine[0], others[0]) and "$" in (mine[0][:1], others[0][:1]):  # [MQTT-4.7.2-1]
            return False
        return all(level == theirs or "+" in (level, theirs) for level, theirs in zip(mine, others, strict=False))


def covers(allowed: str, requested: str) -> bool:
    """Whether `allowed` matches every topic that `requested` matches. Raises ValueError for an invalid filter.

    Pass both without `$share`. Exact, since there are infinitely many level names: only `+` and `#` cover `+`.
    """
    return Shape.of(allowed).covers(Shape.of(requested))


def overlaps(first: str, second: str) -> bool:
    """Whether both match some topic. Raises ValueError for an invalid filter."""
    return Shape.of(first).overlaps(Shape.of(second))


def _shape(filter_: str) -> Shape | None:
    try:
        return Shape.of(filter_)
    except ValueError:
        return None


class FilterSet:
    """Filters that are queried together. Filters without wildcards are found in one step."""

    __slots__ = ("_literal", "_wild")

    def __init__(self, filters: Iterable[str]) -> None:
        shapes = {filter_: Shape.of(filter_) for filter_ in filters}
        self._literal = frozenset(filter_ for filter_, shape in shapes.items() if not shape.has_wildcards)
        self._wild = tuple(shape for shape in shapes.values() if shape.has_wildcards)

    def one_covers(self, filter_: str, shape: Shape) -> bool:
        return filter_ in self._literal or any(mine.covers(shape) for mine in self._wild)

    def one_overlaps(self, shape: Shape) -> bool:
        return any(mine.overlaps(shape) for mine in self._wild) or any(
            Shape.of(topic).overlaps(shape) for topic in self._literal
        )


class Rights:
    """The rights of one client; clients with the same rules share an object.

    Ask `may_write` for each topic of a PUBLISH (with its alias resolved) and of a will, both at the CONNECT and when
    the will is published. Ask `may_read` for each message, also a retained or queued message, before it is sent to the
    client: an allowed subscription may match more than the client may read. For one event loop, not for threads.
    """

    __slots__ = ("__weakref__", "_denied", "_read", "_readable", "_writable", "_write")

    def __init__(self, read: Iterable[str] = (), write: Iterable[str] = (), denied: Iterable[str] = ()) -> None:
        self._read = FilterSet(read)
        self._write = FilterSet(write)
        self._denied = FilterSet(denied)
        self._readable: dict[str, bool] = {}
        self._writable: dict[str, bool] = {}

    def may_write(self, topic: str) -> bool:
        known = self._writable.get(topic)
        return known if known is not None else self._look_up(topic, self._write, self._writable)

    def may_read(self, topic: str) -> bool:
        known = self._readable.get(topic)
        return known if known is not None else self._look_up(topic, self._read, self._readable)

    def may_subscribe(self, filter_: str) -> bool:
        """Whether a read filter covers the whole filter, and no deny filter does.

        A shared subscription (`$share/…`) must be readable as a whole: each message goes to one member, and would be
        lost for the others if that member may not read it.
        """
        if filter_.startswith(SHARED):
            group, _, filter_ = filter_.removeprefix(SHARED).partition("/")
            return bool(group) and self.reads_all(filter_)
        shape = _shape(filter_)
        # A `deny` of a part leaves the subscription allowed: `may_read` holds back the messages of that part.
        if shape is None or self._denied.one_covers(filter_, shape):
            return False
        return self._read.one_covers(filter_, shape)

    def reads_all(self, filter_: str) -> bool:
        """Whether `may_read` holds for every topic that the filter (without `$share`) matches: then skip `may_read`."""
        shape = _shape(filter_)
        return shape is not None and self._read.one_covers(filter_, shape) and not self._denied.one_overlaps(shape)

    def _look_up(self, topic: str, allowed: FilterSet, cache: dict[str, bool]) -> bool:
        shape = _shape(topic)
        found = (
            shape is not None
            # A name with a wildcard is no topic. It would be covered by a rule with the same text, as a filter.
            and not shape.has_wildcards
            and allowed.one_covers(topic, shape)
            and not self._denied.one_covers(topic, shape)
        )
        if len(topic) <= MAX_CACHED_CHARS:
            if len(cache) >= MAX_CACHED_TOPICS:
                cache.clear()
            cache[topic] = found
        return found


class _AllRights(Rights):
    __slots__ = ()

    def may_write(self, topic: str) -> bool:
        return True

    def may_read(self, topic: str) -> bool:
        return True

    def may_subscribe(self, filter_: str) -> bool:
        return True

    def reads_all(self, filter_: str) -> bool:
        return True


ALL_RIGHTS: Final[Rights] = _AllRights()
"""The rights of all clients without an ACL file: `rights is ALL_RIGHTS` saves the queries."""
NO_RIGHTS: Final = Rights()
