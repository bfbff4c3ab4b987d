"""The client's side of one MQTT connection, 3.1, 3.1.1 or 5.0: bytes in and events out, calls in and bytes out.

Has no socket, no clock and no randomness. Its user

1. makes it with a CONNECT and, to resume a session, the `SessionState` of the connection before,
2. sends `data_to_send(now)` after each call, as far as it is not empty,
3. passes received bytes to `feed` and then takes `events_received()`, also if `feed` has raised,
4. calls `check(now)` when `deadline` has come,
5. closes the socket after Refused, Ended, `disconnect`, or a ServerBreachError (first sending what is left to send).
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Final

from ringmq.mqtt_front.client.events import (
    Acknowledged,
    Arrived,
    ClientEvent,
    Completed,
    Ended,
    Opened,
    Ponged,
    Refused,
    Subscribed,
    Unsubscribed,
)
from ringmq.mqtt_front.client.session_state import MAX_PACKET_ID, Publication, PublicationPhase, SessionState
from ringmq.mqtt_front.codec.codec import decode, encode, encode_ack
from ringmq.mqtt_front.codec.fields import MAX_VARINT
from ringmq.mqtt_front.codec.framing import MAX_HEADER_BYTES, PacketReader
from ringmq.mqtt_front.codec.packets import (
    NO_PROPERTIES,
    Buffer,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason, words_of
from ringmq.mqtt_front.errors import CallError, EncodeError, PacketError, ServerBreachError
from ringmq.mqtt_front.matching.topics import check_filter, check_topic_name

FAILURES: Final = 0x80
"""Reasons from here on are failures (5.0 §2.4)."""
NO_LIMIT_BYTES: Final = MAX_VARINT + MAX_HEADER_BYTES


class ClientPhase(Enum):
    CONNECTING = auto()
    OPEN = auto()
    CLOSED = auto()


class ClientConnection:
    """One connection; a new one is needed after its end.

    With `automatic`, arrived messages are acknowledged at once; else when `acknowledge` is called. A session state
    belongs to one connection at a time.
    """

    def __init__(self, connect: Connect, state: SessionState | None = None, *, automatic: bool = True) -> None:
        """Raises EncodeError if the CONNECT has no form on the wire."""
        self.connect = connect
        self.state = state or SessionState()
        self.phase = ClientPhase.CONNECTING
        self.keep_alive_s: float = connect.keep_alive_s
        self._version = connect.version
        self._automatic = automatic
        own = connect.properties
        self._reader = PacketReader(own.maximum_packet_size or NO_LIMIT_BYTES)
        self._reader.shortest_lengths = self._version is Version.V5
        self._most_unacknowledged = own.receive_maximum or MAX_PACKET_ID
        self._limits = NO_PROPERTIES
        """The properties of the CONNACK."""
        self._outbox = bytearray(encode(self._version, connect))
        self._events: list[ClientEvent] = []
        self._in_flight: set[int] = set()
        """Publications sent on this connection and not complete: the server limits their number."""
        self._to_resend: deque[Publication] = deque()
        self._unacknowledged: dict[int, int] = {}
        """QoS of arrived messages by packet id, until they are acknowledged and, with QoS 2, released."""
        self._requests: dict[int, Subscribe | Unsubscribe] = {}
        self._aliases: dict[int, str] = {}
        self._last_sent: float | None = None
        self._ping_sent: float | None = None
        self._pings: deque[bool] = deque()
        """Pings without an answer, in order: whether the user sent them."""
        self.state.requested.clear()

    # Bytes, events and time

    def data_to_send(self, now: float) -> bytes:
        """The bytes to write to the socket now, which are then taken as written."""
        if self._outbox:
            self._last_sent = now
        data = bytes(self._outbox)
        self._outbox.clear()
        return data

    def events_received(self) -> list[ClientEvent]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def feed(self, data: Buffer) -> None:
        """Take bytes from the server. Raises ServerBreachError, after the events before the error are noted."""
        if self.phase is ClientPhase.CLOSED:
            return
        try:
            for first, body in self._reader.feed(data):
                if not self._take(decode(self._version, first, body)):
                    return
        except PacketError as error:
            raise self._breach(error.reason, str(error)) from None

    @property
    def deadline(self) -> float | None:
        """When `check` must be called next; None if never."""
        if self.phase is not ClientPhase.OPEN or not self.keep_alive_s:
            return None
        since = self._ping_sent if self._ping_sent is not None else self._last_sent
        return None if since is None else since + self.keep_alive_s

    def check(self, now: float) -> None:
        """Ping the server if nothing was sent for a keep-alive. Raises ServerBreachError if a ping has no answer."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return
        if self._ping_sent is not None:
            raise self._breach(Reason.KEEP_ALIVE_TIMEOUT, f"no PINGRESP within {self.keep_alive_s:g} s")
        self._send_ping(now, of_user=False)

    # Calls

    def publish(
        self, topic: str, payload: Buffer, qos: int = 0, retain: bool = False, properties: Properties = NO_PROPERTIES
    ) -> Publication | None:
        """Publish a message. With QoS 1 or 2 returns the publication of later events; it may wait for the server.

        With QoS 1 and 2 it may be called before Opened. Raises CallError, also if the server does not take such a
        message, and EncodeError.
        """
        if qos not in (0, 1, 2):
            raise CallError(f"QoS must be 0 to 2, got {qos}")
        if properties.topic_alias is not None:
            raise CallError("a publication must name its topic: topic aliases are not supported")
        _checked_name(topic)
        publication = Publication(topic, payload, qos, retain, properties)
        if qos == 0 or self.phase is ClientPhase.CLOSED:
            self._must_be_open("publish")
        # Encoded here as well, so that a value without a form on the wire is refused in the caller's face.
        data = self._encoded(publication, 1 if qos else 0)
        reason = self._unfit(publication, len(data))
        if reason is not None:
            size = f" of {len(data):,} bytes with its head" if reason is Reason.PACKET_TOO_LARGE else ""
            raise CallError(f"the server takes no such message{size}: {words_of(reason)}{self._limit_of(reason)}")
        if qos == 0:
            self._outbox += data
            return None
        self.state.add(publication)
        self._send_waiting()
        return publication

    def subscribe(self, *subscriptions: Subscription, properties: Properties = NO_PROPERTIES) -> int:
        """Returns the packet id of the Subscribed that will follow. Raises CallError and EncodeError."""
        for subscription in subscriptions:
            _checked_filter(subscription.filter)
        return self._request(Subscribe(self._request_id("subscribe", subscriptions), subscriptions, properties))

    def unsubscribe(self, *filters: str, properties: Properties = NO_PROPERTIES) -> int:
        """Returns the packet id of the Unsubscribed that will follow. Raises CallError and EncodeError."""
        for topic_filter in filters:
            _checked_filter(topic_filter)
        return self._request(Unsubscribe(self._request_id("unsubscribe", filters), filters, properties))

    def acknowledge(self, message: Arrived, reason: Reason = Reason.SUCCESS) -> None:
        """Acknowledge a message of this connection. Needed unless `automatic`; nothing happens with QoS 0."""
        self._must_be_open("acknowledge")
        if message.qos == 0:
            return
        if message.packet_id not in self._unacknowledged or message.packet_id in self.state.received:
            raise CallError(f"a message is acknowledged once, got packet id {message.packet_id} again")
        self._answer(message.packet_id, message.qos, reason)

    def ping(self, now: float) -> None:
        """Ask the server for a sign of life: Ponged follows when it has read everything that was sent before."""
        self._must_be_open("ping")
        self._send_ping(now, of_user=True)

    def disconnect(self, reason: Reason = Reason.SUCCESS, properties: Properties = NO_PROPERTIES) -> None:
        """Say good-bye: the server publishes no will, unless the reason is DISCONNECT_WITH_WILL."""
        self._must_be_open("disconnect")
        self._send(Disconnect(reason, properties))
        self.phase = ClientPhase.CLOSED

    # Packets of the server

    def _take(self, packet: Packet) -> bool:
        """Whether the connection goes on."""
        if isinstance(packet, Connack):
            self._connack(packet)
        elif self.phase is ClientPhase.CONNECTING:
            raise self._breach(Reason.PROTOCOL_ERROR, f"a {type(packet).__name__} before the CONNACK")
        elif isinstance(packet, Publish):
            self._publish(packet)
        elif isinstance(packet, Puback | Pubrec | Pubcomp):
            self._acknowledged(packet)
        elif isinstance(packet, Pubrel):
            self._pubrel(packet)
        elif isinstance(packet, Suback | Unsuback):
            self._granted(packet)
        elif isinstance(packet, Pingresp):
            self._pingresp()
        elif isinstance(packet, Disconnect) and self._version is Version.V5:
            self.phase = ClientPhase.CLOSED
            self._events.append(Ended(packet.reason, packet.properties))
        else:
            # An AUTH as well: no CONNECT of ours asks for an exchange that would have one.
            raise self._breach(Reason.PROTOCOL_ERROR, f"a server must not send {type(packet).__name__}")
        return self.phase is not ClientPhase.CLOSED

    def _connack(self, packet: Connack) -> None:
        if self.phase is not ClientPhase.CONNECTING:
            raise self._breach(Reason.PROTOCOL_ERROR, "a second CONNACK")
        if packet.reason >= FAILURES:
            self.phase = ClientPhase.CLOSED
            self._events.append(Refused(packet.reason, packet.properties))
            return
        if packet.session_present and self.connect.clean_start:  # [MQTT-3.2.2-2]
            raise self._breach(Reason.PROTOCOL_ERROR, "a session is present after a clean start")
        self.phase = ClientPhase.OPEN
        self._limits = packet.properties
        if packet.properties.server_keep_alive_s is not None:  # [MQTT-3.1.2-21]
            self.keep_alive_s = packet.properties.server_keep_alive_s
        discarded = () if packet.session_present else self.state.discard()
        self._events.append(Opened(packet.session_present, packet.properties, discarded))
        self._resume()

    def _resume(self) -> None:
        """Send again what was not acknowledged, in the original order [MQTT-4.4.0-1], [MQTT-4.6.0-1]."""
        for publication in self.state.sent.values():
            if publication.phase is PublicationPhase.RELEASED:
                self._in_flight.add(publication.packet_id)
                self._outbox += encode_ack(Kind.PUBREL, self._version, publication.packet_id)
            else:
                self._to_resend.append(publication)
        self._send_waiting()

    def _publish(self, packet: Publish) -> None:
        topic = self._resolved(packet)
        packet_id = packet.packet_id
        if packet.qos:
            if packet.qos == 2 and packet_id in self.state.received:
                self._unacknowledged[packet_id] = 2
                self._outbox += encode_ack(Kind.PUBREC, self._version, packet_id)
                return
            self._unacknowledged[packet_id] = packet.qos
            if len(self._unacknowledged) > self._most_unacknowledged:
                most = self._most_unacknowledged
                raise self._breach(
                    Reason.RECEIVE_MAXIMUM_EXCEEDED,
                    f"at most {most} messages may be unacknowledged, got {most + 1}",
                )
        payload = bytes(packet.payload)
        self._events.append(
            Arrived(topic, payload, packet.qos, packet.retain, packet.dup, packet_id, packet.properties)
        )
        if packet.qos and self._automatic:
            self._answer(packet_id, packet.qos, Reason.SUCCESS)

    def _resolved(self, packet: Publish) -> str:
        """The topic of a message, which may stand for an alias (5.0 §3.3.2.3.4)."""
        alias = packet.properties.topic_alias
        if alias is None:
            return packet.topic
        most = self.connect.properties.topic_alias_maximum or 0
        if alias > most:  # [MQTT-3.3.2-10]
            raise self._breach(Reason.TOPIC_ALIAS_INVALID, f"a topic alias must be at most {most}, got {alias}")
        if packet.topic:
            self._aliases[alias] = packet.topic
        elif alias not in self._aliases:
            raise self._breach(Reason.PROTOCOL_ERROR, f"topic alias {alias} stands for nothing")
        return self._aliases[alias]

    def _answer(self, packet_id: int, qos: int, reason: Reason) -> None:
        kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
        self._outbox += encode_ack(kind, self._version, packet_id, reason)
        if qos == 2 and (reason < FAILURES or self._version is not Version.V5):
            self.state.received.add(packet_id)
        else:
            del self._unacknowledged[packet_id]

    def _pubrel(self, packet: Pubrel) -> None:
        known = packet.packet_id in self.state.received
        self.state.received.discard(packet.packet_id)
        self._unacknowledged.pop(packet.packet_id, None)
        reason = Reason.SUCCESS if known else Reason.PACKET_IDENTIFIER_NOT_FOUND
        self._outbox += encode_ack(Kind.PUBCOMP, self._version, packet.packet_id, reason)

    def _pingresp(self) -> None:
        of_user = self._pings.popleft() if self._pings else False
        if not self._pings:
            self._ping_sent = None
        if of_user:
            self._events.append(Ponged())

    def _acknowledged(self, packet: Puback | Pubrec | Pubcomp) -> None:
        """An acknowledgement that is unknown belongs to an earlier session; one that does not fit is an error."""
        packet_id = packet.packet_id
        publication = self.state.sent.get(packet_id)
        if publication is None or packet_id not in self._in_flight:
            if isinstance(packet, Pubrec) and packet.reason < FAILURES:
                self._outbox += encode_ack(
                    Kind.PUBREL, self._version, packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND
                )  # §4.3.3
            return
        released = publication.phase is PublicationPhase.RELEASED
        fitting = Puback if publication.qos == 1 else Pubcomp if released else Pubrec
        if isinstance(packet, Pubrec) and released:  # it asks again for the PUBREL
            self._outbox += encode_ack(Kind.PUBREL, self._version, packet_id)
        elif not isinstance(packet, fitting):  # [MQTT-4.13.1-1]
            raise self._breach(
                Reason.PROTOCOL_ERROR, f"{type(packet).__name__} for {publication}: it must be {fitting.__name__}"
            )
        elif isinstance(packet, Pubrec) and packet.reason < FAILURES:
            publication.phase = PublicationPhase.RELEASED
            self._events.append(Acknowledged(publication, packet.reason))
            self._outbox += encode_ack(Kind.PUBREL, self._version, packet_id)
        else:
            if not released:
                self._events.append(Acknowledged(publication, packet.reason))
            self._complete(publication)
            self._send_waiting()

    def _complete(self, publication: Publication) -> None:
        self._in_flight.discard(publication.packet_id)
        self.state.complete(publication)
        self._events.append(Completed(publication))

    def _granted(self, packet: Suback | Unsuback) -> None:
        request = self._requests.pop(packet.packet_id, None)
        name = type(packet).__name__
        if request is None or isinstance(request, Subscribe) is not isinstance(packet, Suback):
            raise self._breach(Reason.PROTOCOL_ERROR, f"{name} for packet id {packet.packet_id}, which asked for none")
        self.state.requested.discard(packet.packet_id)
        count = len(request.subscriptions if isinstance(request, Subscribe) else request.filters)
        reasons = packet.reasons
        if isinstance(packet, Unsuback) and self._version is not Version.V5:
            reasons = (Reason.SUCCESS,) * count
        if len(reasons) != count:  # [MQTT-3.9.3-1]
            raise self._breach(Reason.PROTOCOL_ERROR, f"{name} must have {count} reasons, got {len(reasons)}")
        if isinstance(request, Subscribe):
            self._events.append(Subscribed(packet.packet_id, request.subscriptions, reasons, packet.properties))
        else:
            self._events.append(Unsubscribed(packet.packet_id, request.filters, reasons, packet.properties))

    # Packets to the server

    def _send(self, packet: Packet) -> None:
        self._outbox += encode(self._version, packet)

    def _send_ping(self, now: float, *, of_user: bool) -> None:
        self._ping_sent = now
        self._pings.append(of_user)
        self._send(Pingreq())

    def _request_id(self, call: str, entries: tuple[Subscription, ...] | tuple[str, ...]) -> int:
        self._must_be_open(call)
        if not entries:
            raise CallError(f"{call} needs at least one filter, got none")
        return self.state.free_id()

    def _request(self, packet: Subscribe | Unsubscribe) -> int:
        self._send(packet)
        self._requests[packet.packet_id] = packet
        self.state.requested.add(packet.packet_id)
        return packet.packet_id

    def _encoded(self, publication: Publication, packet_id: int, dup: bool = False) -> bytes:
        return encode(
            self._version,
            Publish(
                publication.topic,
                publication.payload,
                publication.qos,
                publication.retain,
                dup,
                packet_id,
                publication.properties,
            ),
        )

    def _unfit(self, publication: Publication, size_bytes: int) -> Reason | None:
        """Why the server takes no such message, by its CONNACK."""
        limits = self._limits
        if size_bytes > (limits.maximum_packet_size or NO_LIMIT_BYTES):  # [MQTT-3.2.2-15]
            return Reason.PACKET_TOO_LARGE
        if limits.maximum_qos is not None and publication.qos > limits.maximum_qos:  # [MQTT-3.2.2-11]
            return Reason.QOS_NOT_SUPPORTED
        if limits.retain_available == 0 and publication.retain:  # [MQTT-3.2.2-14]
            return Reason.RETAIN_NOT_SUPPORTED
        return None

    def _limit_of(self, reason: Reason) -> str:
        limits = self._limits
        if reason is Reason.PACKET_TOO_LARGE:
            return f", at most {limits.maximum_packet_size or NO_LIMIT_BYTES:,} bytes"
        return f", at most {limits.maximum_qos}" if reason is Reason.QOS_NOT_SUPPORTED else ""

    def _send_waiting(self) -> None:
        """Send publications while the server takes further ones (5.0 §4.9)."""
        if self.phase is not ClientPhase.OPEN:
            return
        most = self._limits.receive_maximum or MAX_PACKET_ID
        while len(self._in_flight) < most:
            if self._to_resend:
                publication, again = self._to_resend.popleft(), True
            elif self.state.waiting and self.state.has_free_id():
                publication, again = self.state.waiting.popleft(), False
                publication.packet_id = self.state.free_id()
            else:
                return
            data = self._encoded(publication, publication.packet_id, again)
            reason = self._unfit(publication, len(data))
            if reason is not None:
                self._events.append(Acknowledged(publication, reason))
                self._complete(publication)
                continue
            publication.phase = PublicationPhase.SENT
            self.state.sent[publication.packet_id] = publication
            self._in_flight.add(publication.packet_id)
            self._outbox += data

    def _must_be_open(self, call: str) -> None:
        if self.phase is not ClientPhase.OPEN:
            raise CallError(f"{call} needs an open connection, got one that is {self.phase.name.lower()}")

    def _breach(self, reason: Reason, text: str) -> ServerBreachError:
        was_open, self.phase = self.phase is ClientPhase.OPEN, ClientPhase.CLOSED
        if was_open and self._version is Version.V5:
            try:
                self._send(Disconnect(reason))
            except EncodeError:  # a DISCONNECT does not have every reason that a server's packet may be refused with
                self._send(Disconnect(Reason.PROTOCOL_ERROR))
        return ServerBreachError(reason, text)


def _checked_name(topic: str) -> None:
    try:
        check_topic_name(topic)
    except PacketError as error:
        raise CallError(str(error)) from None


def _checked_filter(topic_filter: str) -> None:
    try:
        check_filter(topic_filter)
    except PacketError as error:
        raise CallError(str(error)) from None
