"""What an open connection and its session say to each other: publications, acknowledgements, subscriptions.

Owns the topic aliases of the client and the order of acknowledgements to it. How the connection came to be and how it
ends is `mqtt_front.connection.connection`'s business.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from functools import partial
from typing import Final

from ringmq.mqtt_front.access.acl import ALL_RIGHTS, NO_RIGHTS, Rights
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.cluster import Done
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
from ringmq.mqtt_front.connection.writer import Outgoing
from ringmq.mqtt_front.errors import PacketError, ProtocolBreachError
from ringmq.mqtt_front.matching.topics import is_of_the_server
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


class Conversation(Outgoing):
    """`take` is given each packet of an open connection."""

    __slots__ = (
        "_aliases_in",
        "_incoming_limit",
        "_replay",
        "_unanswered",
        "_unanswered_1",
        "_unreleased",
        "behind",
        "client_id",
        "extra_bytes",
        "pausing",
        "rights",
        "session",
    )

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.session: Session | None = None
        self.rights: Rights = NO_RIGHTS
        self.client_id = ""
        self.behind = False
        """The client has sent more than goes into one turn."""
        self.pausing = False
        """Do not read from it now: it is behind, or has more unanswered than it may."""
        self.extra_bytes = 0
        """What the last packets count for beside what any does; for who counts to take and set back."""
        self._replay: Replay | None = None
        self._aliases_in: dict[int, str] = {}
        self._unanswered: deque[Unanswered] = deque()
        self._unanswered_1 = 0
        """Those of them with QoS 1."""
        self._unreleased: set[int] = set()
        """Identifiers of QoS 2 messages that came over this connection and have not had their PUBCOMP."""
        self._incoming_limit = broker.config.receive_maximum

    def take(self, first: int, body: memoryview) -> None:
        """Raises PacketError when the client may not send this."""
        self.broker.counters.messages_received += 1
        kind = first >> 4
        if kind == Kind.PUBLISH:
            self._on_publish(first, body)
        elif first == 0xC0 and not body:
            self.send(PINGRESP)
        elif kind == Kind.CONNECT:  # [MQTT-3.1.0-2], whatever is in it
            raise ProtocolBreachError("a second CONNECT")
        elif kind == Kind.SUBSCRIBE or kind == Kind.UNSUBSCRIBE:
            self._take_filters(kind, first, body)
        else:
            self._answer(decode(self.version, first, body))

    def _take_filters(self, kind: int, first: int, body: memoryview) -> None:
        """No more filters are looked at than one packet may have."""
        most = self.broker.config.max_filters_per_packet
        body, beyond = first_filters(self.version, kind, body, most)
        self.extra_bytes += beyond * REFUSED_FILTER_BYTES
        if beyond and kind == Kind.UNSUBSCRIBE:
            raise PacketError(Reason.QUOTA_EXCEEDED, f"an UNSUBSCRIBE with more than {most} filters")
        self._answer(decode(self.version, first, body), beyond)

    def _answer(self, packet: Packet, beyond: int = 0) -> None:
        session = self.session
        assert session is not None
        match packet:
            case Puback():
                session.acknowledged(packet.packet_id, self.broker.clock.now)
            case Pubrec():
                self._on_pubrec(session, packet)
            case Pubrel():
                known = session.release(packet.packet_id)
                self._unreleased.discard(packet.packet_id)
                reason = Reason.SUCCESS if known else Reason.PACKET_IDENTIFIER_NOT_FOUND
                self.send(encode_ack(Kind.PUBCOMP, self.version, packet.packet_id, reason))
            case Pubcomp():
                session.completed(packet.packet_id, self.broker.clock.now)
            case Subscribe():
                self.extra_bytes += len(packet.subscriptions) * FILTER_BYTES
                Subscribing(self.broker, session, self, packet, beyond).start()
            case Unsubscribe():
                self.extra_bytes += len(packet.filters) * FILTER_BYTES
                self.send(encode(self.version, unsubscribe(self.broker, session, packet)))
                if self._replay is not None:
                    for topic_filter in packet.filters:
                        self._replay.drop(topic_filter)
            case Disconnect():
                self._on_disconnect(session, packet)
            case Pingreq():  # of 3.1, with flags that mean nothing there
                self.send(PINGRESP)
            case _:
                raise ProtocolBreachError(f"a client does not send {type(packet).__name__.upper()} now")
        if self._replay is not None and not self.starved:
            # An acknowledgement may have made room for it.
            self.starved = True
            self.wake()

    def _on_publish(self, first: int, body: memoryview) -> None:
        broker, session = self.broker, self.session
        assert session is not None
        topic, packet_id, section, payload = read_publish(self.version, first, body)
        properties, forwarded = split_publish_properties(section)
        if self.v5:
            topic = self._resolve(topic, properties.topic_alias)
        broker.counters.received(topic, len(payload))
        qos, expiry_s = first >> 1 & 3, properties.message_expiry_s
        entry = self._expect(qos, packet_id) if qos else None
        if is_of_the_server(topic) or (self.rights is not ALL_RIGHTS and not self.rights.may_write(topic)):
            broker.counters.unauthorized += 1
            if entry is not None:
                self._answer_publish(entry, Reason.NOT_AUTHORIZED)
            return
        if entry is not None and qos == 2 and not session.accept(packet_id):
            self._answer_again(session, entry)
            return
        expires_at = None if expiry_s is None else broker.clock.now + expiry_s
        message = Message(topic, bytes(payload), qos, bool(first & 1), forwarded, expires_at, self.client_id)
        broker.publish(message, None if entry is None else self._done(session, entry))

    def _resolve(self, topic: str, alias: int | None) -> str:
        """The topic that an alias stands for (5.0 §3.3.2.3.4)."""
        if alias is None:
            if not topic:  # §3.3.2.1
                raise ProtocolBreachError("a PUBLISH has neither a topic nor a topic alias")
            return topic
        if alias > self.broker.config.topic_alias_maximum:
            raise PacketError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias} is above the maximum")
        if topic:
            self._aliases_in[alias] = topic
            return topic
        known = self._aliases_in.get(alias)
        if known is None:
            raise ProtocolBreachError(f"topic alias {alias} is not known")
        return known

    def _on_pubrec(self, session: Session, packet: Pubrec) -> None:
        packet_id = packet.packet_id
        if packet.reason >= FAILURES:
            session.refused(packet_id, self.broker.clock.now)
        elif session.received(packet_id):
            self.acknowledge(Kind.PUBREL, packet_id)
        else:
            self.send(encode_ack(Kind.PUBREL, self.version, packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))

    def _on_disconnect(self, session: Session, packet: Disconnect) -> None:
        expiry_s = packet.properties.session_expiry_s
        if expiry_s is not None:
            if expiry_s and not session.expiry_s:  # §3.14.2.2.2
                raise ProtocolBreachError("a session that was to end with the connection gets an expiry at its end")
            session.expiry_s = min(expiry_s, self.broker.config.max_session_expiry_s)
        self.close(will=packet.reason is not Reason.SUCCESS)

    def go_on(self) -> None:
        """The outbox has been emptied, or the client reads again: send what waits for it."""
        self.starved = False
        if self.session is not None:
            self.session.pump(self.broker.clock.now)
            if self._replay is not None:
                if self._replay.advance():
                    self.starved = True
                    self.wake()
                elif self._replay.finished:
                    self._replay.end()
                    self._replay = None

    def expect_retained(self) -> int:
        """Filters are put into force, and `bring_retained` is to follow; gives the mark for it."""
        assert self.session is not None
        if self._replay is None:
            self._replay = Replay(self.broker, self.session)
        return self._replay.expect()

    def bring_retained(self, filters: list[str], mark: int) -> None:
        """Send the retained messages that match, but for those given live since the mark: some at once, if there is
        nothing else to be done yet in this turn, the others in later turns.
        """
        if self._replay is None:  # The SUBACK was more than the client takes.
            return
        self._replay.add(filters, mark)
        if not self.starved:
            self._replay.advance()
        self.starved = True
        self.wake()

    @abstractmethod
    def close(self, will: bool) -> None:
        """End the connection; `will` says whether the client's will is to be published."""

    # Acknowledgements of what the client publishes, in the order of its packets [MQTT-4.6.0-2]

    def _expect(self, qos: int, packet_id: int) -> Unanswered:
        """Every publication is answered in its turn. Raises PacketError for one too many."""
        unanswered = self._unanswered
        if qos == 1:
            self._unanswered_1 += 1
        else:
            self._unreleased.add(packet_id)
        if self.v5:  # §3.3.4
            if self._unanswered_1 + len(self._unreleased) > self._incoming_limit:
                raise PacketError(Reason.RECEIVE_MAXIMUM_EXCEEDED, f"more than {self._incoming_limit} unacknowledged")
        elif len(unanswered) >= self._incoming_limit:
            self.pausing = True
            self.wake()
        entry = Unanswered(qos, packet_id)
        unanswered.append(entry)
        return entry

    def _done(self, session: Session, entry: Unanswered) -> Done:
        """What is to be called when a message has got where it should, or has not."""
        answer = partial(self._answer_publish, entry)
        if entry.qos == 1:
            return answer
        packet_id, v5 = entry.packet_id, self.v5
        waiting = session.unsettled[packet_id] = [answer]

        def done(reason: Reason) -> None:
            if session.unsettled.get(packet_id) is waiting:
                del session.unsettled[packet_id]
                if v5 and reason >= FAILURES:  # in MQTT 3 there is no word for it
                    session.release(packet_id)
                else:
                    session.settled(packet_id)
            for one in waiting:
                one(reason)

        return done

    def _answer_again(self, session: Session, entry: Unanswered) -> None:
        """The client repeats a QoS 2 message. Its fate may still be unknown: then this PUBREC waits for it as well."""
        waiting = session.unsettled.get(entry.packet_id)
        if waiting is None:
            self._answer_publish(entry, Reason.SUCCESS)
        else:
            waiting.append(partial(self._answer_publish, entry))

    def _answer_publish(self, entry: Unanswered, reason: Reason) -> None:
        """Acknowledge a publication, once those before it are."""
        entry.reason = reason
        unanswered = self._unanswered
        while unanswered and unanswered[0].reason is not None:
            first = unanswered.popleft()
            assert first.reason is not None
            self._acknowledge_publish(first.qos, first.packet_id, first.reason)
        self.see_whether_to_pause()

    def see_whether_to_pause(self) -> None:
        """One reason not to read from the client may be gone."""
        if self.pausing and not self.behind and len(self._unanswered) <= self._incoming_limit:
            self.pausing = False
            self.wake()

    def _acknowledge_publish(self, qos: int, packet_id: int, reason: Reason) -> None:
        """In MQTT 3 a refused message is acknowledged as any other: there is no word for it."""
        if qos == 1:
            self._unanswered_1 -= 1
        elif reason >= FAILURES:
            self._unreleased.discard(packet_id)
        self.send(encode_ack(Kind.PUBACK if qos == 1 else Kind.PUBREC, self.version, packet_id, reason))
