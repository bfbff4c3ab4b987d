"""Messages and bytes between peers for one event: a new topic, a subscription, a request, a retained message.

Each event happens in a ring in which every peer has one filter and has published to its topics. Its cost is the
difference to the same run without the event, over the same time.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from random import Random
from typing import Final

from ringmq.experiments.scenarios.building import Progress, settled_ring, silent
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.counted import CountedNode, CountedWorld, MessageCount
from ringmq.experiments.simulator.network import DELAYS_S, Weather
from ringmq.overlay.core.timing import PRESETS as TIMINGS
from ringmq.peer.engines.partitioned.subscribing.fresh_parents import FRESH
from ringmq.peer.messaging.config import PRESETS

BODY: Final = b"x" * 32
WARM_UP_S: Final = 1.0
PUBLISHING_S: Final = 4.0
"""The time in which all peers publish to their topics once."""
SETTLE_S: Final = 3.0
AGAIN_S: Final = 25.0
"""Time between two messages to a topic: longer than lists without messages are kept."""
REST_S: Final = 30.0
"""Time without any message before the upkeep is measured."""
UPKEEP_S: Final = 10.0
EARLIER_REQUESTS: Final = FRESH + 4
TIMING: Final = "lan"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCost:
    """The mean cost of one event. The upkeep is per second and pair of peers."""

    event: str
    messages: float
    payloads: float
    """Messages of one iteration to one peer share a payload."""
    bytes: float


class Scene:
    """A ring at work, and one event in it. The seed chooses peers and names."""

    def __init__(self, world: CountedWorld, seed: str) -> None:
        self._world = world
        random = Random(f"costs {seed}")
        self._asker, self._other = random.sample(world.members(), 2)
        self._name = f"{random.getrandbits(48):x}"
        self._requests = 0

    def publish(self) -> None:
        self._world.publish_body(self._asker, f"dev/{self._name}/t", BODY)

    def retain(self) -> None:
        self._world.publish_body(self._asker, f"dev/{self._name}/t", BODY, retain=True)

    def subscribe(self) -> None:
        self._world.subscribe_and_wait(self._asker, f"cmd/{self._name}")

    def subscribe_below(self) -> None:
        self._world.subscribe_and_wait(self._asker, f"dev/{self._name}/#")

    def unsubscribe(self) -> None:
        self._world.end_subscription(self._asker, f"cmd/{self._name}")

    def request(self) -> None:
        """Subscribe to a fresh topic for the reply, send the request with it, and unsubscribe after the reply."""
        world, asker, other = self._world, self._asker, self._other
        self._requests += 1
        reply = f"reply/{self._name}/{self._requests}"
        world.subscribe_and_wait(asker, reply)
        world.publish_and_wait(asker, filter_of(other), BODY, other)
        world.publish_and_wait(other, reply, BODY, asker)
        world.end_subscription(asker, reply)

    def requests(self) -> None:
        """So many that further ones are served by a wide filter."""
        for _ in range(EARLIER_REQUESTS):
            self.request()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`act` is measured for `span_s`, and happens `wait_s` after `prepare`."""

    name: str
    act: Callable[[Scene], None]
    prepare: Callable[[Scene], None] | None = None
    wait_s: float = 0.0
    span_s: float = 1.5


EVENTS: Final = (
    Event(name="first message to a topic", act=Scene.publish),
    Event(name=f"the same after {AGAIN_S:g} s", act=Scene.publish, prepare=Scene.publish, wait_s=AGAIN_S),
    Event(name="subscribe to a topic", act=Scene.subscribe),
    Event(name="subscribe with a wildcard", act=Scene.subscribe_below),
    Event(name="unsubscribe", act=Scene.unsubscribe, prepare=Scene.subscribe, wait_s=SETTLE_S),
    Event(name="request with a fresh reply topic", act=Scene.request, span_s=3.0),
    Event(
        name=f"the same after {EARLIER_REQUESTS} requests",
        act=Scene.request,
        prepare=Scene.requests,
        wait_s=SETTLE_S,
        span_s=3.0,
    ),
    Event(name="first retained message of a topic", act=Scene.retain),
)
UPKEEP: Final = "upkeep per pair and second"


def filter_of(node: CountedNode) -> str:
    """The filter that each peer has from the beginning."""
    return f"cmd/{node.number}"


def costs(
    nodes: int, seed: int, topics: int = 20, count: int = 5, progress: Progress = silent, only: str = ""
) -> list[EventCost]:
    """The cost of each event, as the mean of `count` events. Each peer has published to `topics` topics before. With
    `only`, of the events whose name contains it: a large ring takes minutes for each.

    Raises InvariantBrokenError if an operation does not end.
    """
    weather = Weather(delay_s=DELAYS_S[TIMING])
    world = CountedWorld(seed, TIMINGS[TIMING], weather, config=PRESETS[TIMING])
    settled_ring(world, nodes)
    _begin(world, topics)
    rows = []
    at_rest: dict[float, MessageCount] = {}
    events = [event for event in EVENTS if only in event.name]
    for number, event in enumerate(events):
        total = MessageCount()
        for trial in range(count):
            cost = _cost_of(world, event, f"{seed} {trial}", at_rest)
            total = MessageCount(
                total.messages + cost.messages, total.size_bytes + cost.size_bytes, total.payloads + cost.payloads
            )
        rows.append(_mean(event.name, total, count))
        progress((number + 1) / (len(events) + 1))
    if only in UPKEEP:
        rows.append(_upkeep(world, nodes))
    return rows


def _begin(world: CountedWorld, topics: int) -> None:
    world.run(world.now + WARM_UP_S)
    members = world.members()
    for node in members:
        world.subscribe_and_wait(node, filter_of(node))
    # Peers take over their partitions when somebody first needs them, and this filter needs all. It matches nothing.
    world.subscribe_and_wait(members[0], "wake/+")
    began_at, total = world.now, topics * len(members)
    for number in range(total):
        world.run(began_at + PUBLISHING_S * number / total)
        node = members[number % len(members)]
        world.publish_body(node, f"dev/{node.number}-{number // len(members)}/t", BODY)
    world.run(began_at + PUBLISHING_S + SETTLE_S)


def _cost_of(world: CountedWorld, event: Event, seed: str, at_rest: dict[float, MessageCount]) -> MessageCount:
    """`at_rest` has the traffic of some spans without any event, which are the same for all events."""
    with_event, without = (partial(_run_event, world, event, seed, acts) for acts in (True, False))
    cost = in_a_copy(with_event)
    if event.prepare is not None:
        return cost - in_a_copy(without)
    if event.span_s not in at_rest:
        at_rest[event.span_s] = in_a_copy(without)
    return cost - at_rest[event.span_s]


def _run_event(world: CountedWorld, event: Event, seed: str, acts: bool) -> MessageCount:
    scene = Scene(world, seed)
    if event.prepare is not None:
        event.prepare(scene)
        world.run(world.now + event.wait_s)
    before, until = world.counted(), world.now + event.span_s
    if acts:
        event.act(scene)
    if world.now > until:
        raise InvariantBrokenError(f"{event.name}: it took more than {event.span_s:g} s")
    world.run(until)
    return world.counted() - before


def _upkeep(world: CountedWorld, nodes: int) -> EventCost:
    world.run(world.now + REST_S)
    before = world.counted()
    world.run(world.now + UPKEEP_S)
    cost, pair_seconds = world.counted() - before, UPKEEP_S * nodes * (nodes - 1) / 2
    return _mean(UPKEEP, cost, pair_seconds)


def _mean(event: str, total: MessageCount, number: float) -> EventCost:
    return EventCost(
        event=event, messages=total.messages / number, payloads=total.payloads / number,
        bytes=total.size_bytes / number,
    )  # fmt: skip


def in_a_copy(run: Callable[[], MessageCount]) -> MessageCount:
    """Run in a copy of this process, which ends then: the world of the caller stays as it is."""
    # A world cannot be copied within a process: its events hold bound methods and closures.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_and_send, args=(run, sender))
    process.start()
    sender.close()
    try:
        answer = receiver.recv()
    except EOFError:
        answer = "the copy of the process has ended without an answer"
    process.join()
    if isinstance(answer, str):
        raise InvariantBrokenError(answer)
    assert isinstance(answer, MessageCount), "nothing else is sent"
    return answer


def _run_and_send(run: Callable[[], MessageCount], sender: Connection) -> None:
    try:
        sender.send(run())
    except AssertionError as broken:
        sender.send(str(broken))


def table(rows: list[EventCost]) -> Iterator[str]:
    """Lines of a table."""
    width = max(len("event"), *(len(row.event) for row in rows))
    yield f"{'event'.ljust(width)}  {'messages':>9}  {'payloads':>9}  {'bytes':>9}"
    for row in rows:
        yield f"{row.event.ljust(width)}  {row.messages:>9.2f}  {row.payloads:>9.2f}  {row.bytes:>9.0f}"
