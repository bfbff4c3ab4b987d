"""A message is retained at one peer while clients of others subscribe: each sees it once, as retained or as live.

Owns the rounds, in each of which one message meets several subscribers at a moment drawn at random.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Final

from ringmq.experiments.load.client import Client, talking
from ringmq.experiments.load.raw_clients import ANSWER_S, Address, BenchError
from ringmq.experiments.load.tally import SAY_EACH, Faults, Inbox, Say, silent, spread_ms
from ringmq.mqtt_front.codec.packets import Publish

SUBSCRIBERS: Final = 5
"""Of each message."""
SPREAD_S: Final = 0.02
"""They subscribe so long before or after the publication at the most: some round trips."""
ARRIVE_S: Final = 10.0
LINGER_S: Final = 0.4
"""After all have it, for what comes twice. Above a peer's first wait before it sends again."""


@dataclass(frozen=True, slots=True)
class Method:
    meetings: int
    """Of a message and a subscriber."""
    at_once: int
    """Messages."""
    seed: int


@dataclass(slots=True)
class Figures:
    meetings: int = 0
    as_what: Counter[str] = field(default_factory=Counter)
    """How often the message was seen as retained, as live, or as which of both when more than once."""
    subacks_s: list[float] = field(default_factory=list)
    pubacks_s: list[float] = field(default_factory=list)
    faults: Faults = field(default_factory=lambda: Faults("missed", "twice", "unanswered"))

    def lines(self) -> list[str]:
        seen = ", ".join(f"{count} {what}" for what, count in sorted(self.as_what.items()))
        return [
            f"{self.meetings} meetings: {self.faults}",
            f"seen: {seen}",
            spread_ms("SUBACK", self.subacks_s),
            spread_ms("PUBACK of a retained message", self.pubacks_s),
        ]


class Looks(Inbox):
    """An inbox that notes of its own message in which form it came."""

    def __init__(self, payload: bytes) -> None:
        super().__init__()
        self.forms: list[str] = []
        self._payload = payload

    def __call__(self, message: Publish) -> None:
        if message.payload == self._payload:
            self.forms.append("retained" if message.retain else "live")
        super().__call__(message)


@dataclass(frozen=True, slots=True)
class Meeting:
    """One message, and one of those who are to see it."""

    round: int
    number: int
    subscriber_at: int
    filter: str
    qos: int
    after_s: float
    """From the publication to the SUBSCRIBE; it may be negative."""

    def __str__(self) -> str:
        return (
            f"message {self.round} to {self.filter} with QoS {self.qos} at peer {self.subscriber_at + 1}, "
            f"subscribed {self.after_s * 1000:+.1f} ms after the publication"
        )


@dataclass(frozen=True, slots=True)
class Round:
    """One message and all who are to see it."""

    number: int
    publisher_at: int
    qos: int
    meetings: tuple[Meeting, ...]

    @property
    def topic(self) -> str:
        return f"retained/{self.number}/state"

    @property
    def payload(self) -> bytes:
        return f"{self.number}".encode()


def draw(number: int, peers: int, seed: int) -> Round:
    """A round of its own for each number."""
    rng = Random(f"{seed} {number}")
    topic = f"retained/{number}/state"
    filters = [topic, topic, f"retained/{number}/#", f"retained/{number}/+", "retained/+/state"]
    meetings = tuple(
        Meeting(
            number, one, rng.randrange(peers), rng.choice(filters), rng.randrange(2), rng.uniform(-SPREAD_S, SPREAD_S)
        )
        for one in range(SUBSCRIBERS)
    )
    return Round(number, rng.randrange(peers), rng.randrange(2), meetings)


async def check(addresses: Sequence[Address], method: Method, say: Say = silent) -> Figures:
    """Raises BenchError when a publisher cannot be connected."""
    figures = Figures()
    async with AsyncExitStack() as stack:
        publishers = [
            await stack.enter_async_context(talking(one, f"retained-pub-{number}"))
            for number, one in enumerate(addresses)
        ]
        numbers = iter(range(-(-method.meetings // SUBSCRIBERS)))

        async def work() -> None:
            for number in numbers:
                one = draw(number, len(addresses), method.seed)
                await _round(one, addresses, publishers[one.publisher_at], figures)
                if figures.meetings % SAY_EACH < SUBSCRIBERS:
                    say(f"{figures.meetings} meetings: {figures.faults}")

        await asyncio.gather(*(work() for _ in range(method.at_once)))
    return figures


async def _round(one: Round, addresses: Sequence[Address], publisher: Client, figures: Figures) -> None:
    start = perf_counter() + 2 * SPREAD_S  # everybody is connected by then
    await asyncio.gather(
        _publish(one, publisher, start, figures),
        *(_meet(meeting, one, addresses[meeting.subscriber_at], start, figures) for meeting in one.meetings),
    )
    publisher.publish(one.topic, b"", retain=True)


async def _publish(one: Round, publisher: Client, at: float, figures: Figures) -> None:
    await asyncio.sleep(at - perf_counter())
    if not one.qos:
        publisher.publish(one.topic, one.payload, retain=True)
        return
    start = perf_counter()
    try:
        async with asyncio.timeout(ANSWER_S):
            await publisher.publish_1(one.topic, one.payload, retain=True)
        figures.pubacks_s.append(perf_counter() - start)
    except (BenchError, TimeoutError) as error:
        figures.faults.add("unanswered", f"PUBACK of message {one.number}: {error}")


async def _meet(meeting: Meeting, one: Round, address: Address, published_at: float, figures: Figures) -> None:
    looks = Looks(one.payload)
    figures.meetings += 1
    try:
        async with talking(address, f"retained-{meeting.round}-{meeting.number}", looks) as client:
            await asyncio.sleep(published_at + meeting.after_s - perf_counter())
            start = perf_counter()
            await client.subscribed(meeting.filter, qos=meeting.qos)
            figures.subacks_s.append(perf_counter() - start)
            await looks.until([one.payload], ARRIVE_S)
            await asyncio.sleep(LINGER_S)
    except BenchError as error:
        figures.faults.add("unanswered", f"{meeting}: {error}")
        return
    figures.as_what[" and ".join(looks.forms) or "never"] += 1
    if not looks.forms:
        figures.faults.add("missed", str(meeting))
    for payload in filter(None, looks.repeated):  # those without a payload clear the topics of other rounds
        seen = " and ".join(looks.forms) if payload == one.payload else "that of another round"
        figures.faults.add("twice", f"{seen}: {meeting}")
