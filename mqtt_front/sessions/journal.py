"""The interface to durable storage: a front records each change of its state in a journal.

A change is recorded before the client's acknowledgement is written to its outbox, and committed at the end of the
iteration, before the outbox is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from ringmq.mqtt_front.codec.packets import Subscription, Will
    from ringmq.mqtt_front.message import Message, WillMessage
    from ringmq.mqtt_front.sessions.queue import Delivery
    from ringmq.mqtt_front.sessions.session import Session


class SavedSession(NamedTuple):
    """A session as a durable journal returns it at the start of a front."""

    client_id: str
    expiry_s: int
    expires_at: float | None
    user: str | None
    will: Will | None
    will_at: float | None
    subscriptions: list[tuple[Subscription, int | None]]
    queue: list[Delivery]
    inflight: list[Delivery]
    incoming: list[int]


class Journal(Protocol):
    """Records sessions that outlive their connections, and no others."""

    @property
    def pending(self) -> bool:
        """Whether there is something to commit."""

    def session(self, session: Session) -> None:
        """The session exists, with its present expiry, user and will."""

    def ended(self, session: Session) -> None:
        """The session has ended, with all that belongs to it."""

    def subscribed(self, session: Session, subscription: Subscription, identifier: int | None) -> None: ...
    def unsubscribed(self, session: Session, topic_filter: str) -> None: ...
    def queued(self, session: Session, delivery: Delivery) -> None: ...
    def sent(self, session: Session, delivery: Delivery) -> None: ...
    def received(self, session: Session, delivery: Delivery) -> None: ...
    def done(self, session: Session, delivery: Delivery) -> None: ...
    def incoming(self, session: Session, packet_id: int, known: bool) -> None:
        """A QoS 2 message of the client has reached all receivers (`known`), or its identifier has been released."""

    def retained(self, message: Message) -> None:
        """This is the retained message of its topic now; an empty payload means that there is none any more."""

    def unretained(self, topic: str) -> None:
        """The retained message of a topic has expired."""

    def will_begins(self, will: WillMessage) -> None:
        """A will is on its way to its receivers."""

    def will_ended(self, token: bytes) -> None:
        """All its receivers have it."""

    def will_delivered(self, token: bytes) -> None:
        """A will with QoS 2, of another peer, was delivered here."""

    def will_forgotten(self, token: bytes) -> None:
        """It need not be known any more."""

    def commit(self) -> None:
        """Write the changes to the disk. Raises FrontError if that fails: then the caller must not send anything."""

    def close(self) -> None: ...


class NoJournal:
    """The journal of a front that keeps its state in memory alone."""

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
    def will_begins(self, will: WillMessage) -> None: ...
    def will_ended(self, token: bytes) -> None: ...
    def will_delivered(self, token: bytes) -> None: ...
    def will_forgotten(self, token: bytes) -> None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


NO_JOURNAL: Final = NoJournal()
