"""Topics and filters of a run of publish and subscribe: a dozen written down, or thousands drawn from the seed.

Among thousands, some topics are *hot*: they get half of the messages and many of the filters, so that publications and
subscriptions meet although most topics are hardly used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import isqrt
from random import Random
from typing import Final

from ringmq.mqtt_front.matching.topics import has_wildcard, literal_prefix, matches
from ringmq.peer.messaging.shared_filters import inner_of

TOPICS: Final = ("a", "a/b", "a/b/c", "a/b/d", "x", "x/y", "x/y/z", "m/1", "m/2", "m/3", "n", "/lead")
FILTERS: Final = (
    *TOPICS, "#", "a/#", "a/+", "+/b/#", "a/b/+", "x/+/z", "+", "m/+", "/+",
    "$share/g/m/+", "$share/g/a/b", "$share/h/#",
)  # fmt: skip

BROAD: Final = ("#", "+/#", "+", "/+", "+/+", "+/+/+", "/#", "$app/#", "$share/all/#")
"""Filters that match a large share of all topics. Single subscriptions use them now and then, bursts never: a ring in
which every peer wants every message tests no match."""
DEPTHS: Final = {1: 2, 2: 5, 3: 8, 4: 6, 5: 3, 6: 1, 8: 1}
"""Levels of a topic, with their weights."""
NAMES_OF_A_LEVEL: Final = 12
"""Few, so that a `+` matches several topics."""
LEADING_EMPTY: Final = 0.06
INNER_EMPTY: Final = 0.02
OF_THE_SERVER: Final = 0.04
"""Shares of the topics with an empty first level, with an empty level inside, and below a level with `$`."""
HOT_SHARE: Final = 0.01
LEAST_HOT: Final = 12
HOT_MESSAGES: Final = 0.5
BROAD_SUBSCRIPTIONS: Final = 0.03
WILD: Final = 0.25
SHARED: Final = 0.1
GROUPS: Final = 5
"""Names of shares: few, so that groups have several members."""
WILD_FORMS: Final = 3
"""Wildcard filters for each hot topic, and for one of ten others."""
END: Final = "\U0010ffff"
"""Sorts behind all characters of names."""


class Names:
    """A few topics and filters, all chosen with the same probability."""

    def __init__(self, serves: Callable[[str], bool], topics: Sequence[str] = TOPICS) -> None:
        """`serves` tells which filters the engine of the run serves."""
        self.topics = topics
        self.filters: Sequence[str] = FILTERS
        self._served = [name for name in FILTERS if serves(name)]

    def topic(self, random: Random) -> str:
        """A topic to publish to."""
        return random.choice(self.topics)

    def filter(self, random: Random) -> str:
        """A filter to subscribe to."""
        return random.choice(self._served)

    def burst(self, random: Random, count: int) -> list[str]:
        """Different filters for one SUBSCRIBE."""
        return random.sample(self._served, min(count, len(self._served)))

    def topics_of(self, topic_filter: str) -> Sequence[str]:
        """The topics that a filter matches: at least one."""
        return [topic for topic in self.topics if matches(inner_of(topic_filter), topic)]


class ManyNames(Names):
    """Thousands of topics, and filters for them. The seed determines all."""

    def __init__(self, serves: Callable[[str], bool], count: int, seed: int) -> None:
        random = Random(f"names {seed}")
        super().__init__(serves, _drawn_topics(random, count))
        hot = max(LEAST_HOT, int(count * HOT_SHARE))
        self._hot = self.topics[:hot]
        self._sorted = sorted(self.topics)
        self._topics_of: dict[str, Sequence[str]] = {}
        wild_hot = _wild_filters(random, self._hot)
        wild_cold = _wild_filters(random, random.sample(self.topics, max(1, count // 10)))
        self._exact = self._kinds(serves, random, self._hot), self._kinds(serves, random, self.topics)
        self._wild = self._kinds(serves, random, wild_hot), self._kinds(serves, random, wild_cold)
        self._broad = [name for name in BROAD if serves(name) and self.topics_of(name)]
        self.filters = [*self._exact[1], *self._wild[0], *self._wild[1], *self._broad]

    @staticmethod
    def _kinds(serves: Callable[[str], bool], random: Random, names: Sequence[str]) -> list[str]:
        """Some of the filters as shared ones, which the engine may not serve."""
        shared = [f"$share/g{random.randrange(GROUPS)}/{name}" if random.random() < SHARED else name for name in names]
        return [name for name in shared if serves(name)]

    def topic(self, random: Random) -> str:
        return random.choice(self._hot if random.random() < HOT_MESSAGES else self.topics)

    def filter(self, random: Random) -> str:
        if random.random() < BROAD_SUBSCRIPTIONS:
            return random.choice(self._broad)
        return self._narrow(random, HOT_MESSAGES)

    def burst(self, random: Random, count: int) -> list[str]:
        names: dict[str, None] = {}
        # A sixth, and not half: these filters are most of all, and would bring every hot message to every peer.
        for _ in range(count):
            names[self._narrow(random, HOT_MESSAGES / 3)] = None
        return list(names)

    def _narrow(self, random: Random, hot: float) -> str:
        kinds = self._wild if random.random() < WILD else self._exact
        return random.choice(kinds[0] if random.random() < hot else kinds[1])

    def topics_of(self, topic_filter: str) -> Sequence[str]:
        known = self._topics_of.get(topic_filter)
        if known is None:
            inner = inner_of(topic_filter)
            known = [topic for topic in self._below(literal_prefix(inner)) if matches(inner, topic)]
            self._topics_of[topic_filter] = known
        return known

    def _below(self, prefix: str) -> Sequence[str]:
        """All topics that begin with a text."""
        return self._sorted[bisect_left(self._sorted, prefix) : bisect_left(self._sorted, prefix + END)]


def _drawn_topics(random: Random, count: int) -> list[str]:
    depths, weights = list(DEPTHS), list(DEPTHS.values())
    roots = max(NAMES_OF_A_LEVEL, isqrt(count))
    topics: dict[str, None] = {}
    while len(topics) < count:
        depth = random.choices(depths, weights)[0]
        levels = [f"r{random.randrange(roots)}"]
        levels += [f"{level}{random.randrange(NAMES_OF_A_LEVEL)}" for level in range(1, depth)]
        kind = random.random()
        if kind < LEADING_EMPTY:
            levels.insert(0, "")
        elif kind < LEADING_EMPTY + OF_THE_SERVER:
            levels.insert(0, "$app")
        elif kind < LEADING_EMPTY + OF_THE_SERVER + INNER_EMPTY:
            levels.insert(random.randrange(1, depth + 1), "")
        topics["/".join(levels)] = None
    return list(topics)


def _wild_filters(random: Random, topics: Sequence[str]) -> list[str]:
    """Filters with wildcards at all depths. Each matches the topic that it was made from."""
    made = {name: None for topic in topics for name in [_wild_filter(random, topic) for _ in range(WILD_FORMS)]}
    return [name for name in made if has_wildcard(name)]


def _wild_filter(random: Random, topic: str) -> str:
    levels = topic.split("/")
    # The first level stays, so that the filter matches a small share of the topics: `BROAD` has others.
    first = 2 if levels[0] in ("", "$app") else 1
    for _ in range(random.randrange(3)):
        if len(levels) > first:
            levels[random.randrange(first, len(levels))] = "+"
    if random.random() < 0.4 or not has_wildcard("/".join(levels)):
        levels[random.randrange(first, len(levels) + 1) :] = ["#"]
    return "/".join(levels)
