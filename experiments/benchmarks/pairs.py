"""Checks that a client of one peer gets each message that is published at any other peer after its SUBACK.

Owns the pairs of peers, their publications and the expected deliveries. Each pair has its own subscriber; one publisher
at each peer is connected all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Final

from ringmq.experiments.load.client import Client, connected_client
from ringmq.experiments.load.raw_clients import Address, BenchError
from ringmq.experiments.load.tally import SAY_EACH, Faults, Inbox, Say, percentile_line, silent
from ringmq.mqtt_front.matching.topics import has_wildcard

KNOWN_TOPICS: Final = 40
"""Topics with repeated publications, so that most peers hold their lists. No peer holds the lists of other topics."""
BEFORE: Final = 2
"""Messages of a pair right before its SUBSCRIBE, which may arrive."""
AFTER: Final = 3
"""Messages of a pair right after its SUBACK, which must arrive."""
ARRIVE_S: Final = 10.0
"""Longest wait for the messages of a pair."""
LINGER_S: Final = 0.4
"""Wait for duplicates after the last arrival: longer than a peer waits before its first retry."""


@dataclass(frozen=True, slots=True)
class PairsMethod:
    pairs: int
    at_once: int
    seed: int


@dataclass(slots=True)
class PairsFigures:
    pairs: int = 0
    subacks_s: dict[str, list[float]] = field(default_factory=dict)
    """Times from SUBSCRIBE to SUBACK, by kind of pair."""
    arrivals_s: list[float] = field(default_factory=list)
    """Times from the SUBACK until all messages that were published after it had arrived."""
    faults: Faults = field(default_factory=lambda: Faults("missed", "twice", "unanswered"))

    def lines(self) -> list[str]:
        shown = [f"{self.pairs} pairs: {self.faults}"]
        shown += [percentile_line(f"SUBACK, {kind}", times) for kind, times in sorted(self.subacks_s.items())]
        return [*shown, percentile_line("SUBACK to last message", self.arrivals_s)]


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
    """Whether messages are also published before the SUBSCRIBE."""

    @property
    def kind(self) -> str:
        age = "known" if "/known/" in self.topic else "new"
        return f"{age} topic, {'wildcard' if has_wildcard(self.filter) else 'exact'}"

    def payloads(self, when: str, count: int) -> list[bytes]:
        return [f"{self.number} {when} {index}".encode() for index in range(count)]

    def __str__(self) -> str:
        return (
            f"pair {self.number}, {self.filter} with QoS {self.qos} at peer {self.subscriber_at + 1}, "
            f"{self.topic} published at peer {self.publisher_at + 1}{', also before' if self.early else ''}"
        )


def draw(number: int, peers: int, seed: int) -> Pair:
    """Draw the pair with this number."""
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
    depth = rng.randrange(len(levels))
    if rng.random() < 0.5:
        return "/".join([*levels[:depth], "#"])
    return "/".join([*levels[:depth], "+", *levels[depth + 1 :]])


async def check(addresses: Sequence[Address], method: PairsMethod, say: Say = silent) -> PairsFigures:
    """Try all pairs. Raises BenchError if a publisher cannot connect."""
    figures = PairsFigures()
    async with AsyncExitStack() as stack:
        publishers = [
            await stack.enter_async_context(connected_client(address, f"pairs-pub-{number}"))
            for number, address in enumerate(addresses)
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


async def _try(pair: Pair, address: Address, publisher: Client, figures: PairsFigures) -> None:
    inbox = Inbox()
    async with connected_client(address, f"pair-{pair.number}", inbox) as client:
        if pair.early:
            _publish(publisher, pair, pair.payloads("before", BEFORE))
        start = perf_counter()
        await client.subscribe_and_wait(pair.filter, qos=pair.qos)
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
            publisher.publish_qos1(pair.topic, payload)
        else:
            publisher.publish(pair.topic, payload)
