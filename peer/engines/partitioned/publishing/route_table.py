"""Routes of held partitions: which homes want a topic, found without the names of filters.

A filter is a fingerprint, a route a fingerprint and a set of homes. A match makes the filters that could match, one of
each shape in use, and looks for their fingerprints. Two filters of one fingerprint cost an unwanted message, never a
missed one. Knows neither coordinators nor leases.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ringmq.mqtt_front.matching.topics import MAX_LEVELS
from ringmq.overlay.core.ids import Id, hash128
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.partitioned.item_codec import unpacked
from ringmq.peer.engines.partitioned.messages import RouteChange, Routes
from ringmq.peer.engines.partitioned.names import EXACT, UNSEEDED, NameHash
from ringmq.peer.engines.partitioned.publishing.home_sets import NONE, HomeSets, Slots
from ringmq.peer.replication.space import PARTITIONS

GroupSlots = tuple[tuple[str, Slots], ...]
Matched = tuple[Slots, GroupSlots]
"""The homes of a topic, and the homes of each shared filter, sorted by name."""

_PARTITION_SHIFT: Final = 116
_FINGERPRINT_SHIFT: Final = 64
# Operators of an IntFlag take longer than the rest of a change.
_GONE: Final = int(RouteChange.GONE)
_EXPIRED: Final = int(RouteChange.EXPIRED)
MAX_SHAPES: Final = 4096
"""Shapes that are kept ready for matches; others are read again."""


class Shape:
    """A shape, ready to make the filter that would match a topic."""

    __slots__ = ("depth", "is_open", "length", "plus")

    def __init__(self, depth: int, plus: tuple[int, ...], length: int, is_open: bool) -> None:
        self.depth = depth
        self.plus = plus
        """Levels that are `+`."""
        self.length = length
        """Levels before `#`, or all levels."""
        self.is_open = is_open
        """Whether it ends with `#`."""

    def filter_for(self, levels: list[str]) -> str | None:
        """The filter of this shape that matches a topic; None if the topic has another number of levels."""
        length = self.length
        if len(levels) != length and (not self.is_open or len(levels) < length):
            return None
        wanted = levels[:length]
        for index in self.plus:
            wanted[index] = "+"
        if self.is_open:
            wanted.append("#")
        return "/".join(wanted)


@lru_cache(MAX_SHAPES)
def shape_from(pattern: bytes) -> Shape:
    """Read a pattern made by `names.shape_of`. Raises ProtocolError for anything else."""
    depth, rest = pattern[0], pattern[1:].decode("latin-1")
    is_open = rest.endswith("#")
    middle = rest[:-1] if is_open else rest
    if set(middle) - {"+", "."} or not rest or rest[0] == "." or depth + len(rest) > MAX_LEVELS:
        raise ProtocolError(f"a filter of no known shape {pattern[:20]!r}")
    plus = tuple([depth + index for index, level in enumerate(middle) if level == "+"])
    return Shape(depth, plus, depth + len(middle), is_open)


@lru_cache(MAX_SHAPES)
def shapes_by_depth(patterns: tuple[bytes, ...]) -> Mapping[int, tuple[Shape, ...]]:
    """Shapes by depth; most partitions share the result with many others."""
    shapes = [shape_from(pattern) for pattern in patterns]
    return {shape.depth: tuple([other for other in shapes if other.depth == shape.depth]) for shape in shapes}


class PartitionRoutes:
    """The routes of one partition."""

    __slots__ = ("fingerprints", "groups", "homes", "wild")

    def __init__(self) -> None:
        # Arrays take 12 bytes a filter, and a change moves half of a short one. A dict of such numbers takes 80.
        self.fingerprints: array[int] = array("Q")
        """In ascending order."""
        self.homes: array[int] = array("I")
        """For each fingerprint the number of its set of homes."""
        # Most partitions have neither: two empty dicts take as much memory as ten routes.
        self.groups: dict[int, dict[str, int]] | None = None
        """Shared filters by fingerprint and name, each with the number of its set."""
        self.wild: WildShapes | None = None

    def __len__(self) -> int:
        return len(self.fingerprints) + sum(map(len, (self.groups or {}).values()))

    def find(self, fingerprint: int) -> int:
        """The number of a set of homes; -1 if no route has the fingerprint."""
        at = bisect_left(self.fingerprints, fingerprint)
        if at < len(self.fingerprints) and self.fingerprints[at] == fingerprint:
            return self.homes[at]
        return -1

    def look_up(self, fingerprint: int, found: set[int], groups: dict[str, int]) -> None:
        """Add the sets of homes of a fingerprint to these."""
        fingerprints = self.fingerprints
        at = bisect_left(fingerprints, fingerprint)
        if at < len(fingerprints) and fingerprints[at] == fingerprint:
            found.add(self.homes[at])
        if self.groups is not None:
            groups.update(self.groups.get(fingerprint, {}))

    def put(self, fingerprint: int, number: int) -> None:
        """Set the homes of a fingerprint."""
        at = bisect_left(self.fingerprints, fingerprint)
        if at < len(self.fingerprints) and self.fingerprints[at] == fingerprint:
            self.homes[at] = number
        else:
            self.fingerprints.insert(at, fingerprint)
            self.homes.insert(at, number)

    def remove(self, fingerprint: int) -> None:
        at = bisect_left(self.fingerprints, fingerprint)
        del self.fingerprints[at]
        del self.homes[at]

    def numbers(self) -> Iterable[int]:
        """The sets of all routes."""
        yield from self.homes
        for named in (self.groups or {}).values():
            yield from named.values()

    def group(self, fingerprint: int, name: str) -> int:
        """The number of the set of homes of a shared filter; -1 if there is no such route."""
        return -1 if self.groups is None else self.groups.get(fingerprint, {}).get(name, -1)

    def put_group(self, fingerprint: int, name: str, number: int) -> None:
        if self.groups is None:
            self.groups = {}
        self.groups.setdefault(fingerprint, {})[name] = number

    def remove_group(self, fingerprint: int, name: str) -> None:
        assert self.groups is not None, "the filter is known"
        del self.groups[fingerprint][name]
        if not self.groups[fingerprint]:
            del self.groups[fingerprint]
            self.groups = self.groups or None

    def count_shape(self, pattern: bytes, change: int) -> tuple[int, ...]:
        """Count routes of a wildcard shape. Returns the depth if its first route came or its last route went."""
        if self.wild is None:
            self.wild = WildShapes()
        depths = self.wild.count(pattern, change)
        if not self.wild.by_depth:
            self.wild = None
        return depths


class WildShapes:
    """The wildcard shapes of a partition in use. A match costs a hash for each, so unused shapes must go."""

    __slots__ = ("_routes", "by_depth")

    def __init__(self) -> None:
        self._routes: dict[bytes, int] = {}
        """Routes of each shape. Two homes of one filter count twice."""
        self.by_depth: Mapping[int, tuple[Shape, ...]] = {}

    def count(self, pattern: bytes, change: int) -> tuple[int, ...]:
        """Count routes. Returns the depth of the shape if its first route came or its last route went."""
        before = self._routes.get(pattern, 0)
        after = self._routes[pattern] = max(0, before + change)
        if not after:
            del self._routes[pattern]
        if (before > 0) == (after > 0):
            return ()
        depth = pattern[0]
        known = depth in self.by_depth
        self.by_depth = shapes_by_depth(tuple(sorted(self._routes)))
        return () if known == (depth in self.by_depth) else (depth,)


class RouteRows:
    """The columns of a message, checked: nothing of a wrong message is applied."""

    __slots__ = (
        "changes",
        "fingerprints",
        "group_rows",
        "groups",
        "homes",
        "partitions",
        "patterns",
        "peers",
        "shapes",
    )

    def __init__(self, message: Routes) -> None:
        """Raises ProtocolError."""
        self.partitions = unpacked(message.partitions, "H")
        self.fingerprints = unpacked(message.fingerprints, "Q")
        self.shapes = unpacked(message.shapes, "H")
        self.homes = unpacked(message.homes, "I")
        self.changes = unpacked(message.changes, "B")
        self.peers = message.peers
        self.patterns = message.patterns
        self.groups = {group.row: group.filter for group in message.groups}
        self.group_rows = sorted(self.groups)
        count = len(self.partitions)
        if not count == len(self.fingerprints) == len(self.shapes) == len(self.homes) == len(self.changes):
            raise ProtocolError(f"columns of routes differ in length from the {count} partitions")
        if count and (
            max(self.partitions) >= PARTITIONS
            or max(self.shapes) >= len(self.patterns)
            or max(self.homes) >= len(self.peers)
        ):
            raise ProtocolError("a route refers to no partition, shape or home of its message")
        for pattern in self.patterns:
            if pattern != EXACT:
                shape_from(pattern)

    def __len__(self) -> int:
        return len(self.partitions)

    def runs(self) -> Iterable[tuple[int, int, int]]:
        """Each partition with its first row, and the row after its last."""
        partitions, start = self.partitions, 0
        for row in range(1, len(partitions)):
            if partitions[row] != partitions[start]:
                yield partitions[start], start, row
                start = row
        if partitions:
            yield partitions[start], start, len(partitions)

    def are_plain(self, start: int, end: int) -> bool:
        """Whether these rows are routes that came, of unshared filters."""
        at = bisect_left(self.group_rows, start)
        return not any(self.changes[start:end]) and (at == len(self.group_rows) or self.group_rows[at] >= end)


class RouteChanges(NamedTuple):
    """Effects of a message, for plans made before."""

    exact: list[int]
    """Fingerprints of filters without wildcards that other homes want now."""
    wild: bool
    """Any topic may have other homes now."""
    left: list[tuple[Id, bool]]
    """Peers without any route, each with whether its last route expired."""


class RouteTable:
    """One per publisher."""

    __slots__ = ("_depths", "_exact", "_in_use", "_partitions", "_root", "_seed", "_wild", "home_sets")

    def __init__(self, names: NameHash = UNSEEDED) -> None:
        self._seed = names.seed
        self._root = names.partition_of("")
        self.home_sets = HomeSets()
        self._partitions: list[PartitionRoutes | None] = [None] * PARTITIONS
        """None: the partition has no routes, or is not held."""
        self._in_use: Counter[int] = Counter()
        self._depths: tuple[int, ...] = ()
        """Depths of wildcard filters in all partitions: a match hashes no other prefixes."""
        self._exact: list[int] = []
        self._wild = False

    def __len__(self) -> int:
        """The number of filters."""
        return sum([len(routes) for routes in self._partitions if routes is not None])

    def match(self, topic: str, trusted: Sequence[int] | None = None) -> Matched | None:
        """The homes with a filter that matches. None: a partition that the topic needs is not in `trusted`."""
        # Not by calls of a NameHash: a match hashes each prefix of a topic.
        seed = self._seed
        key = hash128(topic, seed, signed=False)
        partition = key >> _PARTITION_SHIFT
        if trusted is not None and not trusted[partition]:
            return None
        found: set[int] = set()
        groups: dict[str, int] = {}
        routes = self._partitions[partition]
        if routes is not None:
            routes.look_up(key >> _FINGERPRINT_SHIFT, found, groups)
        levels = topic.split("/")
        count = len(levels)
        for depth in self._depths if trusted is None else range(count + 1):
            if depth < count:
                # A first level that is empty has the empty prefix, too.
                prefix = "/".join(levels[:depth])
                partition = hash128(prefix, seed, signed=False) >> _PARTITION_SHIFT if prefix else self._root
                if trusted is not None and not trusted[partition]:
                    return None
            elif depth == count:
                partition = key >> _PARTITION_SHIFT
            else:
                break
            routes = self._partitions[partition]
            # Filters that begin with a wildcard do not match `$SYS` and the like [MQTT-4.7.2-1].
            if routes is not None and routes.wild is not None and (depth or topic[:1] != "$"):
                for shape in routes.wild.by_depth.get(depth, ()):
                    wanted = shape.filter_for(levels)
                    if wanted is not None:
                        routes.look_up(hash128(wanted, seed, signed=False) >> _FINGERPRINT_SHIFT, found, groups)
        return self._union(found), self._named(groups) if groups else ()

    def _union(self, numbers: set[int]) -> Slots:
        if not numbers:
            return NONE
        sets = self.home_sets.sets
        if len(numbers) == 1:
            return sets[numbers.pop()]
        return tuple(sorted({slot for number in numbers for slot in sets[number]}))

    def _named(self, groups: dict[str, int]) -> GroupSlots:
        return tuple([(name, self.home_sets.sets[groups[name]]) for name in sorted(groups)])

    def drop(self, partition: int) -> None:
        """Forget the routes of a partition: it is not held any more, or begins again. `settle` must follow."""
        routes = self._partitions[partition]
        if routes is None:
            return
        self._wild = True
        self._partitions[partition] = None
        for number in routes.numbers():
            self.home_sets.leave(number)
        if routes.wild is not None:
            self._count_depths(routes.wild.by_depth, -1)

    def apply(self, rows: RouteRows, accepted: Container[int]) -> None:
        """Apply rows of these partitions. `settle` must follow."""
        for partition, start, end in rows.runs():
            if partition not in accepted:
                continue
            if end - start > 1 and self._partitions[partition] is None and rows.are_plain(start, end):
                self._load(partition, rows, start, end)
            else:
                for row in range(start, end):
                    self._change(partition, rows, row)

    def settle(self) -> RouteChanges:
        """The effects of all changes since the last call."""
        changes = RouteChanges(self._exact, self._wild, self.home_sets.settle())
        self._exact, self._wild = [], False
        return changes

    def _load(self, partition: int, rows: RouteRows, start: int, end: int) -> None:
        """The rows of a partition without routes, all at once: a fifth of the time that they take one by one."""
        pairs = sorted(zip(rows.fingerprints[start:end], rows.homes[start:end], strict=True))
        fingerprints = array("Q", [fingerprint for fingerprint, _ in pairs])
        # A filter of several homes needs sets of homes, which are made row by row.
        if any(map(int.__eq__, fingerprints, fingerprints[1:])):
            for row in range(start, end):
                self._change(partition, rows, row)
            return
        self._wild = True
        numbers: dict[int, int] = {}
        for home, routes_of_home in Counter(rows.homes[start:end]).items():
            numbers[home] = self.home_sets.take((self.home_sets.slot_of(rows.peers[home]),), routes_of_home)
        routes = self._partitions[partition] = PartitionRoutes()
        routes.fingerprints = fingerprints
        routes.homes = array("I", [numbers[home] for _, home in pairs])
        for shape, count in Counter(rows.shapes[start:end]).items():
            if rows.patterns[shape] != EXACT:
                self._count_depths(routes.count_shape(rows.patterns[shape], count), 1)

    def _change(self, partition: int, rows: RouteRows, row: int) -> None:
        fingerprint, pattern = rows.fingerprints[row], rows.patterns[rows.shapes[row]]
        change, peer, group = rows.changes[row], rows.peers[rows.homes[row]], rows.groups.get(row)
        if change & _GONE:
            changed = self._remove(partition, fingerprint, pattern, peer, group, bool(change & _EXPIRED))
        else:
            changed = self._add(partition, fingerprint, pattern, peer, group)
        if not changed:
            return
        if pattern == EXACT:
            self._exact.append(fingerprint)
        else:
            self._wild = True

    def _add(self, partition: int, fingerprint: int, pattern: bytes, peer: Peer, group: str | None) -> bool:
        version = self.home_sets.version
        slot = self.home_sets.slot_of(peer)
        self._wild |= version != self.home_sets.version
        routes = self._partitions[partition]
        if routes is None:
            routes = self._partitions[partition] = PartitionRoutes()
        before = routes.find(fingerprint) if group is None else routes.group(fingerprint, group)
        slots = self.home_sets.sets[before] if before >= 0 else NONE
        if slot in slots:
            # A home registers a filter again with a higher number, and a successor sends what its predecessor has sent.
            return False
        number = self.home_sets.take(tuple(sorted((*slots, slot))))
        if before >= 0:
            self.home_sets.leave(before)
        if group is None:
            routes.put(fingerprint, number)
        else:
            routes.put_group(fingerprint, group, number)
        if pattern != EXACT:
            self._count_depths(routes.count_shape(pattern, 1), 1)
        return True

    def _remove(
        self, partition: int, fingerprint: int, pattern: bytes, peer: Peer, group: str | None, expired: bool
    ) -> bool:
        routes, slot = self._partitions[partition], self.home_sets.known(peer.id)
        if routes is None or slot is None:
            return False
        before = routes.find(fingerprint) if group is None else routes.group(fingerprint, group)
        slots = self.home_sets.sets[before] if before >= 0 else NONE
        if slot not in slots:
            return False
        others = tuple([other for other in slots if other != slot])
        number = self.home_sets.take(others) if others else -1
        self.home_sets.leave(before, expired)
        if group is not None:
            if others:
                routes.put_group(fingerprint, group, number)
            else:
                routes.remove_group(fingerprint, group)
        elif others:
            routes.put(fingerprint, number)
        else:
            routes.remove(fingerprint)
        if pattern != EXACT:
            self._count_depths(routes.count_shape(pattern, -1), -1)
        if not routes.fingerprints and routes.groups is None:
            if routes.wild is not None:
                # Shapes left over, as a coordinator named other shapes at the end of routes than at their beginning.
                self._count_depths(routes.wild.by_depth, -1)
            self._partitions[partition] = None
        return True

    def _count_depths(self, depths: Iterable[int], change: int) -> None:
        """Depths at which one more partition has wildcard filters, or has none any more."""
        changed = False
        for depth in depths:
            changed = True
            self._in_use[depth] += change
            if not self._in_use[depth]:
                del self._in_use[depth]
        if changed:
            self._depths = tuple(sorted(self._in_use))
