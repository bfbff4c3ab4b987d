"""The clients of amqtt: one connection a client id, one user a session, and an end that leaves nothing behind.

Is given clients that were let in (`amqtt_front`), on connections that bring whole and valid packets (`amqtt_line`), and
does itself what amqtt does before it has asked anybody: take a session over, end it, or resume it.
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
from ringmq.mqtt_front.amqtt.broker import DECISION, Contained, rights_of
from ringmq.mqtt_front.amqtt.connection import AmqttConnection
from ringmq.mqtt_front.amqtt.sender import READY
from ringmq.mqtt_front.cluster import Cluster
from ringmq.mqtt_front.codec.packets import Connect, Version
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.listeners import LINGER_S

log = structlog.get_logger("front")


class Handler(BrokerProtocolHandler):  # type: ignore[misc]
    """amqtt's, as the other end of a client that does not keep to its order."""

    async def start(self) -> None:
        await super().start()
        if self._reader_stopped.is_set():  # gone before it was served, which amqtt would do for ever
            await self.handle_connection_closed()

    async def _retry_deliveries(self) -> None:
        """amqtt's serves nobody for up to 10 s. What was not sent is kept elsewhere, what did not come comes again."""

    async def handle_pubrel(self, pubrel: PubrelPacket) -> None:
        """Also of an earlier connection, and when the answer was lost [MQTT-4.3.3-2]."""
        packet_id = pubrel.packet_id
        if packet_id in self._pubrel_waiters:
            await super().handle_pubrel(pubrel)
            return
        message = self.session.inflight_in.pop(packet_id, None)
        if message is not None:
            await self.session.delivered_message_queue.put(message)
        await self._send_packet(PubcompPacket.build(packet_id))


class Service(Contained):
    """Create, `start`, give it connections to `serve`, and `shutdown`."""

    def __init__(self, settings: dict[str, Any], limits: FrontConfig, access: Access, cluster: Cluster | None) -> None:
        super().__init__(settings, limits, cluster)
        self._access = access
        self._lines: dict[str, AmqttConnection] = {}
        """Of the clients that are connected, by their ids."""

    async def serve(self, line: AmqttConnection, connect: Connect, decision: Decision) -> None:
        """Everything from the CONNECT on. The client was let in; amqtt's plugins may still refuse it."""
        session = _session_of(connect, decision, line)
        if not await self._plugins_agree(session):
            line.refuse(Version.V311, Reason.NOT_AUTHORIZED)
            return
        while (other := self._lines.get(decision.client_id)) is not None:
            self.counters.taken_over += 1
            await self._end(other)
        decision = session.attributes[DECISION] = self._access.renew(decision)  # it may have waited
        if decision.reason is not Reason.SUCCESS:
            line.refuse(Version.V311, decision.reason)
            return
        if decision.client_id not in self._sessions and len(self._sessions) >= self.limits.max_sessions:
            line.refuse(Version.V311, Reason.SERVER_BUSY)
            return
        self._lines[decision.client_id] = line
        try:
            session = await self._resumed(session, decision)
            self.counters.connections += 1
            await self._converse(line, session)
            will = connect.will
            if will is not None and not line.said_goodbye and rights_of(session).may_write(will.topic):
                await self._publish(Message(will.topic, will.payload, will.qos, will.retain, origin=decision.client_id))
        finally:
            del self._lines[decision.client_id]

    async def _converse(self, line: AmqttConnection, session: Session) -> None:
        """Until the connection has ended; then nothing of it goes on, and nothing of a session that is not to stay."""
        handler = Handler(self.plugins_manager, loop=self._loop)
        try:
            await self._handle_client_session(line, line, session, handler, None, "default")
            while not session.delivered_message_queue.empty():  # acknowledged, and left there by a DISCONNECT
                await self._receive(session, session.delivered_message_queue.get_nowait())
        except Exception as error:  # noqa: BLE001  # amqtt's or a plugin's: it ends this connection, as the client would
            log.error("a connection was ended by an error", error=repr(error))
        finally:
            line.hang_up()
            session.attributes.pop(READY, None)
            self._sending.cut(session)
            await self._stop_handler(handler)
            session.transitions.disconnect()
            kept = self._sessions.get(session.client_id, (None, None))[0] is session
            if kept and (session.clean_session or session.is_anonymous):
                await self._cleanup_session(session.client_id)

    async def _plugins_agree(self, session: Session) -> bool:
        """As amqtt has it: all that have an opinion, and one at least; but nobody is asked where there is none."""
        answers = await self.plugins_manager.map_plugin_auth(session=session)
        opinions = [answer for answer in answers.values() if answer is not None]
        return not answers or (bool(opinions) and all(opinions))

    async def _authenticate(self, session: Session, _: object) -> bool:
        """It was asked before the session that the client names was touched."""
        return True

    async def _end(self, line: AmqttConnection) -> None:
        """Close, and wait until all is done that follows from it."""
        line.hang_up()
        if line.task is not None and not (await asyncio.wait([line.task], timeout=LINGER_S))[0]:
            line.task.cancel()
            await asyncio.wait([line.task])

    async def _resumed(self, session: Session, decision: Decision) -> Session:
        """The session that was there before, if it is the same user's and to be resumed, or else this one."""
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
        """The rules have changed: apply them to all sessions; how many clients had to go."""
        gone = 0
        for client_id, (session, _) in list(self._sessions.items()):
            if DECISION not in session.attributes:
                continue
            decision = session.attributes[DECISION] = self._access.renew(session.attributes[DECISION])
            self._restrict(session)
            if decision.reason is not Reason.SUCCESS and client_id in self._lines:
                self._lines[client_id].hang_up()
                gone += 1
        return gone

    def _restrict(self, session: Session) -> None:
        rights = rights_of(session)
        for topic_filter in list(self._subscriptions):
            if not rights.may_subscribe(topic_filter):
                self._del_subscription(topic_filter, session)


def _session_of(connect: Connect, decision: Decision, line: AmqttConnection) -> Session:
    """As amqtt would have made it of the CONNECT, but without a will and a keep-alive, which are not left to it."""
    session = Session()
    session.client_id = decision.client_id
    session.clean_session = connect.clean_start
    session.username = connect.user_name
    session.password = None if connect.password is None else connect.password.decode(errors="replace")
    session.remote_address, session.remote_port = line.get_peer_info() or (None, None)
    session.ssl_object = line.get_ssl_info()
    session.attributes[DECISION] = decision
    return session
