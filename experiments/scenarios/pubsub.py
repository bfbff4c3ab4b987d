"""Peers publish and subscribe while others join, crash and stop, messages get lost, and the network is split.

Which of that happens, and when, the seed says. In the end all is left alone until it is quiet, and then everything must
be as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from heapq import heappop, heappush
from typing import Final

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.building import Progress, join_somewhere, settled_ring, silent
from ringmq.experiments.scenarios.pubsub_figures import PubSubFigures
from ringmq.experiments.simulator.network import DELAYS_S, Weather
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.ids import ID_BITS, SPACE, Id, nearness
from ringmq.overlay.core.timing import PRESETS as TIMINGS
from ringmq.peer.engines.scribe.config import PRESETS as TREES
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.messaging.config import PRESETS
from ringmq.peer.messaging.partitions import inner_of, key_of_place, place_of

TOPICS: Final = ("a", "a/b", "a/b/c", "a/b/d", "x", "x/y", "x/y/z", "m/1", "m/2", "m/3", "n", "/lead")
FILTERS: Final = (
    *TOPICS, "#", "a/#", "a/+", "+/b/#", "a/b/+", "x/+/z", "+", "m/+", "/+",
    "$share/g/m/+", "$share/g/a/b", "$share/h/#",
)  # fmt: skip
DIRECT: Final = Choice("direct")
WARM_UP_S: Final = 2.0
QUIET_S: Final = 75.0
"""Longer than any lease, and than what is gone is remembered."""
SPLIT_S: Final = 12.0
HEALED_S: Final = 40.0
"""After a split has healed, for so long messages need not reach everybody: the rings find each other, and the peers
their coordinators."""
LONGEST_PAUSE_S: Final = 8.0
CALM_S: Final = 6.0
"""Between two failures that could hit the same place: longer than a ring needs to repair."""


RACERS: Final = 4
"""Peers that publish at the moment of a SUBACK."""
RACE_S: Final = 0.12
"""In which a subscription begins, and the retained messages that are to meet it; a first publication takes half."""
NEAR_BITS: Final = ID_BITS - 16
"""So near to a key that nobody else is likely to be nearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Failures per second of virtual time, and what the network does."""

    name: str
    joins: float = 0.0
    crashes: float = 0.0
    pauses: float = 0.0
    loss: float = 0.0
    burst_loss: float = 0.0
    jitter: float = 0.0
    duplication: float = 0.0
    split: bool = False


CALM: Final = Trouble(name="calm")
TROUBLES: Final = (
    CALM,
    Trouble(name="churn", joins=0.2, crashes=0.15),
    Trouble(name="pauses", joins=0.1, pauses=0.15),
    Trouble(name="loss", joins=0.1, crashes=0.05, loss=0.02, jitter=1.0, duplication=0.02),
    Trouble(name="all", joins=0.15, crashes=0.1, pauses=0.1, loss=0.01, burst_loss=0.01, jitter=1.0, duplication=0.01),
    Trouble(name="split", joins=0.1, crashes=0.05, split=True),
)


class PubSubScene:
    """One run: its world, and what is to happen next."""

    def __init__(self, nodes: int, seed: int, timing: str, trouble: Trouble, dispatch: Choice) -> None:
        weather = Weather(
            delay_s=DELAYS_S[timing],
            jitter=trouble.jitter,
            loss=trouble.loss,
            burst_loss=trouble.burst_loss,
            burst_s=0.5,
            duplication=trouble.duplication,
        )
        calm = weather.lossless and not trouble.split and not trouble.pauses
        scribe = dispatch.name == SCRIBE
        self.world = PubSubWorld(
            seed,
            TIMINGS[timing],
            weather,
            config=replace(PRESETS[timing], dispatch=DIRECT if scribe else dispatch),
            trees=TREES[timing] if scribe else None,
            strict=calm,
        )
        self.world.told.lenient = scribe and trouble is not CALM
        self._filters = [name for name in FILTERS if self.world.serves(name)]
        self.trouble = trouble
        self.joins = self.crashes = self.pauses = 0
        self._calm_at = 0.0
        self._paused: list[tuple[float, PubSubNode]] = []
        self._fresh = 0
        self._acts = 0
        self._races: list[tuple[float, int, Callable[[], None]]] = []
        self.world.on_suback = self._race_suback
        settled_ring(self.world, nodes)

    def run(self, span_s: float, progress: Progress) -> None:
        world, trouble = self.world, self.trouble
        world.run(WARM_UP_S)
        end = world.now + span_s
        rates = {
            self._publish_any: 20.0,
            self._subscribe: 3.0,
            self._unsubscribe: 1.0,
            self._join: trouble.joins,
            self._crash: trouble.crashes,
            self._pause: trouble.pauses,
        }
        acts, weights = list(rates), list(rates.values())
        split_at = world.now + span_s / 3 if trouble.split else end + 1
        heal_at = split_at + SPLIT_S
        while world.now < end:
            until = world.now + world.random.expovariate(sum(weights))
            while self._races and self._races[0][0] < until:
                at, _, act = heappop(self._races)
                world.run(max(at, world.now))
                self._resume_due()
                act()
            world.run(until)
            self._resume_due()
            if split_at <= world.now:
                split_at = end + 1
                world.network.split({point: world.random.randrange(2) for point in world.nodes})
                world.told.blur(world.now - 1.0, heal_at + HEALED_S)
            if heal_at <= world.now:
                heal_at = end + 1
                world.network.heal()
            world.random.choices(acts, weights)[0]()
            progress(1 - (end - world.now) / span_s)
        world.network.heal()
        while self._paused:
            world.run(min(at for at, _ in self._paused))
            self._resume_due()

    def _publish_any(self) -> None:
        random = self.world.random
        self._publish(random.choice(TOPICS), random.randrange(3), random.random() < 0.2)

    def _publish(self, topic: str, qos: int, retain: bool) -> None:
        self.world.publish(self._anybody(), topic, qos, retain)

    def _subscribe(self) -> None:
        """While others retain messages there, before and after."""
        random = self.world.random
        name = random.choice(self._filters)
        for _ in range(random.randrange(3)):
            topic = random.choice(self._topics_of(name))
            if random.random() < 0.5:  # one that nobody has published to before
                self._fresh += 1
                topic = inner_of(name).replace("+", f"t{self._fresh}").replace("#", f"t{self._fresh}")
            self._soon(partial(self._publish, topic, 1, True))
        self._soon(partial(self._subscribe_to, name))

    def _soon(self, act: Callable[[], None]) -> None:
        self._acts += 1
        heappush(self._races, (self.world.now + self.world.random.uniform(0, RACE_S), self._acts, act))

    def _subscribe_to(self, name: str) -> None:
        node = self._anybody()
        if name not in node.clients.filters:
            self.world.subscribe(node, name)

    def _topics_of(self, name: str) -> list[str]:
        return [topic for topic in TOPICS if matches(inner_of(name), topic)]

    def _race_suback(self, node: PubSubNode, name: str) -> None:
        """The moment that a client has its SUBACK, others publish."""
        random = self.world.random
        others = [other for other in self.world.peers() if other is not node and other.active]
        for _ in range(RACERS):
            topic = random.choice(self._topics_of(name))
            self.world.publish(random.choice(others), topic, random.randrange(3), random.random() < 0.2)

    def _unsubscribe(self) -> None:
        node = self._anybody()
        if node.clients.filters:
            self.world.unsubscribe(node, self.world.random.choice(sorted(node.clients.filters)))

    def _anybody(self) -> PubSubNode:
        """A few do most of it, so that there is something to be found."""
        peers = [node for node in self.world.peers() if node.active]
        few = peers[: max(1, len(peers) // 5)]
        return self.world.random.choice(few if self.world.random.random() < 0.5 else peers)

    def _join(self) -> None:
        """Every other one comes next to a key in use, and takes it over."""
        self.joins += 1
        random, point = self.world.random, None
        if random.random() < 0.5:
            key = key_of_place(place_of(random.choice(FILTERS)))
            point = Id((key + random.choice((-1, 1)) * random.getrandbits(NEAR_BITS)) % SPACE)
        if point is None or point not in self.world.nodes:
            join_somewhere(self.world, self.world.add(point))

    def _victims(self) -> list[PubSubNode]:
        """Anybody; or the coordinator of some place; or that and its first shadow together."""
        random = self.world.random
        if random.random() < 0.4:
            return [self._anybody()]
        live = {node.peer.id: node for node in self.world.peers()}
        key = key_of_place(place_of(random.choice(FILTERS)))
        nearest = sorted(live, key=lambda point: nearness(key, point))
        return [live[point] for point in nearest[: random.choice((1, self.world.config.shadows))]]

    def _may_fail(self) -> bool:
        """No more at once than a set of coordinator and shadows survives."""
        if self.world.now < self._calm_at:
            return False
        self._calm_at = self.world.now + CALM_S
        return True

    def _crash(self) -> None:
        if self._may_fail():
            for node in self._victims():
                self.crashes += 1
                self.world.told.crashed(node)
                self.world.crash(node)

    def _pause(self) -> None:
        if self._may_fail():
            for node in self._victims():
                self.pauses += 1
                length_s = self.world.random.uniform(0.5, LONGEST_PAUSE_S)
                self._calm_at = max(self._calm_at, self.world.now + length_s + CALM_S)
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
) -> PubSubFigures:
    """Raises InvariantBrokenError at the first thing that must never happen. Without `trouble` the seed chooses it."""
    chosen = next((one for one in TROUBLES if one.name == trouble), TROUBLES[seed % len(TROUBLES)])
    scene = PubSubScene(nodes, seed, timing, chosen, dispatch)
    world = scene.world
    try:
        scene.run(span_s, progress)
        world.run(world.now + QUIET_S)
        # A message with QoS 0 has one way; in a tree it may also be overtaken, and dropped for that.
        world.told.quiet(world.network.weather.lossless and not chosen.jitter and dispatch.name in ("direct", SCRIBE))
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
        messages=len(world.told.sent),
        subscriptions=len(world.told.subscriptions),
        deliveries=world.told.delivered,
        joins=scene.joins,
        crashes=scene.crashes,
        pauses=scene.pauses,
        longest_suback_s=round(world.told.latest_ack_s, 3),
        losses=dict(world.told.losses),
        counters=totals,
        digest=world.digest,
        events=world.steps,
        events_per_s=round(world.events_per_s),
    )
