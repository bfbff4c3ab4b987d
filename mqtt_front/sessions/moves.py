"""Kept sessions on their way from this front to another, and from another to this one.

A session that leaves stays without a connection: it takes messages until its subscriptions are in force elsewhere, and
is forgotten when the other front has everything on its disk. A session that comes is served at once: what was in flight
is repeated first, then what waited at the other front is sent, then what has come here. Knows no peers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from ringmq.mqtt_front.access.acl import Rights
from ringmq.mqtt_front.codec.packets import Subscription
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.moving_queue import MovingQueue
from ringmq.mqtt_front.sessions.moving_session import Carried, MovingSession, Origin
from ringmq.mqtt_front.sessions.queue import MessageQueue
from ringmq.mqtt_front.sessions.session import Session

if TYPE_CHECKING:
    from ringmq.mqtt_front.broker import Broker

DELIVERY_BYTES: Final = 100
"""What a message counts for beside its payload."""
MOST_NOTED: Final = 100_000
"""Messages of other peers that are remembered while sessions come; the oldest are forgotten first, and may be delivered
again."""


class Leaving:
    """A session that another front takes over."""

    __slots__ = ("given", "queue", "session")

    def __init__(self, session: Session, queue: MovingQueue) -> None:
        self.session = session
        self.queue = session.queue = queue
        self.given: list[Carried] = []
        """What has left the queue, and may not be on the disk of the other front."""


class Coming:
    """A session that is taken over from another front."""

    __slots__ = ("missing", "queue", "session")

    def __init__(self, session: Session, queue: MovingQueue) -> None:
        self.session = session
        self.queue: MovingQueue | None = queue
        """None once the other front has nothing older than what has come here."""
        self.missing = 1
        """Filters that are not in force here; one more while they are announced."""


class Stay:
    """A time in which a session has been here, with its subscriptions."""

    __slots__ = ("began", "ended", "first", "last")

    def __init__(self, began: int, first: Origin) -> None:
        self.began = began
        """How many messages of other peers had been noted before."""
        self.ended: int | None = None
        self.first = first
        """The origin of the first message of a client here since then."""
        self.last: Origin | None = None
        """The origin of the first one after the end. Both ends are None while the session is here."""

    def has(self, origin: Origin, place: int) -> bool:
        """Whether a message came in this time. `place`: among those of other peers, 0 if it is not among them."""
        if origin[0] == self.first[0]:
            return self.first <= origin and (self.last is None or origin < self.last)
        return place > self.began and (self.ended is None or place <= self.ended)


class Journey:
    """What has come here of the session of a client, while anything of it is on its way."""

    __slots__ = ("arrived", "stays")

    def __init__(self) -> None:
        self.stays: list[Stay] = []
        """It may have gone and come back."""
        self.arrived: set[tuple[Origin, str]] = set()
        """Messages with origins that have come from other fronts."""


class Moves:
    """One per broker."""

    __slots__ = ("_broker", "_came", "_journeys", "_noted", "_origin", "coming", "leaving", "on_busy")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.leaving: dict[str, Leaving] = {}
        self.coming: dict[str, Coming] = {}
        self.on_busy: Callable[[bool], None] = _nothing
        """Called when sessions move, and when none does any more: between the two, `comes` and `came` are called around
        the delivery of each message of another peer."""
        self._origin: Origin | None = None
        """Of the message of another peer that is being delivered."""
        self._came = 0
        self._noted: dict[tuple[Origin, str], int] = {}
        """Messages of other peers that have come while sessions come, each with its place among them."""
        self._journeys: dict[str, Journey] = {}

    def _follow(self) -> None:
        if not self._journeys:
            self._noted.clear()
        self.on_busy(bool(self.leaving or self._journeys))

    def comes(self, origin: Origin, topic: str) -> None:
        """A message of another peer is about to be delivered."""
        self._origin = origin
        if self._journeys:
            self._came += 1
            self._noted[origin, topic] = self._came
            if len(self._noted) > MOST_NOTED:
                del self._noted[next(iter(self._noted))]

    def came(self) -> None:
        self._origin = None

    def _origin_of(self, message: Message) -> Origin:
        """What does not come from another peer is published by a client here."""
        return self._broker.cluster.next_origin() if self._origin is None else self._origin

    # Away

    def give_up(self, session: Session, user: str | None, clean: bool) -> MovingSession | None:
        """A client without a connection here connects elsewhere, with this user name. Returns its session, which is
        leaving then, or None if it has ended: the client wants none from before, or is another user's."""
        broker = self._broker
        if clean or session.user != user:
            # Messages queued for one user must not reach another who connects with the same client id.
            broker.end(session)
            return None
        # The session goes on, so a will that is delayed is not published [MQTT-3.1.3-9].
        session.will = session.will_at = session.expires_at = None
        session.journal.session(session)
        broker.forget(session)
        journey = self._journeys.get(session.client_id)
        if journey is not None:
            # What comes from now on is passed on with its origin, and may come back.
            self._end_stay(journey)
        # A session that has not arrived here in full can leave all the same.
        queue = session.queue if isinstance(session.queue, MovingQueue) else MovingQueue(self._origin_of, session.queue)
        self.leaving[session.client_id] = Leaving(session, queue)
        self._follow()
        subscriptions = [
            (
                Subscription(name, receiver.qos, receiver.no_local, receiver.retain_as_published),
                next(iter(receiver.subscription_ids), None),
            )
            for name, receiver in broker.router.filters(session).items()
        ]
        inflight = list(session.inflight.values())
        return MovingSession(subscriptions, inflight, sorted(session.incoming), session.last_id)

    def next_piece(self, client_id: str, most_bytes: int) -> list[Carried]:
        """Messages that wait, the oldest first. The other front has all earlier ones on its disk."""
        leaving = self.leaving.get(client_id)
        if leaving is None:
            return []
        self._have_gone(leaving)
        size_bytes = 0
        while len(leaving.queue) > 0 and size_bytes < most_bytes:
            leaving.given.append(leaving.queue.take())
            size_bytes += len(leaving.given[-1][0].message.payload) + DELIVERY_BYTES
        return leaving.given

    def _have_gone(self, leaving: Leaving) -> None:
        for delivery, _ in leaving.given:
            leaving.session.journal.done(leaving.session, delivery)
        leaving.given = []

    def is_whole(self, client_id: str) -> bool:
        """Whether nothing of a session that leaves is still on its way here."""
        coming = self.coming.get(client_id)
        return coming is None or coming.queue is None

    def let_go(self, client_id: str) -> None:
        """The subscriptions of a session are in force elsewhere: it takes no further messages here."""
        leaving = self.leaving.get(client_id)
        if leaving is not None:
            for topic_filter in list(self._broker.router.filters(leaving.session)):
                self._broker.unsubscribe(leaving.session, topic_filter)

    def gone(self, client_id: str) -> None:
        """The other front has everything of a session on its disk."""
        leaving = self.leaving.pop(client_id, None)
        if leaving is not None:
            self._forget(leaving)

    def _forget(self, leaving: Leaving) -> None:
        self._have_gone(leaving)
        self._broker.end(leaving.session)
        self._follow()

    def keep(self, client_id: str) -> str | None:
        """The other front takes nothing: the session stays, unless its client has another here. Returns its user."""
        leaving = self.leaving.pop(client_id, None)
        if leaving is None:
            return None
        session = leaving.session
        if client_id in self._broker.sessions:
            waiting = self._drain(leaving)
            self._forget(leaving)
            self.arrive(client_id, waiting, last=False)
            return session.user
        if self.is_whole(client_id):
            session.queue = MessageQueue()
            for delivery in chain([delivery for delivery, _ in leaving.given], leaving.queue):
                session.queue.append(delivery)
        session.detach(False, self._broker.clock.now)
        self._broker.adopt(session)
        session.journal.session(session)
        self._follow()
        return session.user

    def _drain(self, leaving: Leaving) -> list[Carried]:
        """Everything that waits, as `given`: the caller forgets the session next."""
        leaving.queue.release()
        while len(leaving.queue) > 0:
            leaving.given.append(leaving.queue.take())
        return list(leaving.given)

    # Here

    def take_back(self, client_id: str, user: str | None, stale: bool) -> list[Carried]:
        """End an earlier session of a client that is about to be served: one that is still leaving, and with `stale`
        one that is here and was not the client's last. Returns what waits there for the same user."""
        waiting: list[Carried] = []
        leaving = self.leaving.pop(client_id, None)
        earlier = self._broker.sessions.get(client_id) if stale else None
        if earlier is not None:
            queue = earlier.queue if isinstance(earlier.queue, MovingQueue) else None
            earlier_one = Leaving(earlier, queue or MovingQueue(self._origin_of, earlier.queue))
        for ending in (leaving, None if earlier is None else earlier_one):
            if ending is not None:
                drained = self._drain(ending)
                waiting += drained if ending.session.user == user else []
                self._forget(ending)
        return waiting

    def adopt(self, client_id: str, moving: MovingSession, rights: Rights, user: str | None) -> None:
        """Make a session of another front one of this front, for its client that is about to be served. Its filters are
        announced; when they are in force, the cluster is notified."""
        broker = self._broker
        waiting = self.take_back(client_id, user, stale=True)
        session = Session(client_id, broker.config, rights, broker.counters, user)
        queue = MovingQueue(self._origin_of)
        session.take_over(moving, queue, broker.journal)
        broker.sessions[client_id] = session
        coming = self.coming[client_id] = Coming(session, queue)
        stay = Stay(self._came, broker.cluster.next_origin())
        self._journeys.setdefault(client_id, Journey()).stays.append(stay)
        self._follow()
        self.arrive(client_id, waiting, last=False)
        for subscription, identifier in moving.subscriptions:
            if rights.may_subscribe(subscription.filter):
                self._subscribe(coming, subscription, identifier)
        self._in_force(coming, Reason.SUCCESS)

    def _subscribe(self, coming: Coming, subscription: Subscription, identifier: int | None) -> None:
        broker = self._broker
        try:
            _, first = broker.subscribe(coming.session, subscription, identifier)
        except PacketError:
            # A limit of this front is lower than that of the other.
            return
        waiting = broker.being_announced(subscription.filter)
        if first:
            coming.missing += 1
            broker.announce(subscription.filter, partial(self._in_force, coming))
        elif waiting is not None:
            coming.missing += 1
            waiting.append(partial(self._in_force, coming))

    def _in_force(self, coming: Coming, reason: Reason) -> None:
        """A filter is in force, or refused: then the cluster tries again until it has room."""
        coming.missing -= 1
        if not coming.missing:
            self._broker.cluster.arrived(coming.session.client_id)

    def arrive(self, client_id: str, carried: Iterable[Carried], last: bool) -> None:
        """Messages that waited at the other front. After the last one, what has come here is sent, too."""
        coming = self.coming.get(client_id)
        session = self._broker.sessions.get(client_id) if coming is None else coming.session
        if session is None:
            return
        for delivery, origin in carried:
            if origin is not None and self._has_come(client_id, origin, delivery.message.topic):
                continue
            if isinstance(session.queue, MovingQueue):
                session.queue.arrive(delivery, origin)
            else:
                session.queue.append(delivery)
            session.journal.queued(session, delivery)
        if last and coming is not None and coming.queue is not None:
            journey = self._journeys[client_id]
            for delivery in coming.queue.drop_known(journey.arrived):
                session.journal.done(session, delivery)
            if client_id in self.leaving:
                coming.queue.release()
            else:
                session.queue = coming.queue.settled()
            coming.queue = None
        session.pump(self._broker.clock.now)

    def _has_come(self, client_id: str, origin: Origin, topic: str) -> bool:
        """Whether a message has come here before, from its publisher or from another front."""
        journey = self._journeys.get(client_id)
        if journey is None:
            return False
        place = self._noted.get((origin, topic), 0)
        if (origin, topic) in journey.arrived or any(stay.has(origin, place) for stay in journey.stays):
            return True
        journey.arrived.add((origin, topic))
        return False

    def _end_stay(self, journey: Journey) -> None:
        stay = journey.stays[-1]
        if stay.ended is None:
            stay.ended, stay.last = self._came, self._broker.cluster.next_origin()

    def over(self, client_id: str) -> None:
        """The other front has nothing more, and takes nothing more."""
        self.arrive(client_id, (), last=True)
        self.coming.pop(client_id, None)
        self._journeys.pop(client_id, None)
        self._follow()

    def ended(self, session: Session) -> None:
        """A session has ended: what is still on its way here has no receiver."""
        coming = self.coming.get(session.client_id)
        if coming is not None and coming.session is session:
            del self.coming[session.client_id]
            self._end_stay(self._journeys[session.client_id])


def _nothing(busy: bool) -> None:
    """Nobody delivers messages of other peers."""
