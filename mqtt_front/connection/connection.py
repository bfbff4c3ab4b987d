"""The connection of one client: how the client is admitted, and how its connection ends.

Owns the phase of the connection and its three parts: `reader` turns bytes into packets, `handlers` has a method for
each packet, `writer` gathers the bytes to send. No socket and no clock: the shell calls `feed` with the bytes that
arrive, sends the bytes of `writer`, and calls `lost` when the socket is gone. Sessions and messages are the
broker's.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from ringmq.mqtt_front.access.access import Decision
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.cluster import Enrolment, Standing
from ringmq.mqtt_front.codec.decode import decode
from ringmq.mqtt_front.codec.encode import encode
from ringmq.mqtt_front.codec.packets import Connect, Disconnect, Kind, Properties, Version
from ringmq.mqtt_front.codec.reasons import DISCONNECT_REASONS, Reason
from ringmq.mqtt_front.connection.handlers import Handlers
from ringmq.mqtt_front.connection.keep_alive import keep_alive_s
from ringmq.mqtt_front.connection.opening import (
    allows_will,
    check_connect,
    connack,
    refusal,
    session_expiry_s,
    version_of_refusal,
    will_of,
)
from ringmq.mqtt_front.connection.phase import Event, Phase, after
from ringmq.mqtt_front.connection.reader import Reader
from ringmq.mqtt_front.connection.writer import Owner, Writer
from ringmq.mqtt_front.errors import PacketError, ProtocolBreachError, UnsupportedVersionError
from ringmq.mqtt_front.sessions.moving_session import MovingSession
from ringmq.mqtt_front.sessions.session import Session

__all__ = ["Connection", "Gate"]


class Gate(Protocol):
    """Decides on a CONNECT, now or later, by calling `Connection.admitted`."""

    def decide(self, connection: Connection, connect: Connect, client_id: str) -> None: ...
    def new_client_id(self) -> str: ...


class Connection:
    """Create when a client connects; `feed` it; call `lost` once, at the end."""

    __slots__ = (
        "__weakref__",
        "_connect",
        "_gate",
        "anonymous_allowed",
        "broker",
        "client_id",
        "decision",
        "gone",
        "handlers",
        "keep_alive_s",
        "opened_at",
        "phase",
        "reader",
        "why",
        "writer",
    )

    def __init__(self, broker: Broker, gate: Gate, anonymous_allowed: bool) -> None:
        self.broker = broker
        self._gate = gate
        owner: weakref.ref[Owner] = weakref.ref(self)
        self.writer = Writer(broker, owner)
        self.handlers = Handlers(broker, owner, self.writer)
        self.reader = Reader(broker, self.handlers, self.writer)
        self.phase = Phase.NEW
        self.client_id = ""
        self.anonymous_allowed = anonymous_allowed
        self.opened_at = broker.clock.now
        self.keep_alive_s = 0
        self.decision: Decision | None = None
        self.gone = False
        """The socket is closed. The connection ends once all that came before is processed."""
        self.why = ""
        """Why the server closed it; empty if it did not."""
        self._connect: Connect | None = None

    @property
    def session(self) -> Session | None:
        return self.handlers.session

    @property
    def pausing(self) -> bool:
        """Do not read from the client now: it has used up its budget, waits for its admission and goes on sending, or
        has too many publications unanswered."""
        return self.reader.pauses or self.handlers.full

    def opened(self) -> None:
        """The socket is there: the time that the client has for its CONNECT begins now."""
        self.opened_at = self.broker.clock.now
        self.reader.hear()

    def feed(self, data: bytes) -> None:
        """Process bytes of the client. An error in them closes the connection and raises nothing."""
        self.broker.counters.bytes_received += len(data)
        try:
            if self.phase is Phase.OPEN:
                self.reader.read(data)
            else:
                self._feed_early(data)
        except PacketError as error:
            self._fail_for(error)

    def _feed_early(self, data: bytes) -> None:
        """Process what comes before the client is admitted: the CONNECT, and packets that follow it at once."""
        reader = self.reader
        data, at = reader.take_rest(data), 0
        reader.begin_iteration()
        while at < len(data):
            if self.phase is Phase.NEW:
                at = reader.packet(data, at, self._open)
            elif self.phase is Phase.DECIDING:
                reader.keep(data[at:])
                return
            elif self.phase is Phase.ENROLLING:
                # The rest stays in the socket, as this may take seconds. What has come counts, even if the client goes.
                reader.keep(data[at:])
                reader.behind = True
                return
            elif self.phase is Phase.OPEN:
                # The gate has decided within `_open`, so the packets behind the CONNECT are not early any more.
                reader.read(data[at:])
                return
            else:
                return

    def _fail_for(self, error: PacketError) -> None:
        """Close because of an error in the client's bytes."""
        error.with_traceback(None)  # The packet reader keeps the error, whose frames would keep this connection.
        if self.phase is Phase.OPEN:
            self.broker.counters.protocol_errors += 1
        self.fail(error.reason, str(error))

    def _open(self, first: int, body: memoryview) -> None:
        """Handle the first packet. Raises PacketError if it is no CONNECT, or none that can be accepted."""
        if first >> 4 != Kind.CONNECT:  # [MQTT-3.1.0-1]
            raise ProtocolBreachError("the first packet is not a CONNECT")
        try:
            connect = decode(self.writer.version, first, body)
        except UnsupportedVersionError as error:
            self.writer.speak(version_of_refusal(error.level))
            self._refuse(error.reason)
            raise
        assert isinstance(connect, Connect)
        self._connect = connect
        self.writer.speak(connect.version)
        self.reader.check_lengths(connect.version is Version.V5)
        check_connect(connect, self.broker.config)
        self.client_id = connect.client_id or self._new_client_id()
        self.phase = after(self.phase, Event.CONNECT_RECEIVED)
        self._gate.decide(self, connect, self.client_id)

    def _new_client_id(self) -> str:
        """A client id that no session has [MQTT-3.2.2-16], as a client may have chosen a likely one for itself."""
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
        if not self.broker.counters.authorized(allows_will(connect, decision.rights)):
            self.fail(Reason.NOT_AUTHORIZED, "no right to the topic of its will")
            return
        if not self.broker.has_room_for(self.client_id):
            self.fail(Reason.SERVER_BUSY, "too many sessions")
            return
        self.decision = decision
        self.phase = after(self.phase, Event.ADMITTED)
        self._enrol(connect, decision)

    def _enrol(self, connect: Connect, decision: Decision) -> None:
        """Have the cluster end other connections with this client id, before the client is served."""
        broker, config, properties, writer = self.broker, self.broker.config, connect.properties, self.writer
        writer.face(
            properties.receive_maximum or config.max_inflight,
            properties.maximum_packet_size,
            properties.topic_alias_maximum or 0,
        )
        # This precedes the enrolment, which takes the session over from an earlier connection with this id.
        # Whether a session is present is known only after `broker.begin`; the size is the same either way.
        if not writer.takes(encode(connect.version, connack(connect, config, True, self.client_id))):
            self.fail(Reason.PACKET_TOO_LARGE, "it takes no CONNACK")
            return
        kept = session_expiry_s(connect, config) > 0
        enrolment = Enrolment(self.client_id, decision.user_name, connect.clean_start, kept, config.enrol_timeout_s)
        if connect.client_id:
            broker.enrol(enrolment, writer, self._settled)
            if self.reader.behind:
                # The cluster has answered at once, and is in no call.
                self.go_on()
            return
        # Nobody else has an id that this front has made. Its client may use it elsewhere later, if the session lasts.
        if kept:
            broker.cluster.enrol(enrolment, _nobody_waits)
        self._settled(Standing.CURRENT)

    def _settled(self, standing: Standing, moving: MovingSession | None = None) -> None:
        """The cluster has answered: serve the client, unless it has lost its client id meanwhile, or has gone."""
        connect, decision = self._connect, self.decision
        if self.phase is not Phase.ENROLLING:
            return
        assert connect is not None
        assert decision is not None
        if standing is Standing.FOREIGN:
            self.fail(Reason.NOT_AUTHORIZED, "the client id belongs to another user")
        elif standing is Standing.SUPERSEDED:
            self.fail(Reason.SESSION_TAKEN_OVER, "another client has connected with this id")
        else:
            if moving is not None:
                self.broker.moves.adopt(self.client_id, moving, decision.rights, decision.user_name)
            self._begin(connect, decision, stale=standing is Standing.STALE and moving is None)
            if not self.reader.idle:
                # Packets that came before the CONNACK wait for the next iteration: the cluster may be in a call.
                self.reader.postpone()

    def _begin(self, connect: Connect, decision: Decision, stale: bool) -> None:
        """`stale`: another front has had a later session of the client, and gives none."""
        broker, config, writer = self.broker, self.broker.config, self.writer
        expiry_s = session_expiry_s(connect, config)
        waiting = broker.moves.take_back(self.client_id, decision.user_name, stale)
        session, present = broker.begin(
            self.client_id, connect.clean_start, decision.rights, decision.user_name, expiry_s, will_of(connect)
        )
        if waiting and not connect.clean_start:
            broker.moves.arrive(self.client_id, waiting, last=False)
        self.handlers.begin(session)
        broker.end_enrolling(self.client_id, writer)
        self.phase = after(self.phase, Event.SETTLED)
        self.keep_alive_s = keep_alive_s(connect, config)
        # The session gets its writer only after this: no message may overtake the CONNACK [MQTT-3.2.0-1].
        writer.send(encode(connect.version, connack(connect, config, present, self.client_id)))
        broker.counters.connections += 1
        self._connect = None
        session.attach(writer, broker.clock.now)

    def block(self) -> None:
        """The client does not read."""
        self.writer.block()

    def unblock(self) -> None:
        """The client reads again; call `go_on`."""
        self.writer.unblock()

    def go_on(self) -> None:
        """Send and process more. The shell calls this when the outbox has been emptied and the writer is `starved`."""
        reader = self.reader
        reader.begin_iteration()
        self.handlers.go_on()
        if reader.behind:
            reader.resume()
            self.feed(b"")
            if not reader.behind:
                self.handlers.reconsider()
        if self.gone and not reader.behind:
            self.close(will=True)

    def renewed(self, decision: Decision) -> bool:
        """Apply the decision by changed rules to the open connection. False: it refuses the client, which is closed."""
        session = self.session
        assert session is not None
        self.decision = decision
        if decision.reason is Reason.SUCCESS:
            self.broker.restrict(session, decision.rights)
            return True
        # Before the end, so that the will is not published: the user has no right to its topic any more.
        session.restrict(decision.rights)
        self.fail(decision.reason, "the access rules have changed")
        return False

    def fail(self, reason: Reason, text: str) -> None:
        """Close because of an error of the client, or for a reason of the server's own."""
        if self.phase is Phase.CLOSED:
            return
        self.why = text
        if self.phase is Phase.OPEN:
            # In MQTT 3 only clients send a DISCONNECT (3.1.1 §3.14).
            if self.writer.v5:
                self._say_goodbye(reason if reason in DISCONNECT_REASONS else Reason.UNSPECIFIED_ERROR, text)
        else:
            self.broker.counters.refused += 1
            if self._connect is not None:  # A server that has read no CONNECT must not send a CONNACK.
                self._refuse(reason)
        self.close(will=True)

    def _say_goodbye(self, reason: Reason, text: str) -> None:
        """Send a DISCONNECT, with the text only if the client takes as much [MQTT-3.14.2-3]."""
        writer = self.writer
        for properties in (Properties(reason_string=text), Properties()):
            packet = encode(writer.version, Disconnect(reason, properties))
            if writer.takes(packet):
                writer.send(packet)
                return

    def _refuse(self, reason: Reason) -> None:
        writer = self.writer
        answer = refusal(writer.version, reason)
        if answer is not None:
            packet = encode(writer.version, answer)
            if writer.takes(packet):
                writer.send(packet)

    def lost(self) -> None:
        """The socket is gone without a DISCONNECT. The shell calls this at the end in any case.

        Packets that came before count, a DISCONNECT above all: while the reader is `behind`, the connection goes on,
        and closes by itself then.
        """
        self.gone = True
        if not self.reader.behind:
            self.close(will=True)

    def close(self, will: bool) -> None:
        """End the connection; `will` says whether the client's will is published."""
        if self.phase is Phase.CLOSED:
            return
        self.phase = after(self.phase, Event.ENDED)
        self.reader.stop()
        self.writer.close()
        session = self.handlers.end()
        if session is None:
            self.broker.end_enrolling(self.client_id, self.writer)
        elif session.writer is self.writer:
            self.broker.gone(session, will)


def _nobody_waits(standing: Standing, moving: MovingSession | None = None) -> None:
    """A client id that this front has made is nobody else's."""
