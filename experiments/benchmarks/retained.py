"""A message is retained at one peer while clients of other peers subscribe: each gets it once, as retained or as live.

Owns the rounds. In each round several clients subscribe at random moments around the publication of one message.
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

from ringmq.experiments.load.client import Client, connected_client
from ringmq.experiments.load.raw_clients import ANSWER_S, Address, BenchError
from ringmq.experiments.load.tally import SAY_EACH, Faults, Inbox, Say, percentile_line, silent
from ringmq.mqtt_front.codec.packets import Publish

SUBSCRIBERS: Final = 5
"""Subscribers in each round."""
SPREAD_S: Final = 0.02
"""Longest time between the publication and a SUBSCRIBE before or after it: some round trips."""
ARRIVE_S: Final = 10.0
"""Longest wait of a subscriber for the message."""
LINGER_S: Final = 0.4
"""Wait for duplicates after the message: longer than a peer waits before its first retry."""


@dataclass(frozen=True, slots=True)
class RetainedMethod:
    meetings: int
    """Meetings of a message and a subscriber."""
    at_once: int
    """Concurrent rounds."""
    seed: int


@dataclass(slots=True)
class RetainedFigures:
    meetings: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    """Counts of the forms in which a subscriber got the message: retained, live, or several of them in sequence."""
    subacks_s: list[float] = field(default_factory=list)
    pubacks_s: list[float] = field(default_factory=list)
    faults: Faults = field(default_factory=lambda: Faults("missed", "twice", "unanswered"))

    def lines(self) -> list[str]:
        seen = ", ".join(f"{count} {form}" for form, count in sorted(self.forms.items()))
        return [
            f"{self.meetings} meetings: {self.faults}",
            f"seen: {seen}",
            percentile_line("SUBACK", self.subacks_s),
            percentile_line("PUBACK of a retained message", self.pubacks_s),
        ]


class FormInbox(Inbox):
    """An inbox that also records the forms, retained or live, in which one message came."""

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
    """One message and one of its subscribers."""

    round: int
    number: int
    subscriber_at: int
    filter: str
    qos: int
    after_s: float
    """Time from the publication to the SUBSCRIBE; negative if the SUBSCRIBE comes first."""

    def __str__(self) -> str:
        return (
            f"message {self.round} to {self.filter} with QoS {self.qos} at peer {self.subscriber_at + 1}, "
            f"subscribed {self.after_s * 1000:+.1f} ms after the publication"
        )


@dataclass(frozen=True, slots=True)
class Round:
    """One message and all its subscribers."""

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
    """Draw the round with this number."""
    rng = Random(f"{seed} {number}")
    topic = f"retained/{number}/state"
    filters = [topic, topic, f"retained/{number}/#", f"retained/{number}/+", "retained/+/state"]
    meetings = tuple(
        Meeting(
            number,
            subscriber,
            rng.randrange(peers),
            rng.choice(filters),
            rng.randrange(2),
            rng.uniform(-SPREAD_S, SPREAD_S),
        )
        for subscriber in range(SUBSCRIBERS)
    )
    return Round(number, rng.randrange(peers), rng.randrange(2), meetings)


async def check(addresses: Sequence[Address], method: RetainedMethod, say: Say = silent) -> RetainedFigures:
    """Run all rounds. Raises BenchError if a publisher cannot connect."""
    figures = RetainedFigures()
    async with AsyncExitStack() as stack:
        publishers = [
            await stack.enter_async_context(connected_client(address, f"retained-pub-{number}"))
            for number, address in enumerate(addresses)
        ]
        numbers = iter(range(-(-method.meetings // SUBSCRIBERS)))

        async def work() -> None:
            for number in numbers:
                drawn = draw(number, len(addresses), method.seed)
                await _play(drawn, addresses, publishers[drawn.publisher_at], figures)
                if figures.meetings % SAY_EACH < SUBSCRIBERS:
                    say(f"{figures.meetings} meetings: {figures.faults}")

        await asyncio.gather(*(work() for _ in range(method.at_once)))
    return figures


async def _play(drawn: Round, addresses: Sequence[Address], publisher: Client, figures: RetainedFigures) -> None:
    start = perf_counter() + 2 * SPREAD_S  # leaves all subscribers time to connect
    await asyncio.gather(
        _publish(drawn, publisher, start, figures),
        *(_meet(meeting, drawn, addresses[meeting.subscriber_at], start, figures) for meeting in drawn.meetings),
    )
    publisher.publish(drawn.topic, b"", retain=True)


async def _publish(drawn: Round, publisher: Client, at: float, figures: RetainedFigures) -> None:
    await asyncio.sleep(at - perf_counter())
    if not drawn.qos:
        publisher.publish(drawn.topic, drawn.payload, retain=True)
        return
    start = perf_counter()
    try:
        async with asyncio.timeout(ANSWER_S):
            await publisher.publish_qos1(drawn.topic, drawn.payload, retain=True)
        figures.pubacks_s.append(perf_counter() - start)
    except (BenchError, TimeoutError) as error:
        figures.faults.add("unanswered", f"PUBACK of message {drawn.number}: {error}")


async def _meet(
    meeting: Meeting, drawn: Round, address: Address, published_at: float, figures: RetainedFigures
) -> None:
    inbox = FormInbox(drawn.payload)
    figures.meetings += 1
    try:
        async with connected_client(address, f"retained-{meeting.round}-{meeting.number}", inbox) as client:
            await asyncio.sleep(published_at + meeting.after_s - perf_counter())
            start = perf_counter()
            await client.subscribe_and_wait(meeting.filter, qos=meeting.qos)
            figures.subacks_s.append(perf_counter() - start)
            await inbox.until([drawn.payload], ARRIVE_S)
            await asyncio.sleep(LINGER_S)
    except BenchError as error:
        figures.faults.add("unanswered", f"{meeting}: {error}")
        return
    figures.forms[" and ".join(inbox.forms) or "never"] += 1
    if not inbox.forms:
        figures.faults.add("missed", str(meeting))
    # Messages without a payload clear the topics of other rounds; a filter of this round may match several of them.
    for payload in filter(None, inbox.repeated):
        seen = " and ".join(inbox.forms) if payload == drawn.payload else "a message of another round"
        figures.faults.add("twice", f"{seen}: {meeting}")
