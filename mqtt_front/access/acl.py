"""What one client may write and read, and the relations between filters that this needs: to cover and to overlap.

Knows no sessions and no files: who delivers asks `Rights` for every topic, who subscribes for every filter, and
`acl_file` makes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from ringmq.mqtt_front.matching.topics import SHARED

MAX_CACHED_TOPICS: Final = 256
"""Of one client and direction. When full it is emptied: no order of topics makes that worse than no cache."""
MAX_CACHED_CHARS: Final = 256
"""Longer topics are not kept, so that no client can fill the memory with them."""


class Shape(NamedTuple):
    """A filter as it is compared: its levels without a final `#`, and whether there was one.

    `#` is written as `+/#` and `/#` as `/+/#`, which match the same: no topic is only one empty level.
    """

    levels: tuple[str, ...]
    open: bool

    @classmethod
    def of(cls, filter_: str) -> Self:
        """Raises ValueError for what is no filter (5.0 §4.7.1). A topic without wildcards is one, too."""
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
        if mine[0] == "+" and others[0][:1] == "$":  # [MQTT-4.7.2-1]
            return False
        for level, theirs in zip(mine, others, strict=False):  # noqa: SIM110  # any() takes twice as long
            if level not in (theirs, "+"):
                return False
        return True

    def overlaps(self, other: Shape) -> bool:
        """Whether there is a topic that both match."""
        mine, others = self.levels, other.levels
        if (len(mine) > len(others) and not other.open) or (len(mine) < len(others) and not self.open):
            return False
        if "+" in (mine[0], others[0]) and "$" in (mine[0][:1], others[0][:1]):  # [MQTT-4.7.2-1]
            return False
        return all(level == theirs or "+" in (level, theirs) for level, theirs in zip(mine, others, strict=False))


def covers(allowed: str, requested: str) -> bool:
    """Whether `allowed` matches every topic that `requested` matches. Raises ValueError if one is no filter.

    Both without `$share`. Exact, as topics have no end of names: `+` is covered by `+` and `#` alone.
    """
    return Shape.of(allowed).covers(Shape.of(requested))


def overlaps(one: str, other: str) -> bool:
    """Whether some topic is matched by both. Raises ValueError if one is no filter."""
    return Shape.of(one).overlaps(Shape.of(other))


def _shape(filter_: str) -> Shape | None:
    try:
        return Shape.of(filter_)
    except ValueError:
        return None


class FilterSet:
    """Filters that are asked together. Those without wildcards are found in one step."""

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
    """What one client may do; two clients to whom the same rules apply share one.

    Ask `may_write` for each topic of a PUBLISH (with its alias resolved) and of a will, both when it is left and when
    it is sent. Ask `may_read` for each message, retained and queued ones too, on its way out to the client: a
    subscription that was allowed may match more than the client may read. For one event loop, not for threads.
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
        """Whether one read filter covers all of it, and no deny filter does. `$share/…` is told by the prefix.

        A shared subscription must be readable as a whole: each message goes to one member, and would be lost for the
        others if that member may not read it.
        """
        if filter_.startswith(SHARED):
            group, _, filter_ = filter_.removeprefix(SHARED).partition("/")
            return bool(group) and self.reads_all(filter_)
        shape = _shape(filter_)
        if shape is None or self._denied.one_covers(filter_, shape):
            return False
        return self._read.one_covers(filter_, shape)

    def reads_all(self, filter_: str) -> bool:
        """Whether `may_read` holds for every topic that the filter (without `$share`) matches, so need not be asked."""
        shape = _shape(filter_)
        return shape is not None and self._read.one_covers(filter_, shape) and not self._denied.one_overlaps(shape)

    def _look_up(self, topic: str, allowed: FilterSet, cache: dict[str, bool]) -> bool:
        shape = _shape(topic)
        found = (
            shape is not None
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
"""Of everybody where there is no ACL file: `rights is ALL_RIGHTS` saves asking."""
NO_RIGHTS: Final = Rights()
