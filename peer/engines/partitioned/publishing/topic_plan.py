"""Plans of topics: the receivers of a message, interned, and a bounded cache from topics to plans.

20,000 topics of one subscriber have one plan. Nothing else is remembered of a topic, and a topic that was forgotten
costs a match. Owns when a publication may take the fast path. Knows neither partitions nor links.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from ringmq.dispatching.algorithms import Choice, choose
from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.names import NameHash
from ringmq.peer.engines.partitioned.publishing.home_sets import HomeSets
from ringmq.peer.engines.partitioned.publishing.route_table import Matched, RouteChanges
from ringmq.peer.messaging.config import PubSubConfig

MAX_TOPICS: Final = 16_384
"""Topics whose plan is remembered. Beyond, the topic that came first costs a match again."""
MAX_PLANS: Final = 4_096
"""Plans that are looked up for further topics. Beyond, all are forgotten, and equal plans may exist twice."""

DIRECT: Final = "direct"

Groups = tuple[tuple[str, tuple[Peer, ...]], ...]
"""Shared filters, each with the peers that have members of its group."""


class Plan:
    """The receivers of a message, without this peer."""

    __slots__ = ("choice", "groups", "peers", "through_tree")

    def __init__(self, peers: tuple[Peer, ...], groups: Groups, choice: Choice) -> None:
        self.peers = peers
        self.groups = groups
        self.choice = choice
        self.through_tree = choice.name != DIRECT and len(peers) > choice.fanout
        """Whether there are more peers than the publisher sends to by itself."""

    @property
    def is_fast(self) -> bool:
        """Whether publications may take the fast path: each peer is sent to directly."""
        return not self.groups and not self.through_tree


class CachedTopic:
    """A topic that was published to."""

    __slots__ = ("fingerprint", "generation", "peers", "plan", "raw", "used_at")

    def __init__(self, name: str, fingerprint: int, plan: Plan, generation: int, now: float) -> None:
        self.raw = name.encode()
        self.fingerprint = fingerprint
        self.used_at = now
        self.replan(plan, generation)

    def replan(self, plan: Plan, generation: int) -> None:
        self.plan = plan
        self.peers = plan.peers
        self.generation = generation


class TopicPlans:
    """One per publisher."""

    __slots__ = (
        "_by_fingerprint",
        "_config",
        "_home_sets",
        "_me",
        "_names",
        "_plans",
        "_version",
        "fast",
        "generation",
        "topics",
    )

    def __init__(self, home_sets: HomeSets, me: Callable[[], Peer], config: PubSubConfig) -> None:
        self._home_sets = home_sets
        self._me = me
        self._config = config
        self._names = NameHash(config.hash_seed)
        self._plans: dict[tuple[Matched, Choice], Plan] = {}
        self._version = home_sets.version
        self.topics: OrderedDict[str, CachedTopic] = OrderedDict()
        """The oldest first. Look one up with `current`, as its plan may be old."""
        self._by_fingerprint: dict[int, str] = {}
        self.generation = 0
        """Plans of an earlier generation must not be used."""
        # Emptied with each generation: publications of the fast path need not compare generations.
        self.fast: dict[str, CachedTopic] = {}
        """Topics of this generation whose publications take the fast path."""

    def __len__(self) -> int:
        return len(self.topics)

    def __contains__(self, name: str) -> bool:
        return name in self.topics

    def since(self, then: float) -> Iterator[str]:
        """Topics that were published to since then, the newest topic first."""
        return (name for name, topic in reversed(self.topics.items()) if topic.used_at >= then)

    def current(self, name: str, now: float) -> CachedTopic | None:
        """The topic, if its plan can be used."""
        topic = self.topics.get(name)
        if topic is None or topic.generation != self.generation:
            return None
        topic.used_at = now
        return topic

    def put(self, name: str, matched: Matched, now: float) -> CachedTopic:
        """Remember the plan of a topic."""
        topic = self.topics.get(name)
        if topic is not None:
            topic.used_at = now
            topic.replan(self.plan(matched, topic.plan.choice), self.generation)
            self.allow_fast(name, topic, True)
            return topic
        plan = self.plan(matched, self.choice_for(name))
        topic = CachedTopic(name, self._names.fingerprint_of(name), plan, self.generation, now)
        namesake = self._by_fingerprint.get(topic.fingerprint)
        if namesake is not None:
            # A change of a filter names a fingerprint: it must find every topic that it may concern. MurmurHash3 is not
            # cryptographic, so a client can aim for a second topic of one fingerprint.
            self._remove(namesake)
        elif len(self.topics) >= MAX_TOPICS:
            self._remove(next(iter(self.topics)))
        self._by_fingerprint[topic.fingerprint] = name
        self.topics[name] = topic
        self.allow_fast(name, topic, True)
        return topic

    def allow_fast(self, name: str, topic: CachedTopic, allowed: bool) -> None:
        """A held publication bars the fast path, or later messages would overtake it."""
        if allowed and topic.plan.is_fast:
            self.fast[name] = topic
        else:
            self.fast.pop(name, None)

    def choice_for(self, name: str) -> Choice:
        """The dispatching of a topic."""
        return choose(self._config.rules, lambda rule: matches(rule, name), self._config.dispatch)

    def plan(self, matched: Matched, choice: Choice) -> Plan:
        """The plan for these homes."""
        if self._version != self._home_sets.version or len(self._plans) >= MAX_PLANS:
            # A slot may stand for another peer now.
            self._version = self._home_sets.version
            self._plans.clear()
        plan = self._plans.get((matched, choice))
        if plan is None:
            plan = self._plans[matched, choice] = self._make(matched, choice)
        return plan

    def _make(self, matched: Matched, choice: Choice) -> Plan:
        homes, groups = matched
        peers = self._home_sets.peers
        # The front has delivered the message to its own clients before it called, except to shared subscriptions.
        me = self._me().id
        receivers = [peers[slot] for slot in homes if peers[slot].id != me]
        # Guided finds the position of the publisher among the peers by bisection, so they must be sorted by id.
        receivers.sort(key=_id_of)
        members = [(name, tuple(sorted([peers[slot] for slot in slots], key=_id_of))) for name, slots in groups]
        return Plan(tuple(receivers), tuple(members), choice)

    def change(self, changes: RouteChanges) -> None:
        """Routes have changed: forget the plans that they concern."""
        if changes.wild:
            self._begin_generation()
        for fingerprint in changes.exact:
            name = self._by_fingerprint.get(fingerprint)
            if name is not None:
                self._remove(name)

    def distrust(self) -> None:
        """A partition is not trusted any more: each topic is looked at again before its next message."""
        self._begin_generation()

    def _begin_generation(self) -> None:
        self.generation += 1
        self.fast = {}

    def _remove(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.fast.pop(name, None)
        del self._by_fingerprint[topic.fingerprint]

    def forget(self, since: float) -> None:
        """Forget topics without a publication since then."""
        for name in [name for name, topic in self.topics.items() if topic.used_at < since]:
            self._remove(name)


def _id_of(peer: Peer) -> Id:
    return peer.id
