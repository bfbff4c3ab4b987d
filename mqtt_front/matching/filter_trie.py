"""A map from filters to values that can be asked by topic: what matches, without looking at what does not.

Owns the tree of the filters with wildcards, beside a dict of all, and the bound on what a match may cost. Knows
nothing of what the values are. Names and filters come in checked; a shared filter without `$share/name/`.

**The worst case.** At each level a topic allows the literal and the `+`, nothing else; so among the nodes of one depth
that it reaches, each has its `+` elsewhere on the way. A match thus visits at most (placements of `+` in use + 1) nodes
at each level of the topic, however many filters there are. Houses use a handful of placements; a hostile client with
all 2^n of them would make every new topic cost 2^n. Hence `Placements`, which counts them and has a bound.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ringmq.mqtt_front.matching.topics import has_wildcard

V = TypeVar("V")


class Placements:
    """Which sets of levels have a `+`, over some filters: `+/a` and `+/b/#` share one, `a/+` is another."""

    __slots__ = ("_filters", "_most")

    def __init__(self, most: int) -> None:
        self._filters: dict[int, int] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._filters)

    def allows(self, placement: int) -> bool:
        """Whether one more filter of this placement keeps the bound."""
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
    """One level of some filters, `+` among them: the values of the one that ends here, and of the one with `#` next."""

    __slots__ = ("children", "here", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _FilterNode[V]] = {}
        self.here: V | None = None
        self.rest: V | None = None

    @property
    def empty(self) -> bool:
        return not self.children and self.here is None and self.rest is None


class FilterTree(Generic[V]):
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
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _FilterNode()
            node = child
        if rest:
            node.rest = value
        else:
            node.here = value

    def remove(self, topic_filter: str) -> None:
        """Take a filter out; KeyError if it is not there."""
        del self._values[topic_filter]
        if not has_wildcard(topic_filter):
            return
        levels, rest = _path(topic_filter)
        nodes = [self._root]
        for level in levels:
            nodes.append(nodes[-1].children[level])
        if rest:
            nodes[-1].rest = None
        else:
            nodes[-1].here = None
        while levels and nodes.pop().empty:
            del nodes[-1].children[levels.pop()]

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match a topic: the one without wildcards, then down the tree."""
        exact = self._values.get(topic)
        found = [] if exact is None else [exact]
        reached = [self._root]
        wild = not topic.startswith("$")  # [MQTT-4.7.2-1]
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
            # `sport/#` is also `sport` (§4.7.1.2).
            if node.rest is not None:
                found.append(node.rest)
        return found


def _path(topic_filter: str) -> tuple[list[str], bool]:
    """The levels of a filter but for a `#` at its end, and whether there is one."""
    levels = topic_filter.split("/")
    rest = levels[-1] == "#"
    if rest:
        levels.pop()
    return levels, rest
