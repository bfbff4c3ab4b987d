"""One client's connection: its packets in, its packets out, and the rules of MQTT between them.

Bytes come in by `feed`; bytes to send gather in `out`, and `closing` says to close after them. No socket and no clock:
the shell moves the bytes, and calls `lost` when the connection is gone. Sessions and messages are the broker's.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Protocol

from mqtt_front.access import Decision
from mqtt_front.acl import ALL_RIGHTS
from mqtt_front.broker import Broker
from mqtt_front.codec_in import decode
from mqtt_front.codec_out import encode, encode_publish
from mqtt_front.conversation import Conversation
from mqtt_front.errors import PacketError, ProtocolBreachError, UnsupportedVersionError
from mqtt_front.message import Message
from mqtt_front.opening import check_connect, connack, keep_alive_s, refusal, session_expiry_s
from mqtt_front.packets import Buffer, Connect, Disconnect, Kind, Properties, Version
from mqtt_front.reasons import DISCONNECT_REASONS, Reason
from mqtt_front.stream import PacketReader
from mqtt_front.topics import is_of_the_server

EARLY_BYTES: Final = 100
"""What a packet before the decision takes of the memory, besides its body."""


class Phase(Enum):
    """What the connection waits for."""

    NEW = auto()
    """Its CONNECT."""
    DECIDING = auto()
    """The decision whether it may; what it sends meanwhile is kept."""
    OPEN = auto()
    CLOSED = auto()


class Gate(Protocol):
    """Who decides on a CONNECT, now or later, by calling `Connection.admitted`."""

    def decide(self, connection: Connection, connect: Connect, client_id: str) -> None: ...
    def new_client_id(self) -> str: ...


class Connection(Conversation):
    """Create when a client connects; `feed` it; call `lost` once, at the end."""

    __slots__ = (
        "_connect",
        "_early",
        "_early_bytes",
        "_gate",
        "_limit",
        "_reader",
        "anonymous_allowed",
        "decision",
        "heard_at",
        "keep_alive_s",
        "opened_at",
        "phase",
        "why",
    )

    def __init__(self, broker: Broker, gate: Gate, anonymous_allowed: bool) -> None:
        super().__init__(broker)
        config = broker.config
        self._gate = gate
        self.anonymous_allowed = anonymous_allowed
        self.phase = Phase.NEW
        self.opened_at = self.heard_at = broker.now
        self.keep_alive_s = 0
        self.decision: Decision | None = None
        self.why = ""
        """Why the server closed it; empty if it did not."""
        self._limit = config.max_packet_bytes
        self._reader = PacketReader(config.max_packet_bytes)
        self._connect: Connect | None = None
        self._early: list[tuple[int, bytes]] = []
        self._early_bytes = 0

    # Bytes in

    def feed(self, data: bytes) -> None:
        """What the client has sent. Never raises for what a client does: it closes the connection instead."""
        self.heard_at = self.broker.now
        self.broker.counters.bytes_received += len(data)
        try:
            if self.phase is Phase.OPEN and not self._reader.buffered_bytes:
                self._run(data)
            elif self.phase is not Phase.CLOSED:
                self._read(data)
        except PacketError as error:
            self._thrown_out(error)

    def _thrown_out(self, error: PacketError) -> None:
        if self.phase is Phase.OPEN:
            self.broker.counters.protocol_errors += 1
        self.fail(error.reason, str(error))

    def _read(self, data: bytes) -> None:
        """The general way: packets one by one, from a reader that keeps an incomplete one."""
        for first, body in self._reader.feed(data):
            if self.phase is Phase.OPEN:
                self.take(first, body)
            elif self.phase is Phase.NEW:
                self._open(first, body)
            elif self.phase is Phase.DECIDING:
                self._keep_for_later(first, body)

    def _keep_for_later(self, first: int, body: memoryview) -> None:
        """Packets may follow a CONNECT at once (5.0 §3.1.4); they wait for the decision, within one packet's bound."""
        self._early.append((first, bytes(body)))
        self._early_bytes += len(body) + EARLY_BYTES
        if self._early_bytes > self._limit:
            raise PacketError(Reason.PACKET_TOO_LARGE, "too much before the CONNACK")

    def _run(self, data: bytes) -> None:
        """The way of most bytes: whole packets of up to 16 kB, plain publications without another function call.

        What it does not know (long packets, odd lengths, a packet that is not all there) goes to the reader.
        """
        at, size, limit = 0, len(data), self._limit - 3
        view = memoryview(data)
        plain_end = self.plain_in
        while at + 1 < size:
            length = data[at + 1]
            start = at + 2
            if length >= 0x80:
                if start >= size or not 0 < data[start] < 0x80:
                    break
                length = length & 0x7F | data[start] << 7
                start += 1
            end = start + length
            if end > size or length > limit:
                break
            first = data[at]
            if first != 0x30 or not plain_end or not self._plain(data, at, start, end):
                self.take(first, view[start:end])
                if self.phase is not Phase.OPEN:
                    return
                plain_end = self.plain_in
            at = end
        if at < size:
            self._read(data[at:] if at else data)

    @property
    def plain_in(self) -> bool:
        """Whether its publications need no check of rights."""
        return self.rights is ALL_RIGHTS

    def _plain(self, data: bytes, at: int, start: int, end: int) -> bool:
        """A PUBLISH with QoS 0, not retained, without properties, to receivers that want nothing special.

        False: it is not that, and nothing has been done.
        """
        broker = self.broker
        after = start + 2 + (data[start] << 8 | data[start + 1]) if end - start > 2 else end + 1
        v5 = self.v5
        if after > end or (v5 and (after == end or data[after])):
            return False
        topic = data[start + 2 : after]
        if topic[:1] == b"$" or not topic:
            return False
        try:
            plan = broker.plan(topic)
        except UnicodeDecodeError:
            return False
        if plan.slow or plan.groups or not broker.plain_ports:
            return False
        counters = broker.counters
        counters.publish_received += 1
        counters.messages_received += 1
        same = data[at:end]
        other: bytes | None = None
        dirty = broker.dirty
        sent = 0
        for session in plan.quick:
            line = session.line
            if line is None:
                continue
            if not line.plain:
                session.deliver(Message(plan.topic, bytes(data[after + v5 : end])), 0, False, ())
                continue
            if line.v5 == v5:
                line.out.append(same)
            else:
                if other is None:
                    version = Version.V311 if v5 else Version.V5
                    other = encode_publish(version, topic, data[after + v5 : end])
                line.out.append(other)
            sent += 1
            if not line.dirty:
                line.dirty = True
                dirty.append(line)
        counters.publish_sent += sent
        counters.messages_sent += sent
        return True

    # Opening

    def _open(self, first: int, body: Buffer) -> None:
        if first >> 4 != Kind.CONNECT:  # [MQTT-3.1.0-1]
            raise ProtocolBreachError("the first packet is not a CONNECT")
        try:
            connect = decode(self.version, first, body)
        except UnsupportedVersionError as error:
            # In the form nearest to what the client reads: none knows more than it speaks.
            self.version = Version.V5 if error.level > Version.V5 else Version.V311
            self._refuse(error.reason)
            raise
        assert isinstance(connect, Connect)
        self._connect = connect
        self.version, self.v5 = connect.version, connect.version is Version.V5
        self._reader.shortest_lengths = self.v5
        check_connect(connect, self.broker.config)
        self.client_id = connect.client_id or self._new_client_id()
        self.phase = Phase.DECIDING
        self._gate.decide(self, connect, self.client_id)

    def _new_client_id(self) -> str:
        """One that no session has [MQTT-3.2.2-16]: also none that took a likely one for itself."""
        while True:
            client_id = self._gate.new_client_id()
            if client_id not in self.broker.sessions:
                return client_id

    def admitted(self, decision: Decision) -> None:
        """The decision on the CONNECT has been made; nothing happens if the client has gone meanwhile."""
        if self.phase is not Phase.DECIDING:
            return
        if decision.reason is not Reason.SUCCESS:
            self.fail(decision.reason, "refused")
            return
        connect = self._connect
        assert connect is not None
        will = connect.will
        if will is not None and (is_of_the_server(will.topic) or not decision.rights.may_write(will.topic)):
            self.broker.counters.unauthorized += 1
            self.fail(Reason.NOT_AUTHORIZED, "no right to the topic of its will")
            return
        if not self.broker.has_room_for(self.client_id):
            self.fail(Reason.SERVER_BUSY, "too many sessions")
            return
        self.decision, self.rights = decision, decision.rights
        self._begin(connect, decision.user_name)
        early, self._early = self._early, []
        try:
            for first, body in early:
                if not self.closing:
                    self.take(first, memoryview(body))
        except PacketError as error:
            self._thrown_out(error)

    def _begin(self, connect: Connect, user: str | None) -> None:
        broker, config, properties = self.broker, self.broker.config, connect.properties
        self.face(
            connect.version,
            properties.receive_maximum or config.max_inflight,
            properties.maximum_packet_size,
            properties.topic_alias_maximum or 0,
        )
        if not self._takes(encode(self.version, connack(connect, config, True, self.client_id))):
            self.fail(Reason.PACKET_TOO_LARGE, "it takes no CONNACK")
            return
        session, present = broker.begin(self.client_id, connect.clean_start, self.rights, user)
        self.session = session
        self.phase = Phase.OPEN
        self.keep_alive_s = keep_alive_s(connect, config)
        session.expiry_s = session_expiry_s(connect, config)
        session.will = connect.will
        self.send(encode(self.version, connack(connect, config, present, self.client_id)))
        session.line = self
        broker.counters.connections += 1
        self._connect = None
        if present:
            session.resume(broker.now)

    # The end

    def fail(self, reason: Reason, text: str) -> None:
        """Close because of what the client did, or for a reason of the server's own."""
        if self.phase is Phase.CLOSED:
            return
        self.why = text
        if self.phase is Phase.OPEN:
            if self.v5:
                self._say_goodbye(reason if reason in DISCONNECT_REASONS else Reason.UNSPECIFIED_ERROR, text)
        else:
            self.broker.counters.refused += 1
            if self._connect is not None:  # Nothing is said to who sent none.
                self._refuse(reason)
        self.close(will=True)

    def _say_goodbye(self, reason: Reason, text: str) -> None:
        """With the text only if the client takes as much [MQTT-3.14.2-3]."""
        for properties in (Properties(reason_string=text), Properties()):
            packet = encode(self.version, Disconnect(reason, properties))
            if self._takes(packet):
                self.send(packet)
                return

    def _refuse(self, reason: Reason) -> None:
        answer = refusal(self.version, reason)
        if answer is not None:
            packet = encode(self.version, answer)
            if self._takes(packet):
                self.send(packet)

    def lost(self) -> None:
        """The connection is gone without a word. To be called at the end in any case."""
        self.close(will=True)

    def close(self, will: bool) -> None:
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        self.closing = True
        self.plain = False
        if not self.dirty:
            self.dirty = True
            self.broker.dirty.append(self)
        session, self.session = self.session, None
        if session is not None and session.line is self:
            self.broker.gone(session, will)
