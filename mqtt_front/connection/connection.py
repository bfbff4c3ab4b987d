"""One client's connection, whole: how the client is let in, and how it goes.

Bytes come in by `feed`; bytes to send gather in `out`, and `closing` says to close after them. No socket and no clock:
the shell moves the bytes, and calls `lost` when the connection is gone. It stands on three halves of its own:
`mqtt_front.connection.reader` has the bytes in, `mqtt_front.connection.handlers` the packets,
`mqtt_front.connection.writer` the bytes out. Sessions and messages are the broker's.
"""

from __future__ import annotations

from typing import Protocol

from ringmq.mqtt_front.access.access import Decision
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.codec.decode import decode
from ringmq.mqtt_front.codec.encode import encode
from ringmq.mqtt_front.codec.packets import Connect, Disconnect, Kind, Properties, Version
from ringmq.mqtt_front.codec.reasons import DISCONNECT_REASONS, Reason
from ringmq.mqtt_front.connection.opening import check_connect, connack, keep_alive_s, refusal, session_expiry_s
from ringmq.mqtt_front.connection.reader import Phase, Reading
from ringmq.mqtt_front.errors import ProtocolBreachError, UnsupportedVersionError
from ringmq.mqtt_front.matching.topics import is_of_the_server

__all__ = ["Connection", "Gate", "Phase"]


class Gate(Protocol):
    """Who decides on a CONNECT, now or later, by calling `Connection.admitted`."""

    def decide(self, connection: Connection, connect: Connect, client_id: str) -> None: ...
    def new_client_id(self) -> str: ...


class Connection(Reading):
    """Create when a client connects; `feed` it; call `lost` once, at the end."""

    __slots__ = (
        "_connect",
        "_gate",
        "anonymous_allowed",
        "decision",
        "gone",
        "keep_alive_s",
        "opened_at",
        "why",
    )

    def __init__(self, broker: Broker, gate: Gate, anonymous_allowed: bool) -> None:
        super().__init__(broker)
        self._gate = gate
        self.anonymous_allowed = anonymous_allowed
        self.opened_at = broker.clock.now
        self.keep_alive_s = 0
        self.decision: Decision | None = None
        self.gone = False
        """The socket is closed. It is over once what came before is worked off."""
        self.why = ""
        """Why the server closed it; empty if it did not."""
        self._connect: Connect | None = None

    # Opening

    def _open(self, first: int, body: memoryview) -> None:
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
        self.feed(b"")  # What came meanwhile.

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
        expiry_s = session_expiry_s(connect, config)
        session, present = broker.begin(self.client_id, connect.clean_start, self.rights, user, expiry_s, connect.will)
        self.session = session
        self.phase = Phase.OPEN
        self.keep_alive_s = keep_alive_s(connect, config)
        self.send(encode(self.version, connack(connect, config, present, self.client_id)))
        session.line = self
        broker.counters.connections += 1
        self._connect = None
        if present:
            session.resume(broker.clock.now)

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
        """The connection is gone without a word. To be called at the end in any case.

        What it sent before counts, a DISCONNECT above all: while it is `behind`, it goes on, and closes by itself then.
        """
        self.gone = True
        if not self.behind:
            self.close(will=True)

    def go_on(self) -> None:
        super().go_on()
        if self.gone and not self.behind:
            self.close(will=True)

    def close(self, will: bool) -> None:
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        self.closing = True
        self.plain = self.behind = False
        self._rest = b""
        self._replay = None
        if not self.dirty:
            self.dirty = True
            self.broker.dirty.append(self)
        session, self.session = self.session, None
        if session is not None and session.line is self:
            self.broker.gone(session, will)
