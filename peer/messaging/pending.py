"""What a publisher has on its hands: messages, the topics they go to, and retained ones on their way to be stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from ringmq.dispatching.algorithms import Choice
from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Record
from ringmq.peer.engines.coordinated.subscriber_lists import Registration
from ringmq.peer.messaging.publication import Publication


class PendingPublication:
    """A message of the clients here, until everybody has it who should."""

    __slots__ = ("at", "done", "matched", "missing", "publication", "undecided")

    def __init__(self, publication: Publication, matched: bool, done: Done | None, at: float) -> None:
        self.publication = publication
        self.matched = matched
        """Whether anybody subscribes to it, here or elsewhere."""
        self.done = done
        self.at = at
        self.missing = 1
        """Who has not got it yet; one more while it is being given out."""
        self.undecided = 0
        """Of Scribe: roots that it has not been sent to yet."""

    def got(self) -> None:
        self.missing -= 1
        if not self.missing and self.done is not None:
            done, self.done = self.done, None
            done(Reason.SUCCESS if self.matched else Reason.NO_MATCHING_SUBSCRIBERS)


class Countdown:
    """Calls once it was counted down."""

    __slots__ = ("_left", "_then")

    def __init__(self, left: int, then: Callable[[], None]) -> None:
        self._left = left
        self._then = then

    def down(self) -> None:
        self._left -= 1
        if not self._left:
            self._then()


class Topic:
    """A topic that is published to from here. `peers` and `groups` are its plan; None until it is made."""

    __slots__ = ("choice", "groups", "lists", "name", "peers", "queue", "quick", "raw", "used_at", "valid_until")

    def __init__(self, name: str, lists: tuple[Registration, ...], choice: Choice, now: float) -> None:
        self.name = name
        self.raw = name.encode()
        self.lists = lists
        self.peers: tuple[Peer, ...] | None = None
        self.groups: tuple[tuple[str, tuple[Peer, ...]], ...] = ()
        self.quick: tuple[Peer, ...] | None = None
        """The same as `peers`, if a message goes to them directly and to nobody else."""
        self.choice = choice
        self.valid_until = -inf
        self.queue: deque[PendingPublication] = deque()
        self.used_at = now


class Store:
    """A retained message on its way to its coordinator."""

    __slots__ = ("lists", "outgoing", "record", "seq", "wait_s")

    def __init__(self, record: Record, lists: tuple[Registration, ...], seq: int, outgoing: PendingPublication) -> None:
        self.record = record
        self.lists = lists
        self.seq = seq
        self.outgoing = outgoing
        self.wait_s = 0.0


def addressed(publication: Publication, plain: bool, shared: tuple[str, ...]) -> Publication:
    one = publication
    return Publication(
        one.boot, one.seq, one.qos, one.topic, one.body, one.retain, one.stamp,
        plain=plain, shared=shared, clears=one.clears, trace=one.trace,
    )  # fmt: skip
