"""Numbered messages at a steady rate from several publishers, and a check of the deliveries to each receiver.

Owns the times of publications and acknowledgements. The caller places the clients.
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
"""Time between two checks whether a message is due."""
DELIVER_S: Final = 10.0
"""Wait after the last PUBACK for deliveries in flight."""
LINGER_S: Final = 0.4
"""Wait for duplicates after the last delivery."""


@dataclass(slots=True)
class NumberedMessage:
    """One published message."""

    publisher: int
    topic: int
    qos: int
    number: int
    at: float
    answer: asyncio.Future[None] | None = None
    """Done at the PUBACK of a message with QoS 1."""
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


class NumberedTraffic:
    """Publishes from all publishers to all topics in rotation, half of the messages with QoS 1."""

    def __init__(self, publishers: Sequence[Client], topics: Sequence[str], rate_hz: float) -> None:
        self.sent: list[NumberedMessage] = []
        self._publishers = publishers
        self._topics = topics
        self._rate_hz = rate_hz
        self._stopped = False

    async def run(self) -> None:
        """Publish until `stop` is called."""
        start = perf_counter()
        while not self._stopped:
            for _ in range(int((perf_counter() - start) * self._rate_hz) - len(self.sent)):
                self._publish()
            await asyncio.sleep(TICK_S)

    def stop(self) -> None:
        self._stopped = True

    def _publish(self) -> None:
        number, publisher = divmod(len(self.sent), len(self._publishers))
        rotation, topic = divmod(number, len(self._topics))
        self.send(publisher, self._publishers[publisher], topic, rotation % 2)

    def send(self, publisher: int, client: Client, topic: int, qos: int, retain: bool = False) -> NumberedMessage:
        """Publish one message of a publisher, which need not be one of `publishers`."""
        message = NumberedMessage(publisher, topic, qos, len(self.sent), perf_counter())
        if qos:
            message.answer = client.publish_qos1(self._topics[topic], message.payload, retain)
            message.answer.add_done_callback(message.answered)
        else:
            client.publish(self._topics[topic], message.payload, retain)
        self.sent.append(message)
        return message

    async def unacknowledged(self, within_s: float) -> list[NumberedMessage]:
        """Wait for all PUBACKs. Returns the messages without a PUBACK in time."""
        answers = [message.answer for message in self.sent if message.answer is not None]
        if answers:
            await asyncio.wait(answers, timeout=within_s)
        return [message for message in self.sent if message.qos and not message.acknowledged]


class NumberedReceiver(Inbox):
    """A client that must get all messages of some topics from its SUBACK on."""

    def __init__(self, name: str, topics: Iterable[int]) -> None:
        super().__init__()
        self.name = name
        self.arrived: dict[bytes, float] = {}
        """Time of the first arrival of each message."""
        self.overtaken = 0
        """Messages that came after a later message of the same publisher, topic and QoS."""
        self._topics = set(topics)
        self._since: float | None = None
        self._last: dict[bytes, int] = {}

    def __call__(self, message: Publish) -> None:
        super().__call__(message)
        payload = bytes(message.payload)
        self.arrived.setdefault(payload, perf_counter())
        sequence, _, number = payload.rpartition(b" ")
        last = self._last.get(sequence, -1)
        if int(number) < last:
            self.overtaken += 1
        else:
            self._last[sequence] = int(number)

    def subscribed(self) -> None:
        """Note the SUBACK: all messages that are published from now on must come."""
        self._since = perf_counter()

    def expects(self, topic: int) -> bool:
        return topic in self._topics

    def wanted(self, sent: Iterable[NumberedMessage]) -> list[NumberedMessage]:
        """The messages that this receiver must get."""
        since = self._since
        return [
            message for message in sent if self.expects(message.topic) and since is not None and message.at >= since
        ]


async def judge(
    receivers: Sequence[NumberedReceiver], sent: Sequence[NumberedMessage], lossless_0: bool, faults: Faults
) -> int:
    """Count missed and duplicate messages. Returns the number of lost messages with QoS 0 that may be lost.

    A message with QoS 1 that was never acknowledged may be lost; the caller counts it.
    """
    sure = [message for message in sent if (message.acknowledged if message.qos else lossless_0)]
    waits = (
        receiver.until([message.payload for message in receiver.wanted(sure)], DELIVER_S) for receiver in receivers
    )
    await asyncio.gather(*waits)
    await asyncio.sleep(LINGER_S)
    lost = 0
    start = min((message.at for message in sent), default=0.0)
    for receiver in receivers:
        for message in receiver.wanted(sent):
            if message.payload in receiver.times:
                continue
            if not message.qos and not lossless_0:
                lost += 1
            elif not message.qos or message.acknowledged:
                times = ", ".join(f"{at - start:.2f} s" for at in (message.at, message.answered_at) if at is not None)
                faults.add(f"missed with QoS {message.qos}", f"{message} at {times}, to {receiver.name}")
        for payload in receiver.repeated:
            faults.add("twice", f"{payload.decode()!r} came {receiver.times[payload]} times to {receiver.name}")
        if receiver.overtaken:
            faults.add("out of order", f"{receiver.overtaken} messages to {receiver.name}")
    return lost
