"""The door behind which a front's state outlives its process: what is told of each change, and when it is committed.

Told of a change before a client is told of its success; committed at the end of the turn, before anything is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from ringmq.mqtt_front.codec.packets import Subscription
    from ringmq.mqtt_front.message import Message
    from ringmq.mqtt_front.sessions.queue import Delivery
    from ringmq.mqtt_front.sessions.session import Session


class Journal(Protocol):
    """Is told of the sessions that outlive their connections, and of no others."""

    @property
    def pending(self) -> bool:
        """Whether there is something to commit."""

    def session(self, session: Session) -> None:
        """It is there, and these are its expiry, user and will."""

    def ended(self, session: Session) -> None:
        """It is no more, nor is anything that belongs to it."""

    def subscribed(self, session: Session, subscription: Subscription, identifier: int | None) -> None: ...
    def unsubscribed(self, session: Session, topic_filter: str) -> None: ...
    def queued(self, session: Session, delivery: Delivery) -> None: ...
    def sent(self, session: Session, delivery: Delivery) -> None: ...
    def received(self, session: Session, delivery: Delivery) -> None: ...
    def done(self, session: Session, delivery: Delivery) -> None: ...
    def incoming(self, session: Session, packet_id: int, known: bool) -> None:
        """A QoS 2 message of the client got where it should; or the client has released its identifier."""

    def retained(self, message: Message) -> None:
        """It is the retained message of its topic now; with an empty payload there is none any more."""

    def unretained(self, topic: str) -> None:
        """The retained message of a topic has expired."""

    def commit(self) -> None:
        """Put the changes on the disk. Raises FrontError when that is not possible: then nothing may be sent."""

    def close(self) -> None: ...


class NoJournal:
    """Of a front that lives in memory alone."""

    pending = False

    def session(self, session: Session) -> None: ...
    def ended(self, session: Session) -> None: ...
    def subscribed(self, session: Session, subscription: Subscription, identifier: int | None) -> None: ...
    def unsubscribed(self, session: Session, topic_filter: str) -> None: ...
    def queued(self, session: Session, delivery: Delivery) -> None: ...
    def sent(self, session: Session, delivery: Delivery) -> None: ...
    def received(self, session: Session, delivery: Delivery) -> None: ...
    def done(self, session: Session, delivery: Delivery) -> None: ...
    def incoming(self, session: Session, packet_id: int, known: bool) -> None: ...
    def retained(self, message: Message) -> None: ...
    def unretained(self, topic: str) -> None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


NO_JOURNAL: Final = NoJournal()
