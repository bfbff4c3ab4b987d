"""Numbered messages at a steady rate from several publishers, and whether each receiver has what it was to get.

Owns what was sent when and what was acknowledged. Who is where is the caller's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from ringmq.experiments.load.client import Client
from ringmq.experiments.load.tally import Faults, Inbox
from ringmq.mqtt_front.codec.packets import Publish

TICK_S: Final = 0.005
"""Between two looks whether something is to be published."""
DELIVER_S: Final = 10.0
"""After the last PUBACK, for what is still on its way."""
LINGER_S: Final = 0.4
"""After all has come, for what comes twice."""


@dataclass(slots=True)
class Sent:
    """One message."""

    publisher: int
    topic: int
    qos: int
    number: int
    at: float
    answer: asyncio.Future[None] | None = None
    """The PUBACK, with QoS 1."""
    answered_at: float | None = None

    @property
    def payload(self) -> bytes:
        return f"{self.publisher} {self.topic} {self.qos} {self.number}".encode()

    def answered(self, answer: asyncio.Future[None]) -> None:
        self.answered_at = perf_counter()

    @property
    def acknowledged(self) -> bool:
        return self.answer is not None and self.answer.done() and not self.answer.exception()

    def __str__(self) -> str:
        return f"message {self.number} of publisher {self.publisher} to topic {self.topic} with QoS {self.qos}"


class Traffic:
    """Publishes to all topics in turn, from all publishers, half of it with each QoS."""

    def __init__(self, publishers: Sequence[Client], topics: Sequence[str], rate_hz: float) -> None:
        self.sent: list[Sent] = []
        self._publishers = publishers
        self._topics = topics
        self._rate_hz = rate_hz
        self._stopped = False

    async def run(self) -> None:
        """Until `stop`."""
        start = perf_counter()
        while not self._stopped:
            for _ in range(int((perf_counter() - start) * self._rate_hz) - len(self.sent)):
                self._publish()
            await asyncio.sleep(TICK_S)

    def stop(self) -> None:
        self._stopped = True

    def _publish(self) -> None:
        number, publisher = divmod(len(self.sent), len(self._publishers))
        turn, topic = divmod(number, len(self._topics))
        self.send(publisher, self._publishers[publisher], topic, turn % 2)

    def send(self, publisher: int, client: Client, topic: int, qos: int) -> Sent:
        """One message of a publisher, of ours or another."""
        one = Sent(publisher, topic, qos, len(self.sent), perf_counter())
        if qos:
            one.answer = client.publish_1(self._topics[topic], one.payload)
            one.answer.add_done_callback(one.answered)
        else:
            client.publish(self._topics[topic], one.payload)
        self.sent.append(one)
        return one

    async def unacknowledged(self, within_s: float) -> list[Sent]:
        """Wait for all PUBACKs; returns the messages whose did not come in time."""
        answers = [one.answer for one in self.sent if one.answer is not None]
        if answers:
            await asyncio.wait(answers, timeout=within_s)
        return [one for one in self.sent if one.qos and not one.acknowledged]


class Receiver(Inbox):
    """A client that is to get all messages of some topics, from some time on."""

    def __init__(self, name: str, topics: Iterable[int]) -> None:
        super().__init__()
        self.name = name
        self.arrived: dict[bytes, float] = {}
        """When each message came first."""
        self.overtaken = 0
        """Messages that came after a later one of the same publisher, topic and QoS."""
        self._topics = set(topics)
        self._since: float | None = None
        self._last: dict[bytes, int] = {}

    def __call__(self, message: Publish) -> None:
        super().__call__(message)
        payload = bytes(message.payload)
        self.arrived.setdefault(payload, perf_counter())
        line, _, number = payload.rpartition(b" ")
        last = self._last.get(line, -1)
        if int(number) < last:
            self.overtaken += 1
        else:
            self._last[line] = int(number)

    def subscribed(self) -> None:
        """The SUBACK has come: what is published from now on is to come."""
        self._since = perf_counter()

    def hears(self, topic: int) -> bool:
        return topic in self._topics

    def wanted(self, sent: Iterable[Sent]) -> list[Sent]:
        since = self._since
        return [one for one in sent if self.hears(one.topic) and since is not None and one.at >= since]


async def judge(receivers: Sequence[Receiver], sent: Sequence[Sent], lossless_0: bool, faults: Faults) -> int:
    """Count what was missed and what came twice; returns how many messages with QoS 0 were lost where they may be.

    What was published with QoS 1 and never acknowledged may be lost; it counts on its own.
    """
    sure = [one for one in sent if (one.acknowledged if one.qos else lossless_0)]
    waits = (receiver.until([one.payload for one in receiver.wanted(sure)], DELIVER_S) for receiver in receivers)
    await asyncio.gather(*waits)
    await asyncio.sleep(LINGER_S)
    lost = 0
    start = min((one.at for one in sent), default=0.0)
    for receiver in receivers:
        for one in receiver.wanted(sent):
            if one.payload in receiver.times:
                continue
            if not one.qos and not lossless_0:
                lost += 1
            elif not one.qos or one.acknowledged:
                times = ", ".join(f"{at - start:.2f} s" for at in (one.at, one.answered_at) if at is not None)
                faults.add(f"missed with QoS {one.qos}", f"{one} at {times}, to {receiver.name}")
        for payload in receiver.repeated:
            faults.add("twice", f"{payload.decode()!r} came {receiver.times[payload]} times to {receiver.name}")
        if receiver.overtaken:
            faults.add("out of order", f"{receiver.overtaken} messages to {receiver.name}")
    return lost
