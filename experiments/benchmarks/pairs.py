"""From the moment its SUBACK has come, a client of one peer gets what is published at any other: many times over.

Owns the pairs of peers, what is published and what was to come. Each pair has a subscriber of its own; the publishers
are connected all the time, one at each peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Final

from ringmq.experiments.load.client import Client, talking
from ringmq.experiments.load.raw_clients import Address, BenchError
from ringmq.experiments.load.tally import SAY_EACH, Faults, Inbox, Say, silent, spread_ms
from ringmq.mqtt_front.matching.topics import has_wildcard

KNOWN_TOPICS: Final = 40
"""Published to all the time, so that most peers hold their lists. All others are new to everybody."""
BEFORE: Final = 2
AFTER: Final = 3
"""Messages of each pair, right before its SUBSCRIBE and right after its SUBACK. The first may come, the second must."""
ARRIVE_S: Final = 10.0
LINGER_S: Final = 0.4
"""After all has come, for what comes twice. Above a peer's first wait before it sends again."""


@dataclass(frozen=True, slots=True)
class Method:
    pairs: int
    at_once: int
    seed: int


@dataclass(slots=True)
class Figures:
    pairs: int = 0
    subacks_s: dict[str, list[float]] = field(default_factory=dict)
    """By what was subscribed to."""
    arrivals_s: list[float] = field(default_factory=list)
    """From the SUBACK until all that was published after it had come."""
    faults: Faults = field(default_factory=lambda: Faults("missed", "twice", "unanswered"))

    def lines(self) -> list[str]:
        shown = [f"{self.pairs} pairs: {self.faults}"]
        shown += [spread_ms(f"SUBACK, {kind}", times) for kind, times in sorted(self.subacks_s.items())]
        return [*shown, spread_ms("SUBACK to last message", self.arrivals_s)]


@dataclass(frozen=True, slots=True)
class Pair:
    """A subscriber at one peer, a publisher at another."""

    number: int
    subscriber_at: int
    publisher_at: int
    topic: str
    filter: str
    qos: int
    early: bool
    """Whether something is published before the SUBSCRIBE."""

    @property
    def kind(self) -> str:
        age = "known" if "/known/" in self.topic else "new"
        return f"{age} topic, {'wildcard' if has_wildcard(self.filter) else 'exact'}"

    def payloads(self, when: str, count: int) -> list[bytes]:
        return [f"{self.number} {when} {one}".encode() for one in range(count)]

    def __str__(self) -> str:
        return (
            f"pair {self.number}, {self.filter} with QoS {self.qos} at peer {self.subscriber_at + 1}, "
            f"{self.topic} published at peer {self.publisher_at + 1}{', before too' if self.early else ''}"
        )


def draw(number: int, peers: int, seed: int) -> Pair:
    """A pair of its own for each number."""
    rng = Random(f"{seed} {number}")
    subscriber_at, publisher_at = rng.sample(range(peers), 2)
    middle = f"known/{rng.randrange(KNOWN_TOPICS)}" if rng.random() < 0.5 else f"new/{number}"
    topic = f"pairs/{middle}/state"
    return Pair(number, subscriber_at, publisher_at, topic, _filter(rng, topic), rng.randrange(2), rng.random() < 0.5)


def _filter(rng: Random, topic: str) -> str:
    """The topic itself, or a filter with wildcards that matches it."""
    if rng.random() < 0.5:
        return topic
    levels = topic.split("/")
    place = rng.randrange(len(levels))
    if rng.random() < 0.5:
        return "/".join([*levels[:place], "#"])
    return "/".join([*levels[:place], "+", *levels[place + 1 :]])


async def check(addresses: Sequence[Address], method: Method, say: Say = silent) -> Figures:
    """Raises BenchError when a publisher cannot be connected."""
    figures = Figures()
    async with AsyncExitStack() as stack:
        publishers = [
            await stack.enter_async_context(talking(one, f"pairs-pub-{number}")) for number, one in enumerate(addresses)
        ]
        numbers = iter(range(method.pairs))

        async def work() -> None:
            for number in numbers:
                pair = draw(number, len(addresses), method.seed)
                figures.pairs += 1
                if figures.pairs % SAY_EACH == 0:
                    say(f"{figures.pairs} pairs: {figures.faults}")
                try:
                    await _try(pair, addresses[pair.subscriber_at], publishers[pair.publisher_at], figures)
                except BenchError as error:
                    figures.faults.add("unanswered", f"{pair}: {error}")

        await asyncio.gather(*(work() for _ in range(method.at_once)))
    return figures


async def _try(pair: Pair, address: Address, publisher: Client, figures: Figures) -> None:
    inbox = Inbox()
    async with talking(address, f"pair-{pair.number}", inbox) as client:
        if pair.early:
            _publish(publisher, pair, pair.payloads("before", BEFORE))
        start = perf_counter()
        await client.subscribed(pair.filter, qos=pair.qos)
        wanted = pair.payloads("after", AFTER)
        _publish(publisher, pair, wanted)
        acknowledged = perf_counter()
        figures.subacks_s.setdefault(pair.kind, []).append(acknowledged - start)
        missing = await inbox.until(wanted, ARRIVE_S)
        figures.arrivals_s.append(perf_counter() - acknowledged)
        for payload in sorted(missing):
            figures.faults.add("missed", f"{payload.decode()!r} of {pair}")
        await asyncio.sleep(LINGER_S)
    for payload in inbox.repeated:
        figures.faults.add("twice", f"{payload.decode()!r} came {inbox.times[payload]} times to {pair}")


def _publish(publisher: Client, pair: Pair, payloads: Sequence[bytes]) -> None:
    for payload in payloads:
        if pair.qos:
            publisher.publish_1(pair.topic, payload)
        else:
            publisher.publish(pair.topic, payload)
