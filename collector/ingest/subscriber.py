"""A subscriber to the records of the peers: one connection to one peer, renewed for ever, with a persistent session.

Owns an MQTT client and its thread. Knows nothing about records: messages go into an inbox, and are acknowledged to the
peer on request.
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
"""Unacknowledged messages that a peer may send, equal to the default limit of a peer (`max_inflight`)."""
SESSION_S: Final = 3600
"""The time for which a peer queues messages while the collector is away, enough for a restart. Its limits on messages
and bytes apply as well."""
KEEP_ALIVE_S: Final = 15
"""A peer whose machine has failed is noticed after twice this time."""
FIRST_RETRY_S: Final = 0.25
LAST_RETRY_S: Final = 5.0
"""The wait before a new connection doubles from the first value to the last."""
STOP_S: Final = 2.0
"""The time that a peer has to take the last acknowledgements."""
MAX_WAITING_QOS_0: Final = 1000
"""Messages in the inbox beyond which those with QoS 0 are dropped, as QoS 0 allows. RECEIVE_MAXIMUM does not limit
them."""

_REFUSED_USER: Final = {0x86, 0x87, 0x8A}
"""Bad user name or password, not authorized, banned (MQTT 5.0 §3.2.2.2)."""
_SESSION_TAKEN_OVER: Final = 0x8E


@dataclass(frozen=True, slots=True)
class Credentials:
    """User name and password for a peer, and the TLS context for connections to it."""

    user: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message. Once it is landed, acknowledge it to its listener."""

    listener: Listener
    connection: int
    packet_id: int
    """0 for a message with QoS 0, which is not acknowledged."""
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Notice:
    """A text for people. If `final`, the listener cannot succeed and the ingest must end."""

    text: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The first subscription at this peer is in force: from now on, no record published in its ring is missed."""

    address: Address


Inbox = SimpleQueue[Arrival | Subscribed | Notice | None]
"""The events of all listeners. RECEIVE_MAXIMUM and MAX_WAITING_QOS_0 bound it."""


class Listener:
    """Listens to one peer, from `start` to `stop`. `name`, the MQTT client id, must be unique in the ring."""

    def __init__(self, address: Address, name: str, topic_filter: str, credentials: Credentials, inbox: Inbox) -> None:
        self.address = address
        self.subscribed = False
        self.was_subscribed = False
        """Whether it was subscribed at any time."""
        self.dropped = 0
        self._filter = topic_filter
        self._inbox = inbox
        self._stopping = threading.Event()
        self._session_expiry_s = SESSION_S
        # Excludes acknowledgements while a new connection begins, where a packet id may belong to another message.
        self._lock = threading.Lock()
        self._connection = 0
        self._away = False
        self._reason = ""
        self._client = self._make_client(name, credentials)
        self._thread = threading.Thread(target=self._run, name=f"listening to {address}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def acknowledge(self, connection: int, packet_ids: Iterable[int]) -> None:
        """Acknowledge messages to the peer. Does nothing if their connection has ended: the peer sends them again."""
        with self._lock:
            if connection == self._connection:
                for packet_id in packet_ids:
                    self._client.ack(packet_id, 1)

    def unsubscribe(self) -> None:
        """Request no further messages. Messages queued at the peer still arrive."""
        if self.subscribed:
            self._client.unsubscribe(self._filter)

    def stop(self, *, keep_session: bool) -> None:
        """Send the remaining acknowledgements, and end the connection. With `keep_session` the peer queues messages."""
        self._session_expiry_s = SESSION_S if keep_session else 0
        self._stopping.set()
        if self._client.is_connected():
            self._disconnect()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _make_client(self, name: str, credentials: Credentials) -> Client:
        client = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True)
        if credentials.user is not None:
            client.username_pw_set(credentials.user, credentials.password)
        if credentials.tls is not None:
            client.tls_set_context(credentials.tls)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_disconnect = self._on_disconnect
        # Without this callback, paho would write to the socket in the thread that acknowledges, while the thread of
        # this listener uses the socket too.
        client.on_socket_register_write = _leave_writing_to_the_loop
        properties = _properties(PacketTypes.CONNECT, SessionExpiryInterval=SESSION_S, ReceiveMaximum=RECEIVE_MAXIMUM)
        client.connect_async(*self.address, keepalive=KEEP_ALIVE_S, clean_start=False, properties=properties)
        return client

    def _run(self) -> None:
        """The main function of the thread: one connection after the other."""
        retry_s = FIRST_RETRY_S
        while not self._stopping.is_set():
            self._reason = "the connection broke"
            try:
                with self._lock:
                    self._connection += 1
                self._client.reconnect()
                while self._client.loop() == MQTTErrorCode.MQTT_ERR_SUCCESS:
                    pass
            except OSError as error:
                self._reason = error.strerror or str(error)
            except Exception as error:  # noqa: BLE001  # the root of the thread: a peer may send any bytes
                self._reason = f"{type(error).__name__}: {error}"
            if self.subscribed:
                retry_s = FIRST_RETRY_S
            self.subscribed = False
            self._report_away()
            self._stopping.wait(retry_s)
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    def _disconnect(self) -> None:
        """Queue a DISCONNECT behind the packets that wait to be written. It ends the loop of the thread."""
        properties = _properties(PacketTypes.DISCONNECT, SessionExpiryInterval=self._session_expiry_s)
        self._client.disconnect(properties=properties)

    def _report_away(self) -> None:
        """Report a lost peer, once until it is back."""
        if not self._away and not self._stopping.is_set():
            self._away = True
            self._inbox.put(Notice(f"peer {self.address} is away, retrying: {self._reason}"))

    def _on_connect(self, client: Client, _: Any, flags: ConnectFlags, reason: ReasonCode, __: Any) -> None:
        # `stop` found no connection to end. Without a DISCONNECT the peer would keep the session.
        if self._stopping.is_set():
            self._disconnect()
        elif not reason.is_failure:
            client.subscribe(self._filter, options=SubscribeOptions(qos=1, retainHandling=2))
        # A refusal before the first subscription is a wrong setting. Afterwards the peer had accepted this user.
        elif reason.value in _REFUSED_USER and not self.was_subscribed:
            self._inbox.put(Notice(f"peer {self.address} refused the connection: {reason}", final=True))
        else:
            self._reason = str(reason)

    def _on_subscribe(self, _: Client, __: Any, ___: int, reasons: list[ReasonCode], ____: Any) -> None:
        if reasons[0].is_failure:
            refused = f"peer {self.address} refused the subscription to {self._filter}: {reasons[0]}"
            self._inbox.put(Notice(refused, final=True))
            return
        if not self.was_subscribed:
            self._inbox.put(Subscribed(self.address))
        elif self._away:
            self._inbox.put(Notice(f"peer {self.address} is back"))
        self._away = False
        self.subscribed = self.was_subscribed = True

    def _on_message(self, _: Client, __: Any, message: MQTTMessage) -> None:
        if not message.mid and self._inbox.qsize() >= MAX_WAITING_QOS_0:
            self.dropped += 1
            return
        # paho decodes the topic only here. An exception would end the connection, and the peer send the message again.
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = "not UTF-8"
        self._inbox.put(Arrival(self, self._connection, message.mid, topic, bytes(message.payload)))

    def _on_disconnect(self, _: Client, __: Any, flags: DisconnectFlags, reason: ReasonCode, ___: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self._reason = str(reason)
            # Reconnecting would take the session back, and the two would end each other's connections for ever.
            if reason.value == _SESSION_TAKEN_OVER:
                taken = f"peer {self.address}: another client took over the session; is a copy of the folder in use?"
                self._inbox.put(Notice(taken, final=True))


def _properties(packet: int, **values: int) -> Properties:
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def _leave_writing_to_the_loop(*_: object) -> None:
    """Does nothing: `Client.loop` writes pending packets itself."""
