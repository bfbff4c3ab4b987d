"""Listening to one peer for what peers record: a connection that is made again for ever, and a session that stays.

Owns an MQTT client and its thread. Knows nothing of records: whole messages go into an inbox, and are acknowledged to
the peer when that is asked for.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from ringmq.collector.cli.addresses import Address

RECEIVE_MAXIMUM: Final = 100
"""Messages that a peer may send before any is acknowledged: as many as it sends anyway."""
SESSION_S: Final = 3600
"""So long a peer keeps what comes while nobody listens: for a restart. It has room for some thousand messages."""
KEEP_ALIVE_S: Final = 15
"""A peer whose machine is gone is noticed after twice as much."""
FIRST_RETRY_S: Final = 0.25
LAST_RETRY_S: Final = 5.0
"""Each wait is twice the one before."""
STOP_S: Final = 2.0
"""How long a peer has to take the last acknowledgements."""
MAX_UNPROMISED: Final = 1000
"""Messages with QoS 0 that wait: a peer sends them unasked. Those beyond are dropped, as QoS 0 allows."""

_WRONG_USER: Final = {0x86, 0x87, 0x8A}
"""Bad user name or password, not authorized, banned (5.0 §3.2.2.2)."""
_TAKEN_OVER: Final = 0x8E


@dataclass(frozen=True, slots=True)
class Access:
    """What a peer wants to see before it lets somebody in."""

    user: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message; who has taken care of it says so to its listener."""

    listener: Listener
    connection: int
    packet_id: int
    """0 for one with QoS 0, which nobody waits for."""
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that people are told; no use to go on, if `final`."""

    text: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Listening:
    """From now on nothing is missed that is published where this peer is."""

    address: Address


Inbox = SimpleQueue[Arrival | Listening | Notice | None]
"""What listeners put their messages into. It is bounded by how much peers may send before any is acknowledged."""


class Listener:
    """Listens to one peer, from `start` to `stop`. Its name must be its own among all clients of the ring."""

    def __init__(self, address: Address, name: str, topic_filter: str, access: Access, inbox: Inbox) -> None:
        self.address = address
        self.subscribed = False
        self.was_subscribed = False
        """At any time."""
        self.dropped = 0
        self._filter = topic_filter
        self._inbox = inbox
        self._stopping = threading.Event()
        self._kept_s = SESSION_S
        self._lock = threading.Lock()
        """Between acknowledging and a new connection, where packet identifiers may mean other messages."""
        self._connection = 0
        self._away = False
        self._why = ""
        self._client = self._make_client(name, access)
        self._thread = threading.Thread(target=self._run, name=f"listening to {address}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def acknowledge(self, connection: int, packet_ids: Iterable[int]) -> None:
        """Tell the peer that these are taken care of. Nothing happens if their connection is gone: they come again."""
        with self._lock:
            if connection == self._connection:
                for packet_id in packet_ids:
                    self._client.ack(packet_id, 1)

    def leave(self) -> None:
        """Ask for no more messages; those that wait at the peer still come."""
        if self.subscribed:
            self._client.unsubscribe(self._filter)

    def stop(self, *, keep_session: bool) -> None:
        """Send what is to be acknowledged, and end the connection; with `keep_session` the peer goes on collecting."""
        self._kept_s = SESSION_S if keep_session else 0
        self._stopping.set()
        if self._client.is_connected():
            self._disconnect()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _make_client(self, name: str, access: Access) -> Client:
        client = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True)
        if access.user is not None:
            client.username_pw_set(access.user, access.password)
        if access.tls is not None:
            client.tls_set_context(access.tls)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_disconnect = self._on_disconnect
        # Without one, paho would write to the socket in whatever thread acknowledges, beside this one's.
        client.on_socket_register_write = _leave_it_to_the_loop
        properties = _properties(PacketTypes.CONNECT, SessionExpiryInterval=SESSION_S, ReceiveMaximum=RECEIVE_MAXIMUM)
        client.connect_async(*self.address, keepalive=KEEP_ALIVE_S, clean_start=False, properties=properties)
        return client

    def _run(self) -> None:
        """The thread: one connection after the other."""
        retry_s = FIRST_RETRY_S
        while not self._stopping.is_set():
            self._why = "the connection broke"
            try:
                with self._lock:
                    self._connection += 1
                self._client.reconnect()
                while self._client.loop() == MQTTErrorCode.MQTT_ERR_SUCCESS:
                    pass
            except OSError as error:
                self._why = error.strerror or str(error)
            except Exception as error:  # noqa: BLE001  # the root of the thread: what a peer sends may be anything
                self._why = f"{type(error).__name__}: {error}"
            if self.subscribed:
                retry_s = FIRST_RETRY_S
            self.subscribed = False
            self._say_away()
            self._stopping.wait(retry_s)
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    def _disconnect(self) -> None:
        """Ends the loop of the thread, once all that was to be written before is written."""
        properties = _properties(PacketTypes.DISCONNECT, SessionExpiryInterval=self._kept_s)
        self._client.disconnect(properties=properties)

    def _say_away(self) -> None:
        """Once for each time that it is away."""
        if not self._away and not self._stopping.is_set():
            self._away = True
            self._inbox.put(Notice(f"peer {self.address} is away, and tried again: {self._why}"))

    def _on_connect(self, client: Client, _: Any, flags: ConnectFlags, reason: ReasonCode, __: Any) -> None:
        if self._stopping.is_set():
            self._disconnect()
        elif not reason.is_failure:
            client.subscribe(self._filter, options=SubscribeOptions(qos=1, retainHandling=2))
        elif reason.value in _WRONG_USER and not self.was_subscribed:
            self._inbox.put(Notice(f"peer {self.address} does not let us in: {reason}", final=True))
        else:
            self._why = str(reason)

    def _on_subscribe(self, _: Client, __: Any, ___: int, reasons: list[ReasonCode], ____: Any) -> None:
        if reasons[0].is_failure:
            refused = f"peer {self.address} does not let us subscribe to {self._filter}: {reasons[0]}"
            self._inbox.put(Notice(refused, final=True))
            return
        if not self.was_subscribed:
            self._inbox.put(Listening(self.address))
        elif self._away:
            self._inbox.put(Notice(f"peer {self.address} is back"))
        self._away = False
        self.subscribed = self.was_subscribed = True

    def _on_message(self, _: Client, __: Any, message: MQTTMessage) -> None:
        if not message.mid and self._inbox.qsize() >= MAX_UNPROMISED:
            self.dropped += 1
            return
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = "not UTF-8"
        self._inbox.put(Arrival(self, self._connection, message.mid, topic, bytes(message.payload)))

    def _on_disconnect(self, _: Client, __: Any, flags: DisconnectFlags, reason: ReasonCode, ___: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self._why = str(reason)
            if reason.value == _TAKEN_OVER:
                taken = f"peer {self.address}: another one goes on with our session: is a copy of the folder in use?"
                self._inbox.put(Notice(taken, final=True))


def _properties(packet: int, **values: int) -> Properties:
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def _leave_it_to_the_loop(*_: object) -> None:
    """The loop looks at what is to be written anyway."""
