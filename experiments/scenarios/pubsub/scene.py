"""Peers publish and subscribe while others join, crash and pause, messages are lost, and the network is split.

The seed determines all of it. At the end the world runs without failures until it is quiet, and then no trace of the
failures may be left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from heapq import heappop, heappush
from itertools import permutations
from time import process_time
from typing import Final

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.building import Progress, join_somewhere, settled_ring, silent
from ringmq.experiments.scenarios.pubsub.figures import PubSubFigures
from ringmq.experiments.scenarios.pubsub.names import ManyNames, Names
from ringmq.experiments.simulator.network import DELAYS_S, Weather
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.overlay.core.ids import ID_BITS, SPACE, Id, nearness
from ringmq.overlay.core.timing import PRESETS as TIMINGS
from ringmq.peer.engines.partitioned.names import partition_of_filter
from ringmq.peer.engines.scribe.config import PRESETS as TREES
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.messaging.config import PRESETS
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.replication.space import key_of_partition

DIRECT: Final = Choice("direct")
WARM_UP_S: Final = 2.0
QUIET_S: Final = 75.0
"""Time at the end without failures: longer than removed entries are remembered."""
SPLIT_S: Final = 12.0
HEALED_S: Final = 40.0
"""Time after the healing of a split in which messages need not reach every subscriber: the rings find each other, and
the peers find their coordinators."""
CHECKED_S: Final = 10.0
"""Time after that in which messages must reach every subscriber again."""
SUCCESSION_S: Final = 1.0
"""The longest time between the crash of a coordinator and that of its successor."""
CUT_S: Final = 8.0
"""The longest cut: shorter than the lease of entries, so nothing may be lost."""
SHORT_CUT_S: Final = 6.0
"""The longest time for which a part of the ring may be cut off without a loss."""
LEAST_CUT_S: Final = 1.0
MOST_CUT_OFF: Final = 3
ONE_WAY: Final = 0.25
"""Share of such cuts in one direction only."""
WHOLE_S: Final = 2.0
"""Time between the healing of a part and the next cut, once the ring is whole."""
LONGEST_PAUSE_S: Final = 8.0
CALM_S: Final = 6.0
"""Time between two failures that could hit the same place: longer than a ring needs for its repair."""


RACERS: Final = 4
"""Publications of other peers at the moment of a SUBACK."""
RACE_S: Final = 0.12
"""Time in which a subscription and the retained messages that race with it begin; a first publication takes half."""
PUBLICATIONS: Final = 20.0
SUBSCRIPTIONS: Final = 3.0
REMOVALS: Final = 1.0
"""A second, by all clients."""
MANY_PUBLICATIONS: Final = 40.0
BURSTS: Final = 0.1
"""The same with thousands of topics. Each peer begins with a burst, too."""
BURST_FILTERS: Final = 200
"""Filters of a SUBSCRIBE in a burst: the records of a partition have some size then, and items have several entries."""
BURST_GAP_S: Final = 0.1
RETAINED_FIRST: Final = 20
"""Messages that each peer retains at the beginning, with thousands of topics."""
RACES_OF_BURST: Final = 3
"""Filters of a burst with publications at the moment of their SUBACK."""
RENEWAL_SHARE: Final = 0.2
"""Age of a lease of entries at most when its peer is paused, as a share of it: the period of its renewals."""
NEAR_BITS: Final = ID_BITS - 16
"""Bits of the distance between a key and a peer that joins next to it: hardly any other peer is nearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Failures per second of virtual time, and faults of the network."""

    name: str
    joins: float = 0.0
    crashes: float = 0.0
    pauses: float = 0.0
    loss: float = 0.0
    burst_loss: float = 0.0
    jitter: float = 0.0
    duplication: float = 0.0
    split: bool = False
    restarts: float = 0.0
    """Crashes of peers that come back at once under the same id, without their state."""
    successions: float = 0.0
    """Crashes of a coordinator, and of its successor within a second."""
    cuts: float = 0.0
    """Pairs of peers that cannot reach each other for a while, half of them in one direction only."""
    longest_cut_s: float = CUT_S
    parts: float = 0.0
    """Parts of one to three peers that are cut off from all others for a while, some in one direction only."""
    connections: bool = False
    """Whether messages travel over connections, which delay in a cut what a network without them would lose."""
    longest_pause_s: float = LONGEST_PAUSE_S


CALM: Final = Trouble(name="calm")
TROUBLES: Final = (
    CALM,
    Trouble(name="churn", joins=0.2, crashes=0.15),
    Trouble(name="pauses", joins=0.1, pauses=0.15),
    Trouble(name="loss", joins=0.1, crashes=0.05, loss=0.02, jitter=1.0, duplication=0.02),
    Trouble(name="all", joins=0.15, crashes=0.1, pauses=0.1, loss=0.01, burst_loss=0.01, jitter=1.0, duplication=0.01),
    Trouble(name="split", joins=0.1, crashes=0.05, split=True),
)
"""The failures that a seed chooses from."""
OTHERS: Final = (
    Trouble(name="restarts", joins=0.05, restarts=0.2),
    Trouble(name="successions", joins=0.25, successions=0.12),
    Trouble(name="cuts", joins=0.1, cuts=0.5),
    Trouble(name="pairs", joins=0.05, cuts=0.04, longest_cut_s=60.0),
    Trouble(name="parts", joins=0.05, parts=0.3, longest_cut_s=SHORT_CUT_S, connections=True),
    Trouble(name="lapses", joins=0.05, pauses=0.05, longest_pause_s=25.0),
)
"""Failures for `--trouble` alone, so that each seed keeps its own. In `lapses`, entries of paused peers run out; in
`pairs`, pairs are cut for longer than any lease; in `parts`, cuts delay messages as TCP does."""
ALL_TROUBLES: Final = (*TROUBLES, *OTHERS)


class PubSubScene:
    """One run: its world, and its future actions."""

    def __init__(self, nodes: int, seed: int, timing: str, trouble: Trouble, dispatch: Choice, topics: int = 0) -> None:
        weather = Weather(
            delay_s=DELAYS_S[timing],
            jitter=trouble.jitter,
            loss=trouble.loss,
            burst_loss=trouble.burst_loss,
            burst_s=0.5,
            duplication=trouble.duplication,
            connections=trouble.connections,
        )
        cuts = trouble.split or trouble.cuts or trouble.parts
        calm = weather.lossless and not (cuts or trouble.pauses or trouble.restarts)
        scribe = dispatch.name == SCRIBE
        self.world = PubSubWorld(
            seed,
            TIMINGS[timing],
            weather,
            config=replace(PRESETS[timing], dispatch=DIRECT if scribe else dispatch),
            trees=TREES[timing] if scribe else None,
            strict=calm,
        )
        self.world.pubsub_checks.lenient = scribe and trouble is not CALM
        serves = self.world.serves
        self._names = ManyNames(serves, topics, seed) if topics else Names(serves)
        self.trouble = trouble
        self.joins = self.crashes = self.pauses = self.races = self.cuts = 0
        self._many = topics > 0
        self._unraced: set[tuple[Id, str]] = set()
        """Peers and filters without publications at the moment of the SUBACK."""
        ring_timing, config = self.world.timing, self.world.config
        detection_s = ring_timing.silence_s + ring_timing.fastest_verdict_s
        self._calm_s = max(CALM_S, 1.5 * detection_s)
        self.quiet_s = max(QUIET_S, 1.1 * (detection_s + config.entry_s + config.grace_s))
        """A death, the lease of the entries, and the patience with peers without routes can follow each other."""
        self._calm_at = self._cut_until = 0.0
        self._paused: list[tuple[float, PubSubNode]] = []
        self._fresh_topics = 0
        self._actions = 0
        self._races: list[tuple[float, int, Callable[[], None]]] = []
        """A heap of actions with their times and numbers."""
        self.world.on_suback = self._race_suback
        settled_ring(self.world, nodes)

    def run(self, span_s: float, progress: Progress) -> None:
        world, trouble = self.world, self.trouble
        world.run(WARM_UP_S)
        if self._many:
            self._begin()
        end = world.now + span_s
        rates = {
            self._publish_any: MANY_PUBLICATIONS if self._many else PUBLICATIONS,
            self._subscribe: SUBSCRIPTIONS,
            self._unsubscribe: REMOVALS,
            self._join: trouble.joins,
            self._crash: trouble.crashes,
            self._pause: trouble.pauses,
            self._burst_any: BURSTS if self._many else 0.0,
            self._restart: trouble.restarts,
            self._succession: trouble.successions,
            self._cut: trouble.cuts,
            self._cut_off: trouble.parts,
        }
        actions, weights = list(rates), list(rates.values())
        split_at = world.now + span_s / 3 if trouble.split else end + 1
        heal_at = split_at + SPLIT_S
        if trouble.split and self._many:
            end = max(end, heal_at + HEALED_S + CHECKED_S)
        while world.now < end:
            until = world.now + world.random.expovariate(sum(weights))
            while self._races and self._races[0][0] < until:
                at, _, action = heappop(self._races)
                world.run(max(at, world.now))
                self._resume_due()
                if self._active():
                    action()
            world.run(until)
            self._resume_due()
            if split_at <= world.now:
                split_at = end + 1
                world.network.split({peer_id: world.random.randrange(2) for peer_id in world.nodes})
                world.pubsub_checks.exempt(world.now - 1.0, heal_at + HEALED_S)
            if heal_at <= world.now:
                heal_at = end + 1
                world.network.heal()
            if self._active():
                world.random.choices(actions, weights)[0]()
            progress(1 - (end - world.now) / span_s)
        world.network.heal()
        while self._paused:
            world.run(min(at for at, _ in self._paused))
            self._resume_due()

    def _begin(self) -> None:
        """Retained messages first, and then a burst of each peer, which finds them."""
        world = self.world
        for act in (self._retain_some, self._burst):
            for node in world.peers():
                act(node)
                world.run(world.now + BURST_GAP_S)

    def _retain_some(self, node: PubSubNode) -> None:
        for _ in range(RETAINED_FIRST):
            self.world.publish(node, self._names.topic(self.world.random), 1, retain=True)

    def _publish_any(self) -> None:
        random = self.world.random
        self._publish(self._names.topic(random), random.randrange(3), random.random() < 0.2)

    def _publish(self, topic: str, qos: int, retain: bool) -> None:
        self.world.publish(self._random_peer(), topic, qos, retain)

    def _subscribe(self) -> None:
        """Subscribe while other peers retain messages that match the filter, before and after it."""
        random = self.world.random
        name = self._names.filter(random)
        for _ in range(random.randrange(3)):
            topic = random.choice(self._names.topics_of(name))
            if random.random() < 0.5:
                # A new topic: no publisher has its subscriber list yet.
                self._fresh_topics += 1
                level = f"t{self._fresh_topics}"
                topic = inner_of(name).replace("+", level).replace("#", level)
            self._soon(partial(self._publish, topic, 1, True))
        self._soon(partial(self._subscribe_to, name))

    def _soon(self, action: Callable[[], None]) -> None:
        self._later(RACE_S, action)

    def _later(self, most_s: float, action: Callable[[], None]) -> None:
        self._actions += 1
        heappush(self._races, (self.world.now + self.world.random.uniform(0, most_s), self._actions, action))

    def _subscribe_to(self, name: str) -> None:
        node = self._random_peer()
        if name not in node.clients.filters:
            self.world.subscribe(node, name)

    def _burst_any(self) -> None:
        self._burst(self._random_peer())

    def _burst(self, node: PubSubNode) -> None:
        """Subscribe to many filters with one SUBSCRIBE."""
        drawn = self._names.burst(self.world.random, BURST_FILTERS)
        fresh = [name for name in drawn if name not in node.clients.filters]
        self._unraced.update((node.peer.id, name) for name in fresh[RACES_OF_BURST:])
        self.world.subscribe_together(node, fresh)

    def _race_suback(self, node: PubSubNode, name: str) -> None:
        """Let other peers publish at the moment of a client's SUBACK."""
        if (node.peer.id, name) in self._unraced:
            self._unraced.discard((node.peer.id, name))
            return
        random = self.world.random
        others = [other for other in self._active() if other is not node]
        if not others:
            return
        self.races += 1
        for _ in range(RACERS):
            topic = random.choice(self._names.topics_of(name))
            self.world.publish(random.choice(others), topic, random.randrange(3), random.random() < 0.2)

    def _unsubscribe(self) -> None:
        node = self._random_peer()
        if node.clients.filters:
            self.world.unsubscribe(node, self.world.random.choice(sorted(node.clients.filters)))

    def _random_peer(self) -> PubSubNode:
        """A random active peer. A few peers are chosen more often, so that subscriptions and publications meet."""
        peers = self._active()
        few = peers[: max(1, len(peers) // 5)]
        return self.world.random.choice(few if self.world.random.random() < 0.5 else peers)

    def _active(self) -> list[PubSubNode]:
        """The peers that serve clients: in a small ring perhaps none for a while."""
        return [node for node in self.world.peers() if node.active]

    def _join(self) -> None:
        """Let a peer join, in half of the cases next to a key in use, which it takes over. While a part is cut off, a
        newcomer would reach both sides."""
        if self.world.now < self._cut_until:
            return
        self.joins += 1
        random, peer_id = self.world.random, None
        if random.random() < 0.5:
            key = key_of_partition(partition_of_filter(random.choice(self._names.filters)))
            peer_id = Id((key + random.choice((-1, 1)) * random.getrandbits(NEAR_BITS)) % SPACE)
        if peer_id is None or peer_id not in self.world.nodes:
            join_somewhere(self.world, self.world.add(peer_id))

    def _victims(self) -> list[PubSubNode]:
        """A random peer, or the coordinator of a place, or the coordinator and its first shadow."""
        random = self.world.random
        if random.random() < 0.4:
            return [self._random_peer()][: len(self._active()) - 1]
        live = {node.peer.id: node for node in self.world.peers()}
        key = key_of_partition(partition_of_filter(random.choice(self._names.filters)))
        nearest = sorted(live, key=lambda peer_id: nearness(key, peer_id))
        chosen = [live[peer_id] for peer_id in nearest[: random.choice((1, self.world.config.shadows))]]
        # A small ring must not end.
        return chosen[: len(self._active()) - 1]

    def _may_fail(self) -> bool:
        """Whether peers may fail now. More failures at once could kill a coordinator with all its shadows."""
        if self.world.now < self._calm_at:
            return False
        self._calm_at = self.world.now + self._calm_s
        return True

    def _crash(self) -> None:
        if self._may_fail():
            for node in self._victims():
                self._end(node)

    def _restart(self) -> None:
        """Let peers crash and come back at once, in half of the cases before anybody has noticed."""
        if self._may_fail():
            for node in self._victims():
                self._end(node)
                self._later(self.world.random.choice((0.05, 5.0)), partial(self._come_back, node.peer.id))

    def _come_back(self, peer_id: Id) -> None:
        if not self.world.nodes[peer_id].alive:
            self.joins += 1
            join_somewhere(self.world, self.world.add(peer_id))

    def _succession(self) -> None:
        """Let a coordinator crash, and within a second its successor, which is about to collect the records."""
        random = self.world.random
        live = {node.peer.id: node for node in self.world.peers()}
        if len(live) > self.world.config.shadows + 1 and self._may_fail():
            key = key_of_partition(partition_of_filter(random.choice(self._names.filters)))
            first, second = sorted(live, key=lambda peer_id: nearness(key, peer_id))[:2]
            self._end(live[first])
            self._later(random.uniform(0, SUCCESSION_S), partial(self._end, live[second]))

    def _end(self, node: PubSubNode) -> None:
        if node.alive:
            self.crashes += 1
            self.world.pubsub_checks.crashed(node)
            self.world.crash(node)

    def _cut(self) -> None:
        random, now = self.world.random, self.world.now
        peers = self._active()
        if len(peers) > 1:
            first, second = random.sample(peers, 2)
            until = now + random.uniform(1.0, self.trouble.longest_cut_s)
            self.world.network.cut(first.peer.id, second.peer.id, until)
            if random.random() < 0.5:
                self.world.network.cut(second.peer.id, first.peer.id, until)

    def _cut_off(self) -> None:
        """Cut some peers off from all others, if the ring is whole."""
        world, random = self.world, self.world.random
        nodes = [node for node in world.peers() if node.active]
        if world.now < self._calm_at or not world.checks.whole() or len(nodes) < 2:
            return
        part = random.sample(nodes, random.randint(1, min(MOST_CUT_OFF, len(nodes) // 2)))
        until = world.now + random.uniform(LEAST_CUT_S, self.trouble.longest_cut_s)
        directions = random.choice(((True, False), (False, True))) if random.random() < ONE_WAY else (True, True)
        inside = {node.peer.id for node in part}
        for other in world.live():
            if other.peer.id not in inside:
                for node in part:
                    for (sender, receiver), broken in zip(permutations((node, other)), directions, strict=True):
                        if broken:
                            world.network.cut(sender.peer.id, receiver.peer.id, until)
        world.pubsub_checks.cut_off(frozenset(inside), world.now, until)
        self.cuts += 1
        self._calm_at = until + WHOLE_S
        self._cut_until = until

    def _pause(self) -> None:
        if self._may_fail():
            for node in self._victims():
                self.pauses += 1
                length_s = self.world.random.uniform(0.5, self.trouble.longest_pause_s)
                config = self.world.config
                if length_s > config.entry_s - RENEWAL_SHARE * config.entry_s:
                    end = self.world.now + length_s + config.entry_s
                    self.world.pubsub_checks.exempt_peer(node.peer, self.world.now, end)
                self._calm_at = max(self._calm_at, self.world.now + length_s + self._calm_s)
                self._paused.append((self.world.now + length_s, node))
                self.world.pause(node)

    def _resume_due(self) -> None:
        for at, node in list(self._paused):
            if at <= self.world.now:
                self._paused.remove((at, node))
                self.world.resume(node)


def pubsub(
    nodes: int,
    seed: int,
    timing: str = "lan",
    span_s: float = 60.0,
    trouble: str | None = None,
    progress: Progress = silent,
    dispatch: Choice = DIRECT,
    topics: int = 0,
) -> PubSubFigures:
    """Run the scenario, by default with the `trouble` that the seed chooses. `topics`: with as many topics, and filters
    for them, instead of a dozen.

    Raises InvariantBrokenError at the first broken invariant.
    """
    started_s = process_time()
    chosen = next((kind for kind in ALL_TROUBLES if kind.name == trouble), TROUBLES[seed % len(TROUBLES)])
    scene = PubSubScene(nodes, seed, timing, chosen, dispatch, topics)
    world = scene.world
    try:
        scene.run(span_s, progress)
        world.run(world.now + scene.quiet_s)
        # A message with QoS 0 is sent once. In a tree a later message may overtake it, and then it is dropped.
        reliable = world.network.weather.lossless and not (chosen.jitter or chosen.cuts or chosen.parts)
        lossless = reliable and dispatch.name in ("direct", SCRIBE)
        world.pubsub_checks.quiet(lossless)
    except AssertionError as broken:
        broken.add_note(f"seed {seed}, trouble {chosen.name}")
        raise
    totals: dict[str, int] = {}
    for node in world.nodes.values():
        assert isinstance(node, PubSubNode)
        for name, count in asdict(node.core.counters).items():
            totals[name] = totals.get(name, 0) + count
    return PubSubFigures(
        nodes=nodes,
        seed=seed,
        trouble=chosen.name,
        messages=len(world.pubsub_checks.sent),
        subscriptions=len(world.pubsub_checks.subscriptions),
        deliveries=world.pubsub_checks.delivered,
        joins=scene.joins,
        crashes=scene.crashes,
        pauses=scene.pauses,
        races=scene.races,
        checked=dict(world.pubsub_checks.checked),
        longest_suback_s=round(world.pubsub_checks.latest_ack_s, 3),
        longest_puback_s=round(world.pubsub_checks.latest_done_s, 3),
        losses=dict(world.pubsub_checks.losses),
        counters=totals,
        digest=world.digest,
        events=world.steps,
        events_per_s=round(world.events_per_s),
        cpu_s=round(process_time() - started_s, 1),
    )
