"""The recorder of a run: gives messages their numbers and notes everything in the history, with its time.

Knows neither sockets nor peers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ringmq.experiments.chaos.history import (
    Attachment,
    Entry,
    FaultKind,
    GotMessage,
    History,
    Incident,
    Injected,
    MessageKind,
    RetainedCopy,
    SentMessage,
)
from ringmq.experiments.chaos.promises import Promise
from ringmq.mqtt_front.client.events import Arrived

Clock = Callable[[], float]


class Recorder:
    """One per run. Times are seconds since its start."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.history = History()
        self._clock = clock
        self._origin = clock()
        self._last = 0

    @property
    def now(self) -> float:
        return self._clock() - self._origin

    def next_number(self) -> int:
        """Numbers start at 1, in the order of publication; wills take theirs with the CONNECT."""
        self._last += 1
        return self._last

    def sent(
        self, client: str, peer: int, message: tuple[str, int, bool], source: MessageKind, number: int = 0
    ) -> SentMessage:
        """A message (topic, QoS and retain flag) is being published."""
        topic, qos, retain = message
        number = number or self.next_number()
        noted = SentMessage(number, client, peer, topic, qos, retain, self.now, source)
        self.history.messages[number] = noted
        return noted

    def got(self, client: str, message: Arrived) -> int:
        """A message arrived. Returns its number; 0 for a clearing of a retained message."""
        text = message.payload.partition(b" ")[0]
        number = int(text) if text.isdigit() else 0
        self.history.deliveries.append(
            GotMessage(client, number, message.topic, self.now, message.qos, message.retain, message.dup)
        )
        return number

    def asked(self, client: str, peer: int, topic_filter: str, qos: int, kept: bool) -> Entry:
        """A SUBSCRIBE is being sent."""
        entry = Entry(client, peer, topic_filter, qos, kept, self.now)
        self.history.entries.append(entry)
        return entry

    def attached(self, client: str, peer: int, kept: bool, present: bool, returning: bool) -> Attachment:
        attachment = Attachment(client, peer, kept, self.now, present, returning)
        self.history.attachments.append(attachment)
        return attachment

    def injected(
        self, kind: FaultKind, peers: Iterable[int] = (), pairs: Iterable[tuple[int, int]] = (), text: str = ""
    ) -> Injected:
        """A fault begins."""
        fault = Injected(kind, self.now, tuple(peers), tuple(pairs), text)
        self.history.faults.append(fault)
        return fault

    def incident(self, promise: Promise, text: str) -> None:
        self.history.incidents.append(Incident(self.now, text, promise.name))

    def retained(self, peer: int, topic: str, number: int) -> None:
        self.history.retained.append(RetainedCopy(peer, topic, number))
