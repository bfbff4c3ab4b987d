"""MQTT clients of a run: each stays at its peer, comes back when its connection ends, and has everything recorded.

Sockets on the event loop around `mqtt_front.client`. Knows peers by the sockets that a function opens.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Final, cast

from ringmq.experiments.chaos.history import Attachment, Entry, MessageKind, SentMessage
from ringmq.experiments.chaos.recorder import Recorder
from ringmq.mqtt_front.client.connection import ClientConnection, ClientPhase
from ringmq.mqtt_front.client.events import (
    Acknowledged,
    Arrived,
    ClientEvent,
    Ended,
    Opened,
    Refused,
    Subscribed,
    Unsubscribed,
)
from ringmq.mqtt_front.client.session_state import Publication, SessionState
from ringmq.mqtt_front.codec.packets import Connect, Properties, Subscription, Version, Will
from ringmq.mqtt_front.errors import ServerBreachError

Dial = Callable[[int], Awaitable[socket.socket]]
"""Opens a connection to the MQTT listener of a peer. Raises OSError."""

KEEP_ALIVE_S: Final = 60
"""Above the length of all faults: no client gives up a silent peer."""
EXPIRY_S: Final = 1_000_000
"""Of kept sessions in MQTT 5.0: longer than a run, and longer than any clock of a run is wrong."""
AGAIN_S: Final = 0.2
"""Between two attempts to connect."""
PADDING: Final = b" " + b"." * 24


class ChaosClient(asyncio.Protocol):
    """A client of one peer. `come` lets it connect, and connect again until `leave`, `drop` or `close`."""

    will_topic = ""
    """Clients with a topic leave a will there whenever a connection ends without a DISCONNECT."""

    def __init__(self, recorder: Recorder, dial: Dial, name: str, peer: int, kept: bool = False) -> None:
        self.recorder = recorder
        self.name = name
        self.peer = peer
        self.kept = kept
        self.version = Version.V5 if sum(name.encode()) % 2 else Version.V311
        self.wanted: list[tuple[str, int]] = []
        """Filters, and the QoS of each."""
        self.on_message: Callable[[int], None] | None = None
        """Called with the number of each message that arrives."""
        self.acknowledges_after_s = 0.0
        """Slow clients acknowledge what arrives after a while."""
        self.refusals = 0
        self.breaches: list[str] = []
        self._dial = dial
        self._state = SessionState(1 << 20)
        self._connection: ClientConnection | None = None
        self._transport: asyncio.Transport | None = None
        self._attachment: Attachment | None = None
        self._had_session = False
        self._entries: dict[str, Entry] = {}
        self._asked: dict[int, list[Entry]] = {}
        self._granted: dict[str, Callable[[], None]] = {}
        self._will_number = 0
        self._stays = False
        self._gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # What its user wants

    @property
    def is_open(self) -> bool:
        return self._connection is not None and self._connection.phase is ClientPhase.OPEN

    @property
    def is_ready(self) -> bool:
        """Whether it is connected, and all its filters are granted or refused."""
        return self.is_open and not self._asked and all(name in self._entries for name, _ in self.wanted)

    @property
    def pending(self) -> int:
        """Publications without an end."""
        return self._state.pending

    @property
    def transport(self) -> asyncio.Transport | None:
        """Of its connection; None without one."""
        return self._transport

    def forget_session(self) -> None:
        """Its peer has lost the session, as is right."""
        self._had_session = False

    def come(self) -> None:
        """Connect now, and again whenever the connection ends."""
        self._stays = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._stay())

    def leave(self) -> None:
        """Say good-bye, and stay away."""
        self._stays = False
        if self._connection is not None and self.is_open:
            self._connection.disconnect()
            self._will_ended(wanted=False)
            self._write()
        if self._transport is not None:
            self._transport.close()

    def drop(self) -> None:
        """End the connection without a word, and stay away: the will is published."""
        self._stays = False
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Leave, at the end of the run."""
        self.leave()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def publish(
        self, topic: str, qos: int, retain: bool = False, source: MessageKind = MessageKind.STREAM
    ) -> SentMessage | None:
        """Publish a numbered message; None, and nothing, without a connection."""
        if not self.is_open:
            return None
        connection = cast(ClientConnection, self._connection)
        message = self.recorder.sent(self.name, self.peer, (topic, qos, retain), source)
        payload = b"" if source is MessageKind.CLEARING else b"%d" % message.number + PADDING
        publication = connection.publish(topic, payload, qos, retain)
        if publication is not None:
            publication.key = message
        self._write()
        return message

    def subscribe(self, topic_filter: str, qos: int, granted: Callable[[], None] | None = None) -> None:
        """Subscribe now; `granted` is called at the SUBACK, before anything else happens. It must be open."""
        if granted is not None:
            self._granted[topic_filter] = granted
        self._subscribe([(topic_filter, qos)])

    def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribe now, if it is open; the answer is not waited for."""
        entry = self._entries.pop(topic_filter, None)
        if entry is not None:
            entry.ended_at = self.recorder.now
        if self._connection is not None and self.is_open:
            self._connection.unsubscribe(topic_filter)
            self._write()

    def read_nothing(self, paused: bool) -> None:
        """Stop reading, or go on."""
        if self._transport is None or self._transport.is_closing():
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # The connection

    async def _stay(self) -> None:
        while self._stays:
            try:
                line = await self._dial(self.peer)
            except OSError:
                await asyncio.sleep(AGAIN_S)
                continue
            self._gone.clear()
            await asyncio.get_running_loop().create_connection(lambda: self, sock=line)
            while not self._gone.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await self._gone.wait()
                self._check()
            if self._stays:
                await asyncio.sleep(AGAIN_S)

    def _check(self) -> None:
        if self._connection is None or self._connection.phase is not ClientPhase.OPEN:
            return
        try:
            self._connection.check(self.recorder.now)
        except ServerBreachError as error:
            self._broken(error)
        self._write()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        will = None
        if self.will_topic:
            self._will_number = self.recorder.next_number()
            will = Will(self.will_topic, b"%d" % self._will_number + PADDING, 1 + self._will_number % 2, False)
        lasting = Properties(session_expiry_s=EXPIRY_S) if self.kept and self.version is Version.V5 else Properties()
        connect = Connect(self.version, self.name, not self.kept, KEEP_ALIVE_S, will, properties=lasting)
        if not self.kept:
            self._abandon(self._state)
            self._state = SessionState(1 << 20)
        self._connection = ClientConnection(connect, self._state, automatic=not self.acknowledges_after_s)
        self._write()

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            connection.feed(data)
        except ServerBreachError as error:
            self._broken(error)
        for event in connection.events_received():
            self._take(event)
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        now = self.recorder.now
        if self._attachment is not None:
            self._attachment.closed_at = now
            self._will_ended(wanted=True)
        self._attachment = None
        self._connection = self._transport = None
        for entry in [entry for entries in self._asked.values() for entry in entries]:
            entry.ended_at = now
            self._entries.pop(entry.filter, None)
        self._asked.clear()
        self._granted.clear()
        if not self.kept:
            self._end_entries(now)
        for publication in (*self._state.sent.values(), *self._state.waiting):
            self._message_of(publication).resent = True
        self._gone.set()

    def _broken(self, error: ServerBreachError) -> None:
        self.breaches.append(f"{self.name} at peer {self.peer}: {error}")
        if self._transport is not None:
            self._transport.abort()

    def _write(self) -> None:
        if self._connection is None or self._transport is None:
            return
        data = self._connection.data_to_send(self.recorder.now)
        if data and not self._transport.is_closing():
            self._transport.write(data)

    # What the peer says

    def _take(self, event: ClientEvent) -> None:
        if isinstance(event, Arrived):
            number = self.recorder.got(self.name, event)
            if self.acknowledges_after_s and event.qos:
                later = asyncio.get_running_loop().call_later
                later(self.acknowledges_after_s, self._acknowledge, self._connection, event)
            if self.on_message is not None:
                self.on_message(number)
        elif isinstance(event, Acknowledged):
            message = self._message_of(event.publication)
            message.acknowledged_at, message.reason = self.recorder.now, int(event.reason)
        elif isinstance(event, Opened):
            self._opened(event)
        elif isinstance(event, Subscribed):
            self._subscribed(event)
        elif isinstance(event, Refused | Ended):
            self.refusals += 1
            if self._transport is not None:
                self._transport.close()
        elif isinstance(event, Unsubscribed):
            pass  # `unsubscribe` noted it

    def _acknowledge(self, connection: ClientConnection | None, message: Arrived) -> None:
        if connection is not None and connection is self._connection and self.is_open:
            connection.acknowledge(message)
            self._write()

    def _opened(self, event: Opened) -> None:
        recorder = self.recorder
        self._attachment = recorder.attached(self.name, self.peer, self.kept, event.session_present, self._had_session)
        self._had_session = self.kept
        for publication in event.discarded:
            self._message_of(publication).abandoned = True
        if not event.session_present:
            self._end_entries(recorder.now)
        missing = [(name, qos) for name, qos in self.wanted if name not in self._entries]
        if missing:
            self._subscribe(missing)

    def _subscribe(self, filters: list[tuple[str, int]]) -> None:
        connection = cast(ClientConnection, self._connection)
        entries = [self.recorder.asked(self.name, self.peer, name, qos, self.kept) for name, qos in filters]
        packet_id = connection.subscribe(*(Subscription(name, qos) for name, qos in filters))
        self._asked[packet_id] = entries
        self._write()

    def _subscribed(self, event: Subscribed) -> None:
        for entry, reason in zip(self._asked.pop(event.packet_id), event.reasons, strict=True):
            entry.granted_at, entry.reason = self.recorder.now, int(reason)
            self._entries[entry.filter] = entry
            granted = self._granted.pop(entry.filter, None)
            if granted is not None:
                granted()

    def _end_entries(self, now: float) -> None:
        for entry in self._entries.values():
            entry.ended_at = now
        self._entries.clear()

    def _will_ended(self, *, wanted: bool) -> None:
        """Note the will of a connection that has ended."""
        if not self._will_number:
            return
        number, self._will_number = self._will_number, 0
        message = (self.will_topic, 1 + number % 2, False)
        self.recorder.sent(self.name, self.peer, message, MessageKind.WILL, number).wanted = wanted

    def _message_of(self, publication: Publication) -> SentMessage:
        return cast(SentMessage, publication.key)

    def _abandon(self, state: SessionState) -> None:
        for publication in (*state.sent.values(), *state.waiting):
            self._message_of(publication).abandoned = True
