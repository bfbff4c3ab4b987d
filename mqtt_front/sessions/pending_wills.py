"""Wills with QoS 1 and 2 on their way: a will is kept until all its receivers have it, and delivered once with QoS 2.

A client that has gone repeats nothing, so its server does: a will that was on its way when the process ended is
published again at the next start, with the same token, and so is one that the cluster could not deliver. The server of
a receiver remembers the tokens of wills with QoS 2 that it has delivered. Knows no sessions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Final

from ringmq.mqtt_front.cluster import UNDELIVERED, Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.iteration import Clock
from ringmq.mqtt_front.message import Message, WillMessage
from ringmq.mqtt_front.sessions.journal import Journal

TOKEN_BYTES: Final = 16
RETRY_S: Final = 10.0
"""The pause before a will is published again that the cluster could not deliver."""
RETRIED_S: Final = 3600.0
"""A will that the cluster cannot deliver for so long is given up."""
MOST_DELIVERED: Final = 10_000
"""Tokens that are remembered, of 16 bytes each. A will comes again when its peer is back, which few others precede."""


class PendingWills:
    """One per broker."""

    __slots__ = ("_delivered", "_failed", "_made", "new_token", "on_settled", "pending")

    def __init__(self) -> None:
        self.pending: dict[bytes, float] = {}
        """Tokens of the wills that have not reached all receivers, and since when."""
        self._failed: deque[tuple[float, WillMessage]] = deque()
        """Wills that the cluster could not deliver, and when each is published again."""
        self.on_settled: Callable[[], None] = _nothing
        """Called when no will is pending any more."""
        self.new_token: Callable[[], bytes] = self._count
        """The shell sets one that makes tokens which nobody else makes."""
        self._made = 0
        self._delivered: dict[bytes, None] = {}

    def _count(self) -> bytes:
        self._made += 1
        return self._made.to_bytes(TOKEN_BYTES, "big")

    def begin(self, message: Message, clock: Clock, journal: Journal) -> tuple[WillMessage, Done]:
        """A will is published: publish the result instead, with this `done`."""
        will = WillMessage(
            message.topic, message.payload, message.qos, message.retain, message.properties, message.expires_at,
            message.origin, self.new_token(),
        )  # fmt: skip
        journal.will_begins(will)
        return will, self.again(will, clock, journal)

    def again(self, will: WillMessage, clock: Clock, journal: Journal) -> Done:
        """A will of an earlier process, or one that could not be delivered, is published again, with the result as its
        `done`."""
        self.pending.setdefault(will.token, clock.now)
        return partial(self._settled, will, clock, journal)

    def _settled(self, will: WillMessage, clock: Clock, journal: Journal, reason: Reason) -> None:
        """Everybody has it. Or the ring has refused it, as it is full: then it has no room later either."""
        if reason is UNDELIVERED and clock.now < self.pending.get(will.token, -inf) + RETRIED_S:
            self._failed.append((clock.now + RETRY_S, will))
        else:
            self.drop(will, journal)

    def drop(self, will: WillMessage, journal: Journal) -> None:
        """Nothing is to be done for it any more."""
        self.pending.pop(will.token, None)
        journal.will_ended(will.token)
        if not self.pending:
            self.on_settled()

    @property
    def again_at(self) -> float:
        """When the next will is to be published again."""
        return self._failed[0][0] if self._failed else inf

    def failed(self, now: float) -> Iterator[WillMessage]:
        """The wills that are to be published again by now."""
        while self._failed and self._failed[0][0] <= now:
            yield self._failed.popleft()[1]

    def restore(self, tokens: list[bytes]) -> None:
        """The tokens of wills that were delivered, the oldest first."""
        self._delivered = dict.fromkeys(tokens)

    def is_repeated(self, message: Message, journal: Journal) -> bool:
        """Whether a message of another peer is a will with QoS 2 that was delivered here. If not, it is noted as one:
        deliver it before the next commit.
        """
        if message.qos != 2 or not isinstance(message, WillMessage):
            return False
        token, delivered = message.token, self._delivered
        if token in delivered:
            return True
        delivered[token] = None
        journal.will_delivered(token)
        if len(delivered) > MOST_DELIVERED:
            oldest = next(iter(delivered))
            del delivered[oldest]
            journal.will_forgotten(oldest)
        return False


def _nothing() -> None:
    pass
