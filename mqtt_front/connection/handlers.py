"""The handlers of a connection: one for each kind of packet that the client of an open connection sends.

Owns the topic aliases of the client, and which of its publications are not acknowledged to it: acknowledgements go out
in the order of the publications [MQTT-4.6.0-2]. Reading packets is the business of `mqtt_front.connection.reader`,
writing them that of `mqtt_front.connection.writer`.
"""

from __future__ import annotations

import weakref
from collections import deque
from functools import partial
from typing import Final

from ringmq.mqtt_front.access.acl import ALL_RIGHTS
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.cluster import UNDELIVERED, Done
from ringmq.mqtt_front.codec.decode import decode, read_publish
from ringmq.mqtt_front.codec.encode import PINGRESP, encode, encode_ack
from ringmq.mqtt_front.codec.packets import (
    Disconnect,
    Kind,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
)
from ringmq.mqtt_front.codec.properties import split_publish_properties
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.connection.budget import FILTER_BYTES, REFUSED_FILTER_BYTES
from ringmq.mqtt_front.connection.subscribe import Subscribing, first_filters, unsubscribe
from ringmq.mqtt_front.connection.writer import Owner, Writer
from ringmq.mqtt_front.errors import PacketError, ProtocolBreachError
from ringmq.mqtt_front.matching.topics import is_of_the_server, is_state_of_a_bridge
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.retained_delivery import Replay
from ringmq.mqtt_front.sessions.session import Session

FAILURES: Final = 0x80
"""Reasons from here on are failures (5.0 §2.4)."""


class Unanswered:
    """A publication of the client that has not been acknowledged to it."""

    __slots__ = ("packet_id", "qos", "reason")

    def __init__(self, qos: int, packet_id: int) -> None:
        self.qos = qos
        self.packet_id = packet_id
        self.reason: Reason | None = None


class Handlers:
    """The handlers of one connection. `handle` is called with each packet between `begin` and `end`."""

    __slots__ = (
        "_aliases_in",
        "_broker",
        "_extra_bytes",
        "_incoming_limit",
        "_owner",
        "_unanswered",
        "_unanswered_1",
        "_undelivered",
        "full",
        "replay",
        "session",
        "unreleased",
        "writer",
    )

    def __init__(self, broker: Broker, owner: weakref.ref[Owner], writer: Writer) -> None:
        self._broker = broker
        self._owner = owner
        self.writer = writer
        self.session: Session | None = None
        """Set while the connection is open."""
        self.full = False
        """Do not read from the client now: it has more publications unanswered than it may."""
        self.replay: Replay | None = None
        """Retained messages on their way to the client."""
        self._extra_bytes = 0
        """Extra price of the packets since the last `take_extra_bytes`, beside `PACKET_BYTES`."""
        self._aliases_in: dict[int, str] = {}
        self._unanswered: deque[Unanswered] = deque()
        self._unanswered_1 = 0
        """How many of them have QoS 1."""
        self._undelivered = False
        """A message could not be delivered, and the version of the client has no word for that."""
        self.unreleased: set[int] = set()
        """Identifiers of QoS 2 messages that came over this connection and have not had their PUBCOMP."""
        self._incoming_limit = broker.config.receive_maximum

    def begin(self, session: Session) -> None:
        """The client has been admitted, with this session."""
        self.session = session

    def end(self) -> Session | None:
        """The connection ends; returns the session, if it had one."""
        session, self.session, self.replay = self.session, None, None
        return session

    def take_extra_bytes(self) -> int:
        """The extra price of the last packets, beside `PACKET_BYTES`. The caller charges it to the budget."""
        extra_bytes, self._extra_bytes = self._extra_bytes, 0
        return extra_bytes

    def handle(self, first: int, body: memoryview) -> None:
        """Handle a packet on the general path. Raises PacketError if the client must not send it."""
        self._broker.counters.messages_received += 1
        kind = first >> 4
        if kind == Kind.PUBLISH:
            self.on_publish(first, body)
        elif first == 0xC0 and not body:
            self.writer.send(PINGRESP)
        elif kind == Kind.CONNECT:  # [MQTT-3.1.0-2], whatever is in it
            raise ProtocolBreachError("a second CONNECT")
        elif kind == Kind.SUBSCRIBE or kind == Kind.UNSUBSCRIBE:
            self._handle_filters(kind, first, body)
        else:
            self._handle_decoded(decode(self.writer.version, first, body))

    def _handle_filters(self, kind: int, first: int, body: memoryview) -> None:
        """Handle a SUBSCRIBE or UNSUBSCRIBE, of which only as many filters are read as one packet may have."""
        most = self._broker.config.max_filters_per_packet
        version = self.writer.version
        body, beyond = first_filters(version, kind, body, most)
        self._extra_bytes += beyond * REFUSED_FILTER_BYTES
        if beyond and kind == Kind.UNSUBSCRIBE:
            raise PacketError(Reason.QUOTA_EXCEEDED, f"an UNSUBSCRIBE with more than {most} filters")
        self._handle_decoded(decode(version, first, body), beyond)

    def _handle_decoded(self, packet: Packet, beyond: int = 0) -> None:
        session = self.session
        assert session is not None
        match packet:
            case Puback():
                session.acknowledged(packet.packet_id, self._broker.clock.now)
            case Pubrec():
                self.on_pubrec(session, packet)
            case Pubrel():
                self.on_pubrel(session, packet)
            case Pubcomp():
                session.completed(packet.packet_id, self._broker.clock.now)
            case Subscribe():
                self.on_subscribe(session, packet, beyond)
            case Unsubscribe():
                self.on_unsubscribe(session, packet)
            case Disconnect():
                self.on_disconnect(session, packet)
            case Pingreq():  # of 3.1, with flags that mean nothing there
                self.writer.send(PINGRESP)
            case _:
                raise ProtocolBreachError(f"a client does not send {type(packet).__name__.upper()} now")
        if self.replay is not None and not self.writer.starved:
            # An acknowledgement may have made room for it.
            self.writer.starve()

    def on_publish(self, first: int, body: memoryview) -> None:
        broker, session = self._broker, self.session
        assert session is not None
        topic, packet_id, section, payload = read_publish(self.writer.version, first, body)
        properties, forwarded = split_publish_properties(section)
        if self.writer.v5:
            topic = self._resolve(topic, properties.topic_alias)
        broker.counters.received(topic, len(payload))
        qos, expiry_s = first >> 1 & 3, properties.message_expiry_s
        # This precedes the check of rights: a refused publication is answered in its place among the others, too.
        entry = self.expect(qos, packet_id) if qos else None
        rights = session.rights
        of_the_server = is_of_the_server(topic)
        silent = of_the_server and is_state_of_a_bridge(topic)
        if not silent and (of_the_server or (rights is not ALL_RIGHTS and not rights.may_write(topic))):
            broker.counters.unauthorized += 1
            if entry is not None:
                self._answer_publish(entry, Reason.NOT_AUTHORIZED)
            return
        if entry is not None and qos == 2 and not session.accept(packet_id):
            self._answer_again(session, entry)
            return
        done = None if entry is None else self.when_done(session, entry)
        if silent:  # A bridge tells its state. `$SYS` is the server's, so nobody gets it.
            if done is not None:
                done(Reason.NO_MATCHING_SUBSCRIBERS)
            return
        expires_at = None if expiry_s is None else broker.clock.now + expiry_s
        message = Message(topic, bytes(payload), qos, bool(first & 1), forwarded, expires_at, session.client_id)
        broker.publish(message, done)

    def _resolve(self, topic: str, alias: int | None) -> str:
        """The topic that an alias stands for (5.0 §3.3.2.3.4)."""
        if alias is None:
            if not topic:  # §3.3.2.1
                raise ProtocolBreachError("a PUBLISH has neither a topic nor a topic alias")
            return topic
        if alias > self._broker.config.topic_alias_maximum:
            raise PacketError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias} is above the maximum")
        if topic:
            self._aliases_in[alias] = topic
            return topic
        known = self._aliases_in.get(alias)
        if known is None:
            raise ProtocolBreachError(f"topic alias {alias} is not known")
        return known

    def on_pubrec(self, session: Session, packet: Pubrec) -> None:
        packet_id = packet.packet_id
        if packet.reason >= FAILURES:
            session.refused(packet_id, self._broker.clock.now)
        elif session.received(packet_id):
            self.writer.acknowledge(Kind.PUBREL, packet_id)
        else:
            self._acknowledge(Kind.PUBREL, packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND)

    def on_pubrel(self, session: Session, packet: Pubrel) -> None:
        # An unknown identifier is answered, too [MQTT-4.3.3-11]: a first PUBCOMP may be lost with its connection.
        known = session.release(packet.packet_id)
        self.unreleased.discard(packet.packet_id)
        reason = Reason.SUCCESS if known else Reason.PACKET_IDENTIFIER_NOT_FOUND
        self._acknowledge(Kind.PUBCOMP, packet.packet_id, reason)

    def on_subscribe(self, session: Session, packet: Subscribe, beyond: int) -> None:
        """`beyond` filters of the packet are too many, and not in `packet`."""
        self._extra_bytes += len(packet.subscriptions) * FILTER_BYTES
        Subscribing(self._broker, session, self, packet, beyond).start()

    def on_unsubscribe(self, session: Session, packet: Unsubscribe) -> None:
        self._extra_bytes += len(packet.filters) * FILTER_BYTES
        self.writer.send(encode(self.writer.version, unsubscribe(self._broker, session, packet)))
        if self.replay is not None:
            for topic_filter in packet.filters:
                self.replay.drop(topic_filter)

    def on_disconnect(self, session: Session, packet: Disconnect) -> None:
        expiry_s = packet.properties.session_expiry_s
        if expiry_s is not None:
            session.change_expiry(expiry_s)
        owner = self._owner()
        assert owner is not None, "the connection has called"
        # Only a normal DISCONNECT discards the will [MQTT-3.14.4-3]; MQTT 3 has no other.
        owner.close(will=packet.reason is not Reason.SUCCESS)

    def go_on(self) -> None:
        """The outbox has been emptied, or the client reads again: send queued and retained messages."""
        self.writer.resume()
        if self._undelivered:
            # It sends the message again when it has connected again.
            self.writer.fail(UNDELIVERED, "a message could not be delivered to all subscribers")
        if self.session is not None:
            self.session.pump(self._broker.clock.now)
            if self.replay is not None:
                if self.replay.advance():
                    self.writer.starve()
                elif self.replay.finished:
                    self.replay.end()
                    self.replay = None

    def expect_retained(self) -> int:
        """Filters are put into force, and `bring_retained` follows; returns the mark for it."""
        assert self.session is not None
        if self.replay is None:
            self.replay = Replay(self._broker, self.session)
        return self.replay.expect()

    def bring_retained(self, filters: list[str], mark: int) -> None:
        """Send the matching retained messages, except those received live since the mark: some at once, unless other
        work waits for the next iteration already, the others in later iterations.
        """
        if self.replay is None:  # The SUBACK was more than the client takes.
            return
        self.replay.add(filters, mark)
        if not self.writer.starved:
            self.replay.advance()
        self.writer.starve()

    def expect(self, qos: int, packet_id: int) -> Unanswered:
        """Every publication is answered in its turn. Raises PacketError for one too many."""
        unanswered = self._unanswered
        if qos == 1:
            self._unanswered_1 += 1
        else:
            self.unreleased.add(packet_id)
        if self.writer.v5:  # §3.3.4
            if self._unanswered_1 + len(self.unreleased) > self._incoming_limit:
                raise PacketError(Reason.RECEIVE_MAXIMUM_EXCEEDED, f"more than {self._incoming_limit} unacknowledged")
        elif len(unanswered) >= self._incoming_limit:
            # MQTT 3 has no receive maximum, so the socket is not read until enough publications are answered.
            self.full = True
            self.writer.wake()
        entry = Unanswered(qos, packet_id)
        unanswered.append(entry)
        return entry

    def when_done(self, session: Session, entry: Unanswered) -> Done:
        """The callback for the moment when a message has reached all receivers, or has failed to."""
        answer = partial(self._answer_publish, entry)
        if entry.qos == 1:
            return answer
        # The client may repeat the message before it is settled: its second PUBREC then waits, too (`_answer_again`).
        packet_id, v5 = entry.packet_id, self.writer.v5
        waiting = session.unsettle(packet_id, answer)

        def done(reason: Reason) -> None:
            # MQTT 3 has no reason code: a refusal is acknowledged like a delivery, and its identifier stays in use.
            delivered = reason < FAILURES if v5 else reason is not UNDELIVERED
            session.settled(packet_id, waiting, delivered)
            for answer_one in waiting:
                answer_one(reason)

        return done

    def _answer_again(self, session: Session, entry: Unanswered) -> None:
        """The client repeats a QoS 2 message. Its fate may still be unknown: then this PUBREC waits for it as well."""
        waiting = session.unsettled.get(entry.packet_id)
        if waiting is None:
            self._answer_publish(entry, Reason.SUCCESS)
        else:
            waiting.append(partial(self._answer_publish, entry))

    def _answer_publish(self, entry: Unanswered, reason: Reason) -> None:
        """Acknowledge a publication, after all publications before it."""
        entry.reason = reason
        unanswered = self._unanswered
        while unanswered and unanswered[0].reason is not None:
            first = unanswered[0]
            assert first.reason is not None
            if first.reason is UNDELIVERED and not self.writer.v5:
                # The connection ends in the next iteration: here the cluster may be in the middle of a change, and the
                # end may publish a will. This message and those behind it stay unanswered.
                self._undelivered = True
                self.writer.starve()
                return
            unanswered.popleft()
            self._acknowledge_publish(first.qos, first.packet_id, first.reason)
        if self.full and len(unanswered) <= self._incoming_limit:
            self.full = False
            self.writer.wake()

    def reconsider(self) -> None:
        """Have the shell read from the client again, unless too many publications are unanswered."""
        self.full = len(self._unanswered) > self._incoming_limit
        if not self.full:
            self.writer.wake()

    def _acknowledge_publish(self, qos: int, packet_id: int, reason: Reason) -> None:
        """Send PUBACK or PUBREC. MQTT 3 has no reason code: there a refused message is acknowledged like any other."""
        if reason is UNDELIVERED:
            reason = Reason.QUOTA_EXCEEDED
        if qos == 1:
            self._unanswered_1 -= 1
        elif reason >= FAILURES:
            self.unreleased.discard(packet_id)
        self._acknowledge(Kind.PUBACK if qos == 1 else Kind.PUBREC, packet_id, reason)

    def _acknowledge(self, kind: Kind, packet_id: int, reason: Reason) -> None:
        self.writer.send(encode_ack(kind, self.writer.version, packet_id, reason))
