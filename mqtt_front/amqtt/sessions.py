"""The clients of amqtt: one connection per client id, one user per session, and nothing left after the end.

Serves clients that `server` admitted, on connections that deliver whole and valid packets. Takes over, ends and resumes
sessions itself, since amqtt does so before it authenticates the client.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.mqtt.pubcomp import PubcompPacket
from amqtt.mqtt.pubrel import PubrelPacket
from amqtt.session import Session

from ringmq.mqtt_front.access.access import Access, Decision
from ringmq.mqtt_front.amqtt.broker import DECISION, RestrictedBroker, rights_of
from ringmq.mqtt_front.amqtt.connection import AmqttConnection
from ringmq.mqtt_front.amqtt.sender import READY
from ringmq.mqtt_front.cluster import Cluster
from ringmq.mqtt_front.codec.packets import Connect, Version
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.opening import will_of
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.listeners import LINGER_S

log = structlog.get_logger("front")


class Handler(BrokerProtocolHandler):  # type: ignore[misc]
    """amqtt's handler, corrected for clients whose packets come in another order than amqtt expects."""

    async def start(self) -> None:
        await super().start()
        if self._reader_stopped.is_set():  # The client has gone, and amqtt would serve it for ever.
            await self.handle_connection_closed()

    async def _retry_deliveries(self) -> None:
        """Does nothing: amqtt's blocks for up to 10 s. `Sender` keeps unsent messages, and clients repeat theirs."""

    async def handle_pubrel(self, pubrel: PubrelPacket) -> None:
        """Answer any PUBREL, also of an earlier connection or when the PUBCOMP was lost [MQTT-4.3.3-2]."""
        packet_id = pubrel.packet_id
        if packet_id in self._pubrel_waiters:
            await super().handle_pubrel(pubrel)
            return
        message = self.session.inflight_in.pop(packet_id, None)
        if message is not None:
            await self.session.delivered_message_queue.put(message)
        await self._send_packet(PubcompPacket.build(packet_id))


class ClientSession(Session):  # type: ignore[misc]
    """The session that amqtt would make of the CONNECT, without will and keep-alive, which are handled here."""

    def __init__(self, connect: Connect, decision: Decision, connection: AmqttConnection) -> None:
        super().__init__()
        self.client_id = decision.client_id
        self.clean_session = connect.clean_start
        self.username = connect.user_name
        # amqtt's plugins expect a text, and a password is bytes that need not be UTF-8 (3.1.1 §3.1.3.5).
        self.password = None if connect.password is None else connect.password.decode(errors="replace")
        self.remote_address: str | None
        self.remote_port: int | None
        self.remote_address, self.remote_port = connection.get_peer_info() or (None, None)
        self.ssl_object = connection.get_ssl_info()
        self.attributes[DECISION] = decision


class SessionBroker(RestrictedBroker):
    """Create, `start`, give it connections to `serve`, and `shutdown`."""

    def __init__(self, settings: dict[str, Any], limits: FrontConfig, access: Access, cluster: Cluster | None) -> None:
        super().__init__(settings, limits, cluster)
        self._access = access
        self._connections: dict[str, AmqttConnection] = {}
        """The connections by client id."""

    async def serve(self, connection: AmqttConnection, connect: Connect, decision: Decision) -> None:
        """Serve an admitted client from its CONNECT to its end. amqtt's plugins may still refuse it."""
        session = ClientSession(connect, decision, connection)
        if not await self._plugins_agree(session):
            connection.refuse(Version.V311, Reason.NOT_AUTHORIZED)
            return
        while (other := self._connections.get(decision.client_id)) is not None:
            self.counters.taken_over += 1  # [MQTT-3.1.4-2]
            await self._end(other)
        # The rules may have changed during the waits above.
        decision = self._renew_decision(session)
        if decision.reason is not Reason.SUCCESS:
            connection.refuse(Version.V311, decision.reason)
            return
        if decision.client_id not in self._sessions and len(self._sessions) >= self.limits.max_sessions:
            connection.refuse(Version.V311, Reason.SERVER_BUSY)
            return
        self._connections[decision.client_id] = connection
        try:
            session = await self._resumed(session, decision)
            self.counters.connections += 1
            await self._converse(connection, session)
            will = will_of(connect)
            if will is not None and not connection.said_goodbye and rights_of(session).may_write(will.topic):
                await self._publish(Message(will.topic, will.payload, will.qos, will.retain, origin=decision.client_id))
        finally:
            del self._connections[decision.client_id]

    async def _converse(self, connection: AmqttConnection, session: Session) -> None:
        """Serve a connection until it has ended; then stop its tasks, and drop a session that does not outlive it."""
        handler = Handler(self.plugins_manager, loop=self._loop)
        try:
            await self._handle_client_session(connection, connection, session, handler, None, "default")
            while not session.delivered_message_queue.empty():  # amqtt leaves them there at a DISCONNECT, acknowledged.
                await self._receive(session, session.delivered_message_queue.get_nowait())
        except Exception as error:  # noqa: BLE001  # An error of amqtt or a plugin ends only this connection.
            log.error("unhandled error in a connection of amqtt", error=repr(error))
        finally:
            connection.hang_up()
            session.attributes.pop(READY, None)
            self._sender.cut(session)
            await self._stop_handler(handler)
            session.transitions.disconnect()
            kept = self._sessions.get(session.client_id, (None, None))[0] is session
            if kept and (session.clean_session or session.is_anonymous):
                await self._cleanup_session(session.client_id)

    async def _plugins_agree(self, session: Session) -> bool:
        """amqtt's rule: a plugin must accept the client and none may refuse it; without plugins it is accepted."""
        answers = await self.plugins_manager.map_plugin_auth(session=session)
        opinions = [answer for answer in answers.values() if answer is not None]
        return not answers or (bool(opinions) and all(opinions))

    async def _authenticate(self, session: Session, _: object) -> bool:
        """Accept: the plugins were asked before the client's session was touched."""
        return True

    async def _end(self, connection: AmqttConnection) -> None:
        """Close a connection, and wait for the end of its task."""
        connection.hang_up()
        if connection.task is not None and not (await asyncio.wait([connection.task], timeout=LINGER_S))[0]:
            connection.task.cancel()
            await asyncio.wait([connection.task])

    async def _resumed(self, session: Session, decision: Decision) -> Session:
        """The existing session, if the same user resumes it; otherwise the new session replaces it."""
        known: Session | None = self._sessions.get(decision.client_id, (None, None))[0]
        owner: Decision | None = None if known is None else known.attributes.get(DECISION)
        if known is None or session.clean_session or (owner is not None and owner.user_name != decision.user_name):
            await self._cleanup_session(decision.client_id)
            return session
        for name in ("username", "password", "remote_address", "remote_port", "ssl_object", "is_anonymous"):
            setattr(known, name, getattr(session, name))
        known.attributes.update(session.attributes)
        known.parent = 1
        self._restrict(known)
        return known

    def renew(self) -> int:
        """Apply changed rules to all sessions; returns the number of disconnected clients."""
        gone = 0
        for client_id, (session, _) in list(self._sessions.items()):
            if DECISION not in session.attributes:
                continue
            decision = self._renew_decision(session)
            self._restrict(session)
            if decision.reason is not Reason.SUCCESS and client_id in self._connections:
                self._connections[client_id].hang_up()
                gone += 1
        return gone

    def _renew_decision(self, session: Session) -> Decision:
        decision = session.attributes[DECISION] = self._access.renew(session.attributes[DECISION])
        return decision

    def _restrict(self, session: Session) -> None:
        rights = rights_of(session)
        for topic_filter in list(self._subscriptions):
            if not rights.may_subscribe(topic_filter):
                self._del_subscription(topic_filter, session)
