"""Retained messages that a session received live while its replay was still running: the replay leaves them out.

Owns the notes between a SUBSCRIBE and the end of its replay. The client receives each message once: as it is published,
or after the SUBACK.
"""

from __future__ import annotations

from math import inf
from typing import Final

from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.retained import Retained

MOST_TOPICS: Final = 10_000
"""Some 3 MB. A message to a further topic is not noted, and may come twice."""


class GivenLive:
    """Notes of one session. Read `mark` before a filter is put into force; `has` asks for messages noted after it."""

    __slots__ = ("_by_topic", "_bytes", "_most_bytes", "_retained", "mark")

    def __init__(self, retained: Retained, most_bytes: int) -> None:
        """`most_bytes` of payloads are held on to; a message beyond may come twice."""
        self._retained = retained
        self._most_bytes = most_bytes
        self._bytes = 0
        self._by_topic: dict[str, list[tuple[int, Message]]] = {}
        """The last message of each topic, and before it the retained message: with two publishers, an older message may
        come after a newer one, which then stays the retained message."""
        self.mark = 0
        """The number of notes so far."""

    def note(self, message: Message) -> None:
        """The session was given this retained message as it was published."""
        size = len(message.payload)
        noted = self._by_topic.get(message.topic, [])
        full = len(self._by_topic) >= MOST_TOPICS and not noted
        # A message without a payload clears its topic and is not retained [MQTT-3.3.1-7], so no replay could repeat it.
        if not size or full or self._bytes + size > self._most_bytes:
            return
        kept = self._retained.get(message.topic, -inf)
        self.mark += 1
        still = [note for note in noted if note[1] is kept]
        self._bytes += size - sum(len(old.payload) for _, old in noted) + sum(len(old.payload) for _, old in still)
        self._by_topic[message.topic] = [*still, (self.mark, message)]

    def has(self, message: Message, mark: int) -> bool:
        """Whether the session received this very message live, after that mark."""
        return any(old is message and at > mark for at, old in self._by_topic.get(message.topic, ()))
