"""The interface to the layer above: a front reports messages and filters of its clients, and waits for `done`.

All calls are synchronous. A front without a ring uses `Standalone`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.moving_session import NO_ORIGIN, MovingSession, Origin

Done = Callable[[Reason], None]
UNDELIVERED: Final = Reason.IMPLEMENTATION_SPECIFIC_ERROR
"""Some receivers of a message may not get it: its publisher must not take it for delivered, and may send it again."""


class Standing(Enum):
    """What the cluster knows of the client id of a client that connects."""

    CURRENT = auto()
    """No other front has the client id; a session of it here is the current one."""
    STALE = auto()
    """Another front had it, and was asked to give it up. A session here is from before, and must not be resumed."""
    FOREIGN = auto()
    """It belongs to another user."""
    SUPERSEDED = auto()
    """A later connection has it, at another front."""


class Settled(Protocol):
    """Called with the session of another front, if it gives one: it is this front's from now on."""

    def __call__(self, standing: Standing, moving: MovingSession | None = None) -> None: ...


class Enrolment(NamedTuple):
    """A client id that is to be this front's alone."""

    client_id: str
    user: str | None
    clean: bool
    """The client wants no session from before."""
    kept: bool
    """Its session outlives the connection."""
    within_s: float = 0.0
    """How long the cluster may take to find out."""
    restored: bool = False
    """There is no connection: the session is from an earlier process."""


class Cluster(Protocol):
    """The layer above. It calls each `done` once, now or later."""

    @property
    def serves_groups(self) -> bool:
        """Whether the cluster chooses the members of shared subscriptions that get a message. Then the broker delivers
        the messages of its clients to none of them. Constant."""

    @property
    def keeps_retained(self) -> bool:
        """Whether the cluster stores retained messages, and gives the front those that clients here need."""

    def published(self, message: Message, receivers_here: int, done: Done | None) -> None:
        """A client published this message, and the clients here have it. `done` acknowledges QoS 1 and 2: with
        UNDELIVERED if some receivers may not get it."""

    def published_fast(self, topic: str, payload: bytes, receivers_here: int) -> None:
        """`published` for the fast path: the message has QoS 0 and no properties, and is not retained."""

    def take_over(self, messages: list[Message]) -> bool:
        """Take over messages that were retained here alone; returns whether the cluster has stored them safely.

        Called before any client is served, if the cluster `keeps_retained`.
        """

    def serves(self, topic_filter: str) -> bool:
        """Whether clients can subscribe to a shared filter."""

    def filter_added(self, topic_filter: str, done: Done, lasting: bool = False) -> None:
        """A client here is the first to subscribe to this filter, or subscribes to it again after the cluster refused
        it. The SUBACK waits for `done`: with SUCCESS, or with QUOTA_EXCEEDED if the cluster has no room for the filter.
        Call `filter_removed` when no session has it, refused or not: until then the cluster tries again now and then.

        `lasting`: a session that outlives this process has the filter with QoS 1 or 2. The call is repeated when that
        changes.
        """

    def is_refused(self, topic_filter: str) -> bool:
        """Whether the cluster had no room for this filter, and it is not in force."""

    def filter_removed(self, topic_filter: str) -> None:
        """The last subscription here to this filter has gone."""

    def enrol(self, enrolment: Enrolment, settled: Settled) -> None:
        """A client connects with an id of its own: end other connections with this id elsewhere. `settled` is called
        once, now or later; with CURRENT also if the cluster cannot find out in time. Not called again after a second
        call with the same client id, nor after `discharge`."""

    def discharge(self, client_id: str) -> None:
        """There is neither a connection nor a session of this client here any more, if there was one."""

    def arrived(self, client_id: str) -> None:
        """The subscriptions of a session that comes from another front are in force here."""

    def next_origin(self) -> Origin:
        """The origin of the message that is passed to `published` next."""


class Standalone:
    """The cluster of a front without a ring."""

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

    def filter_added(self, topic_filter: str, done: Done, lasting: bool = False) -> None:
        done(Reason.SUCCESS)

    def is_refused(self, topic_filter: str) -> bool:
        return False

    def filter_removed(self, topic_filter: str) -> None: ...

    def enrol(self, enrolment: Enrolment, settled: Settled) -> None:
        settled(Standing.CURRENT)

    def discharge(self, client_id: str) -> None: ...
    def arrived(self, client_id: str) -> None: ...
    def next_origin(self) -> Origin:
        return NO_ORIGIN
