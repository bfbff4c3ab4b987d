"""The traffic of a run: its clients by their part, and messages at a modest rate. Every choice follows from the seed.

| client | session | part |
|---|---|---|
| `pub-P-N` | kept | publishes to topics of its own with QoS 0 to 2, sometimes retained |
| `live-P` | clean | subscribes to all of that |
| `stay-P` | kept | subscribes to a third of the topics with a wildcard, and to all wills |
| `away-P` | kept | subscribes to some topics by name and to all wills; goes away and comes back |
| `group-N` | kept | members of one shared group, at three peers |
| `probe-P` | clean | subscribes to a new topic, to which another probe publishes at the SUBACK |
| `will-P` | kept | ends its connections with and without a DISCONNECT, and has a will |
| `keeper` | kept | sets and clears retained messages |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from ringmq.experiments.chaos.clients import ChaosClient, Dial
from ringmq.experiments.chaos.history import MessageKind
from ringmq.experiments.chaos.recorder import Recorder

TOPICS_EACH: Final = 3
QOS_WEIGHTS: Final = (0.15, 0.5, 0.35)
RETAINED_SHARE: Final = 0.15
CLEARED_SHARE: Final = 0.15
MAX_PENDING: Final = 500
"""A publisher with so many messages without an end publishes nothing further: a stall must not become a flood."""
PROBED_S: Final = 30.0
"""After that a probe is given up; longer than a message may take by any promise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPlan:
    """Sizes and rates of a run."""

    rate_hz: float = 90.0
    """Messages of all publishers together, a second."""
    probes_hz: float = 3.0
    retained_hz: float = 4.0
    retained_topics: int = 20
    publishers_each: int = 1
    """Publishers of each peer."""
    absences_s: tuple[float, float] = (1.0, 8.0)
    """For how long a client that goes away is away, and is there."""
    wills_s: tuple[float, float] = (1.0, 5.0)
    slow: int = 0
    """Subscribers that read and acknowledge slowly."""
    flood: int = 0
    """Kept clients that a scenario lets come at once."""
    flood_filters: int = 0
    """Filters of each of them, to topics that nobody else uses."""


class WillClient(ChaosClient):
    """One with a will."""

    def __init__(self, recorder: Recorder, dial: Dial, name: str, peer: int) -> None:
        super().__init__(recorder, dial, name, peer, kept=True)
        self.will_topic = f"w/{name}"


class ChaosTraffic:
    """All clients. `start` connects them, `run` publishes, `stop` ends the traffic and brings all clients back."""

    def __init__(self, recorder: Recorder, dial: Dial, peers: int, plan: TrafficPlan, chance: Random) -> None:
        self.plan = plan
        self._recorder = recorder
        self._dial = dial
        self._chance = chance
        self._peers = range(peers)
        self.publishers = [
            self._client(f"pub-{peer}-{number}", peer, kept=True)
            for peer in self._peers
            for number in range(plan.publishers_each)
        ]
        self.live = [self._client(f"live-{peer}", peer) for peer in self._peers]
        self.staying = [self._client(f"stay-{peer}", peer, kept=True) for peer in self._peers]
        self.away = [self._client(f"away-{peer}", peer, kept=True) for peer in self._peers]
        group = [chance.randrange(peers) for _ in range(3)]
        self.group = [self._client(f"group-{number}", peer, kept=True) for number, peer in enumerate(group)]
        self.probes = [self._client(f"probe-{peer}", peer) for peer in self._peers]
        self.wills = [WillClient(recorder, dial, f"will-{peer}", peer) for peer in self._peers]
        self.keeper = self._client("keeper", chance.randrange(peers), kept=True)
        self.slow = [
            self._client(f"slow-{number}", number % peers, kept=number % 2 == 0) for number in range(plan.slow)
        ]
        self.crowd = [self._client(f"crowd-{number}", number % peers, kept=True) for number in range(plan.flood)]
        """They are not started with the others."""
        self.others: list[ChaosClient] = []
        """Clients of a scenario's own."""
        self._probed: dict[int, tuple[ChaosClient, str, float]] = {}
        """Probes by the number of their message: the subscriber, its filter, and when they are given up."""
        self._unpublished: dict[str, tuple[ChaosClient, float]] = {}
        self._probe_count = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._subscribe_all()

    def _client(self, name: str, peer: int, kept: bool = False) -> ChaosClient:
        return ChaosClient(self._recorder, self._dial, name, peer, kept)

    def _subscribe_all(self) -> None:
        names = [self._topic(publisher, number) for publisher in self.publishers for number in range(TOPICS_EACH)]
        for client in self.live:
            client.wanted = [("s/#", 2)]
        for client in self.staying:
            client.wanted = [(f"s/+/{client.peer % TOPICS_EACH}", 1 + client.peer % 2), ("w/#", 2)]
        for client in self.away:
            chosen = self._chance.sample(names, max(1, len(names) // 3))
            client.wanted = [*((name, self._chance.choice((1, 2))) for name in chosen), ("w/#", 1)]
        for client in self.group:
            client.wanted = [("$share/g/s/+/0", 1 + client.peer % 2)]
        for client in self.slow:
            client.wanted = [("s/#", 1)]
            client.acknowledges_after_s = 1.0
        for client in self.crowd:
            client.wanted = [(f"f/{client.name}/{number}", 1) for number in range(self.plan.flood_filters)]
        for client in self.probes:
            client.on_message = self._probe_arrived

    def _topic(self, publisher: ChaosClient, number: int) -> str:
        return f"s/{publisher.name}/{number}"

    @property
    def clients(self) -> list[ChaosClient]:
        parts = (self.publishers, self.live, self.staying, self.away, self.group, self.probes, self.wills, self.slow)
        return [*(client for part in parts for client in part), self.keeper, *self.others]

    @property
    def pending(self) -> int:
        """Publications without an end, of all clients."""
        return sum(client.pending for client in self.clients)

    @property
    def all_ready(self) -> bool:
        return all(client.is_ready for client in self.clients)

    def start(self) -> None:
        for client in self.clients:
            client.come()

    def run(self) -> None:
        """Begin to publish, to probe, and to go away."""
        acts: list[Callable[[], Awaitable[None]]] = [self._publish, self._keep, self._probe]
        self._tasks = [asyncio.ensure_future(act()) for act in acts]
        self._tasks += [asyncio.ensure_future(self._absent(client)) for client in self.away]
        self._tasks += [asyncio.ensure_future(self._leave_wills(client)) for client in self.wills]
        self._tasks += [asyncio.ensure_future(self._read_slowly(client)) for client in self.slow]

    async def stop(self) -> None:
        """Publish no more, and bring all clients back."""
        for task in self._tasks:
            task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self.clients:
            client.come()
            client.read_nothing(paused=False)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self.clients))

    # The acts

    async def _publish(self) -> None:
        chance = self._chance
        due = self._recorder.now
        while True:
            due += chance.expovariate(self.plan.rate_hz)
            await asyncio.sleep(max(0.0, due - self._recorder.now))
            if self._recorder.now - due > 1.0:
                due = self._recorder.now  # the machine was busy: what was not sent in time is not sent at once
            publisher = chance.choice(self.publishers)
            number = chance.randrange(TOPICS_EACH)
            (qos,) = chance.choices(range(3), QOS_WEIGHTS)
            retain = number == TOPICS_EACH - 1 and chance.random() < RETAINED_SHARE
            if publisher.pending < MAX_PENDING:
                publisher.publish(self._topic(publisher, number), qos, retain)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(self.plan.retained_hz))
            topic = f"r/{self._chance.randrange(self.plan.retained_topics)}"
            source = MessageKind.CLEARING if self._chance.random() < CLEARED_SHARE else MessageKind.RETAINED
            qos = self._chance.choice((1, 2))
            if self.keeper.pending < MAX_PENDING:
                self.keeper.publish(topic, qos, retain=True, source=source)

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(self.plan.probes_hz))
            subscriber, publisher = self._chance.sample(self.probes, 2)
            if subscriber.is_open and publisher.is_open:
                self._probe_pair(subscriber, publisher, self._chance.random() < 0.5)
            self._give_up_probes()

    def _probe_pair(self, subscriber: ChaosClient, publisher: ChaosClient, wild: bool) -> None:
        self._probe_count += 1
        topic = f"p/{self._probe_count}/x"
        topic_filter = f"p/{self._probe_count}/+" if wild else topic
        self._unpublished[topic_filter] = (subscriber, self._recorder.now + PROBED_S)

        def publish() -> None:
            message = publisher.publish(topic, 1, source=MessageKind.PROBE)
            if message is not None:
                self._probed[message.number] = (subscriber, topic_filter, self._recorder.now + PROBED_S)
                self._unpublished.pop(topic_filter, None)

        subscriber.subscribe(topic_filter, 1, publish)

    def _probe_arrived(self, number: int) -> None:
        found = self._probed.pop(number, None)
        if found is not None:
            subscriber, topic_filter, _ = found
            subscriber.unsubscribe(topic_filter)

    def _give_up_probes(self) -> None:
        now = self._recorder.now
        for number, (subscriber, topic_filter, until) in list(self._probed.items()):
            if now > until:
                del self._probed[number]
                subscriber.unsubscribe(topic_filter)
        for topic_filter, (subscriber, until) in list(self._unpublished.items()):
            if now > until:
                del self._unpublished[topic_filter]
                subscriber.unsubscribe(topic_filter)

    async def _absent(self, client: ChaosClient) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(*self.plan.absences_s))
            client.drop() if self._chance.random() < 0.5 else client.leave()
            await asyncio.sleep(self._chance.uniform(*self.plan.absences_s))
            client.come()

    async def _leave_wills(self, client: ChaosClient) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(*self.plan.wills_s))
            if client.is_open:
                client.drop() if self._chance.random() < 0.5 else client.leave()
                await asyncio.sleep(self._chance.uniform(*self.plan.wills_s))
            client.come()

    async def _read_slowly(self, client: ChaosClient) -> None:
        while True:
            client.read_nothing(paused=True)
            await asyncio.sleep(self._chance.uniform(2.0, 6.0))
            client.read_nothing(paused=False)
            await asyncio.sleep(self._chance.uniform(0.1, 0.5))
