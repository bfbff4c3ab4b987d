"""A map from filters to values that can be queried by topic, without looking at filters that do not match.

Owns the trie of the filters with wildcards, beside a dict of all, and the bound on the cost of a match. Knows nothing
about the values. Names and filters must be valid; a shared filter is passed without `$share/name/`.

**The worst case.** At each level a topic matches the literal and the `+`, nothing else; so the nodes that it reaches at
one depth differ in the positions of `+` on their paths. A match thus visits at most (placements of `+` in use + 1)
nodes at each level of the topic, however many filters there are. Real filters use a handful of placements; a hostile
client with all 2^n of them would make every new topic cost 2^n. Hence `Placements`, which counts and bounds them.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ringmq.mqtt_front.matching.topics import has_wildcard

V = TypeVar("V")


class Placements:
    """The sets of levels with a `+` over some filters: `+/a` and `+/b/#` share a set, `a/+` has another."""

    __slots__ = ("_filters", "_most")

    def __init__(self, most: int) -> None:
        self._filters: dict[int, int] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._filters)

    def allows(self, placement: int) -> bool:
        """Whether a further filter with this placement keeps the bound."""
        return not placement or placement in self._filters or len(self._filters) < self._most

    def add(self, placement: int) -> None:
        if placement:
            self._filters[placement] = self._filters.get(placement, 0) + 1

    def remove(self, placement: int) -> None:
        if placement:
            left = self._filters[placement] - 1
            if left:
                self._filters[placement] = left
            else:
                del self._filters[placement]


def placement_of(topic_filter: str) -> int:
    """The levels of a filter that are `+`, as bits; 0 if none is."""
    if "+" not in topic_filter:
        return 0
    return sum(1 << place for place, level in enumerate(topic_filter.split("/")) if level == "+")


class _FilterNode(Generic[V]):
    """One level of some filters: the value of the filter that ends here, and of the filter with `#` next."""

    __slots__ = ("children", "here", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _FilterNode[V]] = {}
        self.here: V | None = None
        self.rest: V | None = None

    def set(self, rest: bool, value: V | None) -> None:
        if rest:
            self.rest = value
        else:
            self.here = value

    def below(self, level: str) -> _FilterNode[V]:
        """The child for a level, which is created if it is absent."""
        child = self.children.get(level)
        if child is None:
            child = self.children[level] = _FilterNode()
        return child

    def prune(self, level: str) -> bool:
        """Remove the child for a level if no filter ends at it or below it; returns whether it did."""
        if not self.children[level].empty:
            return False
        del self.children[level]
        return True

    @property
    def empty(self) -> bool:
        return not self.children and self.here is None and self.rest is None


class FilterTrie(Generic[V]):
    """Filters and their values; `None` is no value."""

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._root: _FilterNode[V] = _FilterNode()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, topic_filter: str) -> V | None:
        return self._values.get(topic_filter)

    def put(self, topic_filter: str, value: V) -> None:
        """Set or replace the value of a filter."""
        self._values[topic_filter] = value
        if not has_wildcard(topic_filter):
            return
        levels, rest = _path(topic_filter)
        node = self._root
        for level in levels:
            node = node.below(level)
        node.set(rest, value)

    def remove(self, topic_filter: str) -> None:
        """Remove a filter. Raises KeyError if it is absent."""
        del self._values[topic_filter]
        if not has_wildcard(topic_filter):
            return
        levels, rest = _path(topic_filter)
        nodes = [self._root]
        for level in levels:
            nodes.append(nodes[-1].children[level])
        nodes[-1].set(rest, None)
        # Empty branches would add to the cost of every match, and grow with every filter that was ever used.
        for parent, level in zip(reversed(nodes[:-1]), reversed(levels), strict=True):
            if not parent.prune(level):
                break

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match a topic: first the filter without wildcards, then down the trie."""
        exact = self._values.get(topic)
        found = [] if exact is None else [exact]
        reached = [self._root]
        # A wildcard at the first level does not match topics that begin with `$` [MQTT-4.7.2-1].
        wild = not topic.startswith("$")
        for level in topic.split("/"):
            below: list[_FilterNode[V]] = []
            for node in reached:
                children = node.children
                if wild:
                    if node.rest is not None:
                        found.append(node.rest)
                    single = children.get("+")
                    if single is not None:
                        below.append(single)
                literal = children.get(level)
                if literal is not None:
                    below.append(literal)
            if not below:
                return found
            reached = below
            wild = True
        for node in reached:
            if node.here is not None:
                found.append(node.here)
            # `sport/#` also matches `sport` (§4.7.1.2).
            if node.rest is not None:
                found.append(node.rest)
        return found


def _path(topic_filter: str) -> tuple[list[str], bool]:
    """The levels of a filter without a `#` at its end, and whether it has one."""
    levels = topic_filter.split("/")
    rest = levels[-1] == "#"
    if rest:
        levels.pop()
    return levels, rest
