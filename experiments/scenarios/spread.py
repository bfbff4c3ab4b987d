"""A message to thousands of peers: the sends of each peer, and the time to the last receiver, by way of dispatching.

Publications go through the cores of peers over a settled ring. A send keeps its sender busy for a while and arrives one
delay after that, so the time can be compared with the least possible time (`postal`). All delays are equal: hops count,
and distances do not.

Each topic has another publisher, which publishes twice. The second message is measured; for the first message, the
publisher has to ask for the subscribers. For Direct and Guided each peer subscribes once, to all topics. Scribe has a
tree for each topic, which is built before its messages and removed after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Final

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.building import Progress, settled_ring, silent
from ringmq.experiments.scenarios.spread_figures import SpreadFigures, SpreadTally, name_of
from ringmq.experiments.simulator.copies import CopiesWorld
from ringmq.experiments.simulator.network import Weather
from ringmq.overlay.core.timing import WAN
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.engines.scribe.config import WAN as TREES
from ringmq.peer.messaging.config import WAN as ROLES

CHOICES: Final = (
    Choice("direct"),
    Choice("guided", 5),
    Choice("guided", 10),
    Choice("guided", 25),
    Choice("guided", 64),
    Choice(SCRIBE),
)
ALL_TOPICS: Final = "+/+"
WARM_UP_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The ring, the messages and the network of a measurement."""

    nodes: int
    subscribers: int
    topics: int = 20
    seed: int = 1
    delay_s: float = 0.05
    gap_s: float = 30e-6
    """Time that a send takes its sender."""
    uplink_bits_per_s: float | None = None
    """Bandwidth of a sender; a send takes the time of its bytes, but at least `gap_s`. None for no limit."""
    body_bytes: int = 100

    @property
    def weather(self) -> Weather:
        uplink = inf if self.uplink_bits_per_s is None else self.uplink_bits_per_s
        return Weather(delay_s=(self.delay_s, self.delay_s), gap_s=self.gap_s, uplink_bits_per_s=uplink)

    @property
    def send_s(self) -> float:
        """Least time that one copy of a message takes its sender."""
        return self.weather.takes_s(self.body_bytes)


def spread(setting: Setting, choices: Sequence[Choice] = CHOICES, progress: Progress = silent) -> list[SpreadFigures]:
    """Measure all choices. Raises InvariantBrokenError if a message does not reach every subscriber exactly once."""
    figures = []
    planned = [choice for choice in choices if choice.name != SCRIBE]
    share = len(planned) / len(choices)
    if planned:
        figures += _planned(setting, planned, lambda done: progress(share * done))
    if len(planned) < len(choices):
        figures.append(_scribe(setting, lambda done: progress(share + (1 - share) * done)))
    return figures


class Stage:
    """A ring with its subscribers and publishers, which follow from the seed and are equal for all choices."""

    def __init__(self, setting: Setting, world: CopiesWorld) -> None:
        self.world = world
        settled_ring(world, setting.nodes)
        world.run(WARM_UP_S)
        random, nodes = Random(f"spread {setting.seed}"), world.members()
        self.subscribers = random.sample(nodes, setting.subscribers)
        self.subscriber_ids = {node.peer.id for node in self.subscribers}
        self.publishers = [random.choice(nodes) for _ in range(setting.topics)]
        self._body = bytes(setting.body_bytes)

    def play(self, tally: SpreadTally, number: int, topic: str) -> None:
        """Publish to a topic twice, and count the second message."""
        world, publisher = self.world, self.publishers[number]
        receivers = len(self.subscribers) - (publisher.peer.id in self.subscriber_ids)
        world.publish_and_wait(publisher, topic, self._body, receivers)
        took_s = world.publish_and_wait(publisher, topic, self._body, receivers)
        tally.add(world.members(), receivers, took_s)


def _planned(setting: Setting, choices: Sequence[Choice], progress: Progress) -> list[SpreadFigures]:
    """Measure Direct and Guided in one ring: the first level of a topic selects its way of dispatching."""
    rules = tuple([(f"{name_of(choice)}/+", choice) for choice in choices])
    world = CopiesWorld(setting.seed, WAN, setting.weather, config=replace(ROLES, rules=rules))
    stage = Stage(setting, world)
    # Subscriptions are not measured, so their sends need no gaps.
    world.network.in_turn = False
    world.subscribe_all(stage.subscribers, ALL_TOPICS)
    world.network.in_turn = True
    tallies = [SpreadTally(choice, stage.subscriber_ids) for choice in choices]
    for number in range(setting.topics):
        for tally in tallies:
            stage.play(tally, number, f"{name_of(tally.choice)}/{number}")
        progress((number + 1) / setting.topics)
    return [tally.figures(setting.send_s, setting.delay_s) for tally in tallies]


def _scribe(setting: Setting, progress: Progress) -> SpreadFigures:
    world = CopiesWorld(setting.seed, WAN, setting.weather, config=ROLES, trees=TREES)
    stage = Stage(setting, world)
    tally = SpreadTally(Choice(SCRIBE), stage.subscriber_ids)
    for number in range(setting.topics):
        topic = f"{SCRIBE}/{number}"
        world.network.in_turn = False
        world.subscribe_all(stage.subscribers, topic)
        world.network.in_turn = True
        stage.play(tally, number, topic)
        world.unsubscribe_all(stage.subscribers, topic)
        progress((number + 1) / setting.topics)
    return tally.figures(setting.send_s, setting.delay_s)
