"""What a peer tells of itself: the rows that answer a request, made one by one, so that there can be pauses between.

Reads the ring, the engine and the front; the two requests that change something are in `changing`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from ringmq import __version__
from ringmq.mqtt_front.codec.packets import Version
from ringmq.mqtt_front.connection.connection import Connection
from ringmq.mqtt_front.matching.topics import matches
from ringmq.mqtt_front.server.client_socket import ClientSocket
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.mqtt_front.sessions.session import Session
from ringmq.overlay.config import show
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.overlay.node import Node
from ringmq.peer.administration.requests import (
    MAX_PREVIEW_BYTES,
    MAX_WARNINGS,
    ClientRow,
    FilterRow,
    GonePeer,
    NamedPeer,
    PeerRow,
    Request,
    RequestError,
    RetainedRow,
    Row,
    SessionRow,
    Subject,
    TopicRow,
    shown,
)
from ringmq.peer.administration.retained_topics import retained_here
from ringmq.peer.administration.shell.changing import Changes
from ringmq.peer.administration.shell.pulse import Pulse
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.messaging.body import decode_body
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.messaging.shell.adapter import EngineAdapter
from ringmq.peer.messaging.status_parts import shown_choice
from ringmq.peer.mqtt_service import MqttService
from ringmq.peer.telemetry.sampling import memory_bytes

VERSIONS: Final = {Version.V31: "3.1", Version.V311: "3.1.1", Version.V5: "5.0"}
LATE_S: Final = 0.5
"""From this delay of the event loop on, a peer warns: others suspect it soon."""
US: Final = 1_000_000


class Telling:
    """One per peer. `http` is the address of its HTTP server, if there is one."""

    def __init__(
        self, node: Node, adapter: EngineAdapter[Any], clients: MqttService | None, pulse: Pulse, changes: Changes
    ) -> None:
        self._node = node
        self._adapter = adapter
        self._clients = clients
        self._pulse = pulse
        self._began_at = time.monotonic()
        self.http = ""
        self._answers: dict[Subject, Callable[[Request], Iterator[Row | None]]] = {
            Subject.PEERS: self._peer,
            Subject.CLIENTS: self._connected,
            Subject.SESSIONS: self._sessions,
            Subject.TOPICS: self._topics,
            Subject.FILTERS: self._filters,
            Subject.RETAINED: self._retained,
            Subject.KICK: changes.kick,
            Subject.CLEAR: changes.clear,
        }

    def rows(self, request: Request) -> Iterator[Row | None]:
        return self._answers[request.about](request)

    # The peer itself

    def _peer(self, _: Request) -> Iterator[Row | None]:
        node, pulse = self._node, self._pulse
        ring = node.ring
        leaves = ring.leaves
        messages_in, messages_out = pulse.counts
        in_s, out_s = pulse.per_second
        front = self._front()
        coordinates, shadows = self._roles()
        yield PeerRow(
            address=show(node.address),
            state="active" if ring.active else "joining",
            version=__version__,
            uptime_s=round(time.monotonic() - self._began_at, 1),
            clients=0 if self._clients is None else self._clients.connected,
            sessions=0 if front is None else len(front.broker.sessions),
            messages_in=messages_in,
            messages_out=messages_out,
            messages_in_s=round(in_s, 1),
            messages_out_s=round(out_s, 1),
            memory_bytes=memory_bytes(),
            late_ms=round(1000 * pulse.late_s, 1),
            coordinates=coordinates,
            shadows=shadows,
            links=node.links_total,
            listeners={} if self._clients is None else self._clients.listening(),
            http=self.http,
            before=_named(leaves.predecessor),
            after=_named(leaves.successor),
            gone=[
                GonePeer(peer.id.hex(), show((peer.host, peer.port)), peer.id in ring.failure_detector.left)
                for peer, _ in ring.failure_detector.dead.values()
            ],
            warnings=list(self._warnings())[:MAX_WARNINGS],
        )

    def _roles(self) -> tuple[int, int]:
        engine = self._adapter.core
        if isinstance(engine, PartitionedEngine):
            return sum(engine.replicas.acting), engine.coordinator.shadowed()
        roles: tuple[int, int] = engine.partitions()
        return roles

    def _warnings(self) -> Iterator[str]:
        ring, engine = self._node.ring, self._adapter.core
        search = self._node.search
        # A peer that was given nobody to join is alone on purpose.
        if search and (self._node.expects_others or not ring.active):
            yield search
        suspects = ring.failure_detector.suspects.values()
        if suspects:
            yield f"does not hear {_some([suspicion.peer for suspicion in suspects])}"
        if isinstance(engine, PartitionedEngine):
            silent = list(engine.coordinator.silence.peers)
            if silent:
                yield f"goes on without {_some(silent)}"
        if self._pulse.late_s >= LATE_S:
            yield f"its event loop was late by {self._pulse.late_s:.1f} s"
        fault = self._adapter.fault or (self._clients.fault if self._clients is not None else None)
        if fault:
            yield f"its disk fails: {shown(fault)}"

    # Clients and sessions

    def _front(self) -> MqttServer | None:
        front = None if self._clients is None else self._clients.front
        return front if isinstance(front, MqttServer) else None

    def _own_front(self) -> MqttServer | None:
        """None: this peer serves no clients. Raises RequestError for a front that cannot tell."""
        if self._clients is not None and not isinstance(self._clients.front, MqttServer):
            raise RequestError("its front is amqtt, which does not list clients")
        return self._front()

    def _connected(self, request: Request) -> Iterator[Row | None]:
        front = self._own_front()
        if front is None:
            return
        now = self._node_time()
        for client in list(front.clients.values()):
            session = client.connection.session
            if session is not None and self._is_wanted(front, session, request):
                yield _client_row(front, client, session, now)

    def _sessions(self, request: Request) -> Iterator[Row | None]:
        front = self._own_front()
        if front is None:
            return
        now = self._node_time()
        for session in list(front.broker.sessions.values()):
            if self._is_wanted(front, session, request):
                yield SessionRow(
                    client=shown(session.client_id),
                    user=None if session.user is None else shown(session.user),
                    connected=session.writer is not None,
                    subscriptions=len(front.broker.router.filters(session)),
                    queued=len(session.queue),
                    queued_bytes=session.queue.payload_bytes,
                    inflight=len(session.inflight),
                    dropped=session.dropped,
                    ends_in_s=None if session.expires_at is None else round(max(0.0, session.expires_at - now), 1),
                )

    def _node_time(self) -> float:
        now: float = self._adapter.core.clock.now
        return now

    @staticmethod
    def _is_wanted(front: MqttServer, session: Session, request: Request) -> bool:
        if request.client and session.client_id != request.client:
            return False
        if request.user and session.user != request.user:
            return False
        if not request.topic:
            return True
        return any(matches(inner_of(name), request.topic) for name in front.broker.router.filters(session))

    # Topics

    def _topics(self, request: Request) -> Iterator[Row | None]:
        engine = self._adapter.core
        if not isinstance(engine, PartitionedEngine):
            raise RequestError("its engine does not list topics")
        publisher = engine.publisher
        for name, plan, waiting in list(publisher.topics()):
            if request.filter and not matches(inner_of(request.filter), name):
                continue
            choice = shown_choice(publisher.choice_for(name) if plan is None else plan.choice)
            fanout = "" if choice["fanout"] is None else f" {choice['fanout']}"
            yield TopicRow(
                topic=shown(name),
                dispatch=f"{choice['dispatch']}{fanout}",
                peers=None if plan is None else len(plan.peers),
                waiting=waiting,
            )

    def _filters(self, request: Request) -> Iterator[Row | None]:
        front = self._own_front()
        if front is None:
            return
        counted: dict[str, int] = {}
        for number, session in enumerate(list(front.broker.sessions.values())):
            for name in front.broker.router.filters(session):
                if not request.topic or matches(inner_of(name), request.topic):
                    counted[name] = counted.get(name, 0) + 1
            if number % 100 == 99:
                yield None
        for name, clients in counted.items():
            yield FilterRow(filter=shown(name), clients=clients)

    def _retained(self, request: Request) -> Iterator[Row | None]:
        engine = self._adapter.core
        if not isinstance(engine, PartitionedEngine):
            raise RequestError("its engine does not list retained messages")
        now = self._node_time()
        for record in retained_here(engine, request.filter or "#"):
            if record is None:
                yield None
                continue
            try:
                message = decode_body(record.name, record.body, None, True, now)
            except ProtocolError:
                continue
            remaining_s = message.remaining_s(now)
            yield RetainedRow(
                topic=shown(record.name),
                size_bytes=len(message.payload),
                qos=message.qos,
                stored_at=record.number[0] / US,
                expires_in_s=None if remaining_s is None else float(remaining_s),
                payload=bytes(message.payload[:MAX_PREVIEW_BYTES]).decode("utf-8", "replace"),
            )


def _client_row(front: MqttServer, client: ClientSocket, session: Session, now: float) -> ClientRow:
    connection: Connection = client.connection
    name = None if client.transport is None else client.transport.get_extra_info("peername")
    return ClientRow(
        client=shown(session.client_id),
        user=None if session.user is None else shown(session.user),
        address=show((str(name[0]), int(name[1]))) if name else "",
        version=VERSIONS[connection.writer.version],
        connected_s=round(max(0.0, now - connection.opened_at), 1),
        keep_alive_s=connection.keep_alive_s,
        subscriptions=len(front.broker.router.filters(session)),
        queued=len(session.queue),
        inflight=len(session.inflight),
        dropped=session.dropped,
    )


def _named(peer: Peer | None) -> NamedPeer | None:
    return None if peer is None else NamedPeer(peer.id.hex(), show((peer.host, peer.port)))


def _some(peers: list[Peer]) -> str:
    """The first three addresses."""
    names = ", ".join(show((peer.host, peer.port)) for peer in peers[:3])
    return names if len(peers) <= 3 else f"{names} and {len(peers) - 3} more"
