"""A session: the messages queued for a client and in flight to it. It may outlive the client's connections.

Sends through the writer of the present connection (`SessionWriter`), and queues while there is none. Which messages it
gets is the router's business, how packets look the codec's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from ringmq.mqtt_front.access.acl import Rights
from ringmq.mqtt_front.codec.packets import Kind, Will
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import NEVER_EXPIRES_S, FrontConfig
from ringmq.mqtt_front.counters import FrontCounters
from ringmq.mqtt_front.errors import ProtocolBreachError
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.given_live import GivenLive
from ringmq.mqtt_front.sessions.journal import NO_JOURNAL, Journal, SavedSession
from ringmq.mqtt_front.sessions.queue import Delivery, MessageQueue
from ringmq.mqtt_front.sessions.retained import Retained

if TYPE_CHECKING:
    from ringmq.mqtt_front.sessions.moving_session import MovingSession

PACKET_IDS: Final = 65535


class SessionWriter(Protocol):
    """The writer of a session's connection. Its fields are for the fast path, which sends past the session."""

    out: list[bytes]
    dirty: bool
    fast: bool
    v5: bool

    @property
    def quota(self) -> int:
        """How many messages the client takes before it has acknowledged one."""

    @property
    def reads(self) -> bool:
        """Whether the client takes what it is sent."""

    def publish(self, delivery: Delivery, dup: bool) -> bool:
        """False: the client cannot take it, and it counts as sent."""

    def publish_fast(self, packet: bytes) -> None: ...

    def discard(self) -> None: ...
    def acknowledge(self, kind: Kind, packet_id: int) -> None: ...
    def fail(self, reason: Reason, text: str) -> None:
        """Close the connection, with the reason where the client's version allows it."""


class Session:
    """State by the client id. `writer` is set while the client is connected."""

    __slots__ = (
        "_again",
        "_config",
        "_counters",
        "_next_id",
        "client_id",
        "dropped",
        "expires_at",
        "expiry_s",
        "incoming",
        "inflight",
        "journal",
        "live",
        "queue",
        "rights",
        "unsettled",
        "user",
        "will",
        "will_at",
        "writer",
    )

    def __init__(
        self,
        client_id: str,
        config: FrontConfig,
        rights: Rights,
        counters: FrontCounters | None = None,
        user: str | None = None,
    ) -> None:
        self.client_id = client_id
        self.user = user
        """The verified user name of the client that began the session."""
        self.rights = rights
        self.writer: SessionWriter | None = None
        self.live: GivenLive | None = None
        """Set while a replay of retained messages is running."""
        self.journal: Journal = NO_JOURNAL
        """Records its changes. `NO_JOURNAL` for a session that ends with its connection."""
        self.expiry_s = 0
        self.expires_at: float | None = None
        """When a session without a client ends; None while it has one, or never."""
        self.will: Will | None = None
        self.will_at: float | None = None
        """When the will of a client that has gone must be published."""
        self.inflight: dict[int, Delivery] = {}
        self.queue = MessageQueue()
        self.incoming: set[int] = set()
        """Identifiers of QoS 2 messages received from the client and not yet released by it."""
        self.unsettled: dict[int, list[Callable[[Reason], None]]] = {}
        """The messages in `incoming` that have not reached all receivers yet, with the callbacks that wait for that."""
        self.dropped = 0
        self._config = config
        self._counters = counters or FrontCounters()
        self._next_id = 0
        self._again: dict[int, Delivery] = {}
        """Messages in `inflight` that were sent over an earlier connection alone, and must be repeated."""

    @property
    def lasts(self) -> bool:
        """Whether it is on the disk, so that it outlives this process."""
        return self.journal is not NO_JOURNAL

    def begin(self, expiry_s: int, will: Will | None, journal: Journal) -> None:
        """The client connects; `attach` its writer next. The journal has only sessions that outlive a connection."""
        self.expiry_s, self.will = expiry_s, will
        # The delayed will of the last connection must not be published any more [MQTT-3.1.3-9].
        self.expires_at = self.will_at = None
        if expiry_s:
            self.journal = journal
            journal.session(self)
        else:
            # An earlier connection may have had an expiry: a restart must not restore the session from the journal.
            self.end()

    def attach(self, writer: SessionWriter, now: float) -> None:
        """Send through this writer: first the messages that the client has not acknowledged, in the order in which they
        were sent [MQTT-4.4.0-1], no more at a time than it takes now, which may be less than before (5.0 §4.9).
        """
        self.writer = writer
        self._again.clear()
        for delivery in self.inflight.values():
            if delivery.received:
                writer.acknowledge(Kind.PUBREL, delivery.packet_id)
            else:
                self._again[delivery.packet_id] = delivery
        self.pump(now)

    def detach(self, will: bool, now: float) -> None:
        """The client is not connected any more: set the times of its will, unless it has none now, and of the end."""
        self.writer = self.live = None
        if not will:
            self.will = None
        if self.will is not None:
            # The end of the session publishes the will even if its delay has not passed [MQTT-3.1.2-8].
            self.will_at = now + min(self.will.properties.will_delay_s or 0, self.expiry_s)
        if self.expiry_s != NEVER_EXPIRES_S:
            self.expires_at = now + self.expiry_s

    def take_will(self) -> Will | None:
        """The will, if there is one. The session has none then, so that it is published once [MQTT-3.1.2-10]."""
        will, self.will, self.will_at = self.will, None, None
        if will is not None:
            self.journal.session(self)
        return will

    def end(self) -> None:
        """Erase the session from its journal, with all that belongs to it."""
        self.journal.ended(self)
        self.journal = NO_JOURNAL

    def change_expiry(self, expiry_s: int) -> None:
        """A DISCONNECT sets the expiry. Raises ProtocolBreachError if the CONNECT set none (5.0 §3.14.2.2.2)."""
        if expiry_s and not self.expiry_s:
            raise ProtocolBreachError("a session that was to end with the connection gets an expiry at its end")
        self.expiry_s = min(expiry_s, self._config.max_session_expiry_s)

    def restrict(self, rights: Rights, filters: Iterable[str] = ()) -> list[str]:
        """Change the rights; returns the filters that they do not allow."""
        self.rights = rights
        return [topic_filter for topic_filter in filters if not rights.may_subscribe(topic_filter)]

    def note_live(self, retained: Retained) -> GivenLive:
        """Note the retained messages that are received live from now on, until `live` is None again."""
        self.live = GivenLive(retained, self._config.max_queued_bytes)
        return self.live

    def restore(self, saved: SavedSession, journal: Journal) -> None:
        """Set the state that the journal had, before a client is connected, and record all changes in it again."""
        self.expiry_s, self.expires_at = saved.expiry_s, saved.expires_at
        self.will, self.will_at = saved.will, saved.will_at
        for delivery in saved.queue:
            self.queue.append(delivery)
        self.inflight = {delivery.packet_id: delivery for delivery in saved.inflight}
        self.incoming.update(saved.incoming)
        self.journal = journal

    @property
    def last_id(self) -> int:
        """The last packet identifier that was given to a message."""
        return self._next_id

    def take_over(self, moving: MovingSession, queue: MessageQueue, journal: Journal) -> None:
        """Set the state that another front has had, before a client is connected, and record it."""
        self.journal, self.queue, self._next_id = journal, queue, moving.last_id % PACKET_IDS
        for delivery in moving.inflight:
            self.inflight[delivery.packet_id] = delivery
            journal.sent(self, delivery)
            if delivery.received:
                journal.received(self, delivery)
        for packet_id in moving.incoming:
            self.incoming.add(packet_id)
            journal.incoming(self, packet_id, True)

    def deliver(self, message: Message, qos: int, retain: bool, ids: tuple[int, ...]) -> bool:
        """Send a message, or keep it for later. False: it had to be dropped."""
        writer = self.writer
        if qos == 0:
            if writer is None:
                return False
            return writer.publish(Delivery(message, 0, retain, ids), False)
        delivery = Delivery(message, qos, retain, ids)
        # Nothing may overtake queued messages or repetitions (5.0 §4.6).
        if writer is not None and not self.queue and not self._again and len(self.inflight) < writer.quota:
            return self._send(writer, delivery)
        if not self.has_room_for(message):
            self.dropped += 1
            self._counters.dropped(message.topic)
            return False
        self.queue.append(delivery)
        self.journal.queued(self, delivery)
        return True

    def deliver_fast(self, message: Message, head: bytes, tail: bytes, v5: bool) -> bool:
        """The fast path for QoS 1: send `head`, an identifier and `tail`. False: the message takes the general path."""
        writer, inflight = self.writer, self.inflight
        if writer is None or not writer.fast or writer.v5 is not v5 or self.queue or self._again:
            return False
        # The general path records each delivery in the journal, and queues what exceeds the quota.
        if self.journal is not NO_JOURNAL or len(inflight) >= writer.quota:
            return False
        packet_id = self._free_id()
        inflight[packet_id] = Delivery(message, 1, False, (), packet_id)
        writer.publish_fast(head + packet_id.to_bytes(2, "big") + tail)
        return True

    def has_room_for(self, message: Message) -> bool:
        """Whether one more message may wait."""
        return self.queue.has_room_for(message, self._config.max_queued, self._config.max_queued_bytes)

    def drop_expired(self, now: float) -> None:
        """Make room in the queue."""
        for delivery in self.queue.take_expired(now):
            self._expire(delivery)

    def _expire(self, delivery: Delivery) -> None:
        self._counters.expired_messages += 1
        self.journal.done(self, delivery)

    def _send(self, writer: SessionWriter, delivery: Delivery) -> bool:
        delivery.packet_id = self._free_id()
        self.inflight[delivery.packet_id] = delivery
        self.journal.sent(self, delivery)
        if writer.publish(delivery, False):
            return True
        # The packet exceeds the client's limit: the message counts as sent [MQTT-3.1.2-25].
        del self.inflight[delivery.packet_id]
        self.journal.done(self, delivery)
        return False

    def _free_id(self) -> int:
        """The next identifier not in use; there always is one, since inflight is bounded far below their number."""
        while True:
            self._next_id = self._next_id % PACKET_IDS + 1
            if self._next_id not in self.inflight:
                return self._next_id

    def pump(self, now: float) -> None:
        """Send as much as the quota allows, repetitions first. Call it whenever the quota has grown."""
        writer, queue, again = self.writer, self.queue, self._again
        # The length, as a queue that moves may be true and have nothing to send.
        while writer is not None and (again or len(queue) > 0) and len(self.inflight) - len(again) < writer.quota:
            if again:
                # It is repeated even if it has expired: expiry ends once a message has been sent [MQTT-4.3.3-7].
                delivery = again.pop(next(iter(again)))
                if not writer.publish(delivery, True):
                    del self.inflight[delivery.packet_id]
                    self.journal.done(self, delivery)
                continue
            delivery = queue.popleft()
            if delivery.message.expired(now):
                self._expire(delivery)
            # The rights may have changed while the message was queued.
            elif not self.rights.may_read(delivery.message.topic):
                self._counters.unauthorized += 1
                self.journal.done(self, delivery)
            else:
                self._send(writer, delivery)

    def acknowledged(self, packet_id: int, now: float) -> bool:
        """PUBACK. False: nothing is on its way under this identifier.

        Raises ProtocolBreachError for an acknowledgement that does not fit the message, as the other three below do.
        The message is then kept, for the next connection.
        """
        delivery = self.inflight.get(packet_id)
        if delivery is None:
            return False
        if delivery.qos != 1:
            raise ProtocolBreachError(f"a PUBACK for message {packet_id}, which has QoS 2")
        self._finish(delivery, now)
        return True

    def acknowledged_fast(self, packet_id: int) -> bool:
        """The fast path for a PUBACK. False: it takes the general path."""
        delivery = self.inflight.get(packet_id)
        # `_finish` sends waiting messages into the room that is free now, and records the end in the journal.
        if delivery is None or delivery.qos != 1 or self.queue or self._again or self.journal is not NO_JOURNAL:
            return False
        del self.inflight[packet_id]
        return True

    def received(self, packet_id: int) -> bool:
        """PUBREC: it will be answered by PUBREL. False: no such message is on its way."""
        delivery = self._of_qos_2(packet_id)
        if delivery is None:
            return False
        if not delivery.received:
            delivery.received = True
            # After its PUBREL the PUBLISH must not be sent again [MQTT-4.3.3-6].
            self._again.pop(packet_id, None)
            self.journal.received(self, delivery)
        return True

    def refused(self, packet_id: int, now: float) -> bool:
        """PUBREC with a failure: the client will not have it, and there is no PUBREL."""
        delivery = self._of_qos_2(packet_id)
        if delivery is None:
            return False
        self._finish(delivery, now)
        return True

    def _of_qos_2(self, packet_id: int) -> Delivery | None:
        delivery = self.inflight.get(packet_id)
        if delivery is not None and delivery.qos != 2:
            raise ProtocolBreachError(f"a PUBREC for message {packet_id}, which has QoS 1")
        return delivery

    def completed(self, packet_id: int, now: float) -> bool:
        """PUBCOMP. False: nothing waits for it."""
        delivery = self.inflight.get(packet_id)
        if delivery is None:
            return False
        if not delivery.received:
            raise ProtocolBreachError(f"a PUBCOMP for message {packet_id}, before its PUBREL")
        self._finish(delivery, now)
        return True

    def _finish(self, delivery: Delivery, now: float) -> None:
        del self.inflight[delivery.packet_id]
        self._again.pop(delivery.packet_id, None)
        self.journal.done(self, delivery)
        if self.queue or self._again:
            self.pump(now)

    def accept(self, packet_id: int) -> bool:
        """A QoS 2 message comes in. False: it was here already, and is only to be acknowledged again."""
        # [MQTT-4.3.3-10]; 3.1.1 [MQTT-4.3.3-2]: a repetition must not reach the receivers a second time.
        if packet_id in self.incoming:
            return False
        self.incoming.add(packet_id)
        return True

    def unsettle(self, packet_id: int, answer: Callable[[Reason], None]) -> list[Callable[[Reason], None]]:
        """An accepted message is on its way to its receivers. Returns the callbacks that wait for it: `answer`, and
        later the answers to repetitions. Call `settled` first, then each of them.
        """
        waiting = self.unsettled[packet_id] = [answer]
        return waiting

    def settled(self, packet_id: int, waiting: list[Callable[[Reason], None]], delivered: bool) -> None:
        """The message has reached all receivers, or has failed to and its identifier is free again."""
        # The identifier belongs to a later message if the client released it before.
        if self.unsettled.get(packet_id) is not waiting:
            return
        del self.unsettled[packet_id]
        if not delivered:
            self.release(packet_id)
        elif packet_id in self.incoming:
            # Not recorded before: a repetition after an earlier crash must count as new, or the message would be lost.
            self.journal.incoming(self, packet_id, True)

    def release(self, packet_id: int) -> bool:
        """PUBREL: the client will not send it again. False: it is not known."""
        if packet_id not in self.incoming:
            return False
        self.incoming.discard(packet_id)
        self.journal.incoming(self, packet_id, False)
        return True
