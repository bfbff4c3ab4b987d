"""What an open connection and its session say to each other: publications, acknowledgements, subscriptions.

Owns the topic aliases of the client and the order of acknowledgements to it. How the connection came to be and how it
ends is `mqtt_front.connection`'s business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from mqtt_front.acl import ALL_RIGHTS, NO_RIGHTS, Rights
from mqtt_front.broker import Broker
from mqtt_front.codec_in import decode, read_publish
from mqtt_front.codec_out import PINGRESP, encode, encode_ack
from mqtt_front.errors import PacketError, ProtocolBreachError
from mqtt_front.message import Message
from mqtt_front.outgoing import Outgoing
from mqtt_front.packets import Disconnect, Kind, Packet, Puback, Pubcomp, Pubrec, Pubrel, Subscribe, Unsubscribe
from mqtt_front.properties import split_publish_properties
from mqtt_front.reasons import Reason
from mqtt_front.session import Session
from mqtt_front.subscribing import Subscribing, unsubscribe

SYS: Final = "$SYS/"
"""Topics that the server alone publishes to."""
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

    __slots__ = ("_aliases_in", "_incoming_limit", "_unanswered", "client_id", "pausing", "rights", "session")

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.session: Session | None = None
        self.rights: Rights = NO_RIGHTS
        self.client_id = ""
        self.pausing = False
        """The client has sent more than it may have unanswered: do not read from it now."""
        self._aliases_in: dict[int, str] = {}
        self._unanswered: deque[Unanswered] = deque()
        self._incoming_limit = broker.config.receive_maximum

    def take(self, first: int, body: memoryview) -> None:
        """Raises PacketError when the client may not send this."""
        self.broker.counters.messages_received += 1
        kind = first >> 4
        if kind == Kind.PUBLISH:
            self._on_publish(first, body)
        elif first == 0xC0 and not body:
            self.send(PINGRESP)
        else:
            self._answer(decode(self.version, first, body))

    def _answer(self, packet: Packet) -> None:
        session = self.session
        assert session is not None
        match packet:
            case Puback():
                session.acknowledged(packet.packet_id, self.broker.now)
            case Pubrec():
                self._on_pubrec(session, packet)
            case Pubrel():
                known = session.release(packet.packet_id)
                reason = Reason.SUCCESS if known else Reason.PACKET_IDENTIFIER_NOT_FOUND
                self.send(encode_ack(Kind.PUBCOMP, self.version, packet.packet_id, reason))
            case Pubcomp():
                session.completed(packet.packet_id, self.broker.now)
            case Subscribe():
                Subscribing(self.broker, session, self, packet).start()
            case Unsubscribe():
                self.send(encode(self.version, unsubscribe(self.broker, session, packet)))
            case Disconnect():
                self._on_disconnect(session, packet)
            case _:
                raise ProtocolBreachError(f"a client does not send {type(packet).__name__.upper()} now")

    def _on_publish(self, first: int, body: memoryview) -> None:
        broker = self.broker
        broker.counters.publish_received += 1
        topic, packet_id, section, payload = read_publish(self.version, first, body)
        properties, forwarded = split_publish_properties(section)
        if self.v5:
            topic = self._resolve(topic, properties.topic_alias)
        qos, expiry_s = first >> 1 & 3, properties.message_expiry_s
        if qos == 2 and self._is_repeated(packet_id):
            return
        if topic.startswith(SYS) or (self.rights is not ALL_RIGHTS and not self.rights.may_write(topic)):
            broker.counters.unauthorized += 1
            self._finish(qos, packet_id, Reason.NOT_AUTHORIZED)
            return
        expires_at = None if expiry_s is None else broker.now + expiry_s
        message = Message(topic, bytes(payload), qos, bool(first & 1), forwarded, expires_at, self.client_id)
        if not qos:
            broker.publish(message, None)
            return
        broker.publish(message, self._expect(qos, packet_id))

    def _resolve(self, topic: str, alias: int | None) -> str:
        """The topic that an alias stands for (5.0 §3.3.2.3.4)."""
        if alias is None:
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

    def _is_repeated(self, packet_id: int) -> bool:
        session = self.session
        assert session is not None
        if packet_id in session.incoming:
            self.send(encode_ack(Kind.PUBREC, self.version, packet_id))
            return True
        return False

    def _on_pubrec(self, session: Session, packet: Pubrec) -> None:
        packet_id = packet.packet_id
        if packet.reason >= FAILURES:
            session.refused(packet_id, self.broker.now)
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

    def close(self, will: bool) -> None:
        """End the connection; `will` says whether the client's will is to be published."""
        raise NotImplementedError

    # Acknowledgements of what the client publishes, in the order of its packets [MQTT-4.6.0-2]

    def _expect(self, qos: int, packet_id: int) -> Callable[[Reason], None]:
        """What is to be called when a message has got where it should."""
        session, unanswered = self.session, self._unanswered
        assert session is not None
        if qos == 2:
            session.accept(packet_id)
        entry = Unanswered(qos, packet_id)
        unanswered.append(entry)
        if len(unanswered) > self._incoming_limit:
            if self.v5:  # [MQTT-3.3.4-9]
                raise PacketError(Reason.RECEIVE_MAXIMUM_EXCEEDED, f"more than {self._incoming_limit} unacknowledged")
            self.pausing = True

        def done(reason: Reason) -> None:
            entry.reason = reason
            while unanswered and unanswered[0].reason is not None:
                first = unanswered.popleft()
                assert first.reason is not None
                self._finish(first.qos, first.packet_id, first.reason)
            self.pausing = self.pausing and len(unanswered) > self._incoming_limit

        return done

    def _finish(self, qos: int, packet_id: int, reason: Reason) -> None:
        """Tell the client. In MQTT 3 a refused message is acknowledged as any other: there is no word for it."""
        if not qos or self.closing:
            return
        if qos == 2 and reason >= FAILURES and self.v5 and self.session is not None:
            self.session.release(packet_id)
        kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
        self.send(encode_ack(kind, self.version, packet_id, reason))
