"""The door to the layer above: what a front tells of its clients, and what it waits for.

Plain calls. A front that is all there is has `Standalone` behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message

Done = Callable[[Reason], None]


class Cluster(Protocol):
    """What the layer above is told. Each `done` is to be called once, now or later."""

    @property
    def serves_groups(self) -> bool:
        """Whether the cluster chooses the members of shared subscriptions that get a message. Then the broker delivers
        the messages of its clients to none of them. Constant."""

    @property
    def keeps_retained(self) -> bool:
        """Whether it keeps what clients here retain, and puts into the front what of that is of use here."""

    def published(self, message: Message, receivers_here: int, done: Done | None) -> None:
        """A client published this, and the clients here have it. QoS 1 and 2 are acknowledged by `done`."""

    def published_fast(self, topic: str, payload: bytes, receivers_here: int) -> None:
        """`published` for the fast path: the message has QoS 0 and no properties, and is not retained."""

    def take_over(self, messages: list[Message]) -> bool:
        """These were retained here before anybody kept that elsewhere. Whether they are safe there now.

        Called before any client is served, of who `keeps_retained`.
        """

    def serves(self, topic_filter: str) -> bool:
        """Whether clients can subscribe to a shared filter."""

    def filter_added(self, topic_filter: str, done: Callable[[], None]) -> None:
        """The first subscription of a client here to this filter: SUBACK waits for `done`."""

    def filter_removed(self, topic_filter: str) -> None:
        """The last subscription here to this filter has gone."""


class Standalone:
    """The ports of a front that is all there is."""

    serves_groups = False
    keeps_retained = False

    def published(self, message: Message, receivers_here: int, done: Done | None) -> None:
        if done is not None:
            done(Reason.SUCCESS if receivers_here else Reason.NO_MATCHING_SUBSCRIBERS)

    def published_fast(self, topic: str, payload: bytes, receivers_here: int) -> None: ...

    def take_over(self, messages: list[Message]) -> bool:
        return False

    def serves(self, topic_filter: str) -> bool:
        return True

    def filter_added(self, topic_filter: str, done: Callable[[], None]) -> None:
        done()

    def filter_removed(self, topic_filter: str) -> None: ...
