"""A listener against a socket in place of a peer: acknowledgements, notices, and the loss of the peer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

import pytest

from ringmq.collector.cli.addresses import Address
from ringmq.collector.ingest import subscriber as module
from ringmq.collector.ingest.subscriber import (
    RECEIVE_MAXIMUM,
    SESSION_S,
    Arrival,
    Credentials,
    Inbox,
    Listener,
    Notice,
    Subscribed,
)
from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Publish,
    RetainHandling,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason

HOST = "127.0.0.1"
WITHIN_S = 20.0
FILTER = "ringmq/log/#"
P = TypeVar("P", bound=Packet)
Eventually = Callable[..., object]


class Conversation:
    """The peer's side of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.settimeout(WITHIN_S)
        self._reader = PacketReader()
        self._packets: list[Packet] = []

    def receive(self, kind: type[P]) -> P:
        """The next packet, which must be of this kind."""
        while not self._packets:
            data = self._socket.recv(65536)
            assert data, "the connection was closed"
            self._packets = [decode(Version.V5, first, bytes(body)) for first, body in self._reader.feed(data)]
        packet = self._packets.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    def send(self, *packets: Packet) -> None:
        self._socket.sendall(b"".join(encode(Version.V5, packet) for packet in packets))

    def welcome(self, *reasons: Reason) -> tuple[Connect, Subscribe]:
        connect = self.receive(Connect)
        self.send(Connack(False, Reason.SUCCESS))
        subscribe = self.receive(Subscribe)
        self.send(Suback(subscribe.packet_id, reasons or (Reason.GRANTED_QOS_1,)))
        return connect, subscribe

    def ended(self) -> bool:
        return self._socket.recv(1) == b""

    def close(self) -> None:
        self._socket.close()


class Peer:
    """A server socket that the listener connects to."""

    def __init__(self) -> None:
        self._server = socket.create_server((HOST, 0))
        self._server.settimeout(WITHIN_S)
        self.address = Address(HOST, self._server.getsockname()[1])
        self._conversations: list[Conversation] = []

    def accept(self) -> Conversation:
        self._conversations.append(Conversation(self._server.accept()[0]))
        return self._conversations[-1]

    def close(self) -> None:
        self._server.close()
        for conversation in self._conversations:
            conversation.close()


@pytest.fixture(autouse=True)
def _short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(module, "LAST_RETRY_S", 0.02)


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


@pytest.fixture
def inbox() -> Inbox:
    return SimpleQueue()


@pytest.fixture
def listener(peer: Peer, inbox: Inbox) -> Iterator[Listener]:
    made = Listener(peer.address, "me", FILTER, Credentials("jo", "secret"), inbox)
    yield made
    made.stop(keep_session=True)


def message(number: int, qos: int = 1, dup: bool = False) -> Publish:
    return Publish("ringmq/log/x", b"%d" % number, qos, dup=dup, packet_id=number if qos else 0)


def arrival(inbox: Inbox) -> Arrival:
    found = _next(inbox)
    assert isinstance(found, Arrival), found
    return found


def notice(inbox: Inbox) -> Notice:
    found = _next(inbox)
    assert isinstance(found, Notice), found
    return found


def _next(inbox: Inbox) -> object:
    """The next event, except the first subscription, which only one test needs."""
    found = inbox.get(timeout=WITHIN_S)
    return inbox.get(timeout=WITHIN_S) if isinstance(found, Subscribed) else found


def test_connection_and_subscription_have_their_options(
    peer: Peer, listener: Listener, inbox: Inbox, eventually: Eventually
) -> None:
    listener.start()
    connect, subscribe = peer.accept().welcome()
    assert (connect.client_id, connect.clean_start, connect.user_name, connect.password) == (
        "me",
        False,
        "jo",
        b"secret",
    )
    assert (connect.properties.session_expiry_s, connect.properties.receive_maximum) == (SESSION_S, RECEIVE_MAXIMUM)
    assert subscribe.subscriptions == (Subscription(FILTER, 1, retain_handling=RetainHandling.NEVER),)
    assert inbox.get(timeout=WITHIN_S) == Subscribed(peer.address)
    eventually(lambda: listener.subscribed)
    assert listener.was_subscribed


def test_messages_are_acknowledged_on_request(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    conversation.send(message(1), message(2), message(3))
    found = [arrival(inbox) for _ in range(3)]
    assert [(arrived.listener, arrived.topic, arrived.payload) for arrived in found] == [
        (listener, "ringmq/log/x", b"%d" % number) for number in (1, 2, 3)
    ]
    listener.acknowledge(found[0].connection, [2, 1])
    assert [conversation.receive(Puback).packet_id for _ in range(2)] == [2, 1]
    listener.stop(keep_session=True)
    conversation.receive(Disconnect)


def test_messages_of_an_earlier_connection_are_not_acknowledged(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    first = peer.accept()
    first.welcome()
    first.send(message(1))
    old = arrival(inbox)
    first.close()
    second = peer.accept()
    second.welcome()
    assert notice(inbox).text == f"peer {peer.address} is away, retrying: the connection broke"
    assert notice(inbox) == Notice(f"peer {peer.address} is back")
    listener.acknowledge(old.connection, [5])
    second.send(message(1, dup=True))
    new = arrival(inbox)
    assert new.connection != old.connection
    listener.acknowledge(old.connection, [1, 2, 3])
    listener.acknowledge(new.connection, [new.packet_id])
    assert second.receive(Puback).packet_id == 1
    listener.stop(keep_session=True)
    second.receive(Disconnect)


def test_lost_peer_is_reported_once(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    for _ in range(5):
        peer.accept().close()
    assert not notice(inbox).final
    conversation = peer.accept()
    conversation.welcome()
    assert inbox.get(timeout=WITHIN_S) == Subscribed(peer.address)
    conversation.send(Disconnect(Reason.SERVER_SHUTTING_DOWN))
    assert notice(inbox).text.endswith("retrying: Server shutting down")
    for _ in range(5):
        peer.accept().close()
    peer.accept().welcome()
    assert notice(inbox) == Notice(f"peer {peer.address} is back")


def test_unreachable_peer_is_reported_and_stop_ends_the_thread(
    closed_port: int, inbox: Inbox, eventually: Eventually
) -> None:
    listener = Listener(Address(HOST, closed_port), "me", FILTER, Credentials(), inbox)
    listener.start()
    assert notice(inbox).text == f"peer {HOST}:{closed_port} is away, retrying: Connection refused"
    listener.stop(keep_session=True)
    with pytest.raises(Empty):
        inbox.get_nowait()
    assert not listener.was_subscribed
    assert not threads_of(listener)


def test_invalid_host_name_is_reported(inbox: Inbox) -> None:
    address = Address("a" * 64 + ".example", 1883)
    listener = Listener(address, "me", FILTER, Credentials(), inbox)
    listener.start()
    assert notice(inbox).text.startswith(f"peer {address} is away, retrying: Unicode")
    listener.stop(keep_session=True)


@pytest.mark.parametrize(
    "nonsense", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x20\x00", b"\x20\x03\x00\x00\xff", b"\xff" * 9]
)
def test_peer_that_sends_garbage_is_retried(peer: Peer, listener: Listener, inbox: Inbox, nonsense: bytes) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.receive(Connect)
    conversation._socket.sendall(nonsense)
    with suppress(OSError):  # the listener may have closed it already
        conversation._socket.shutdown(socket.SHUT_WR)
    assert notice(inbox).text.startswith(f"peer {peer.address} is away, retrying: ")
    peer.accept().welcome()
    assert inbox.get(timeout=WITHIN_S) == Subscribed(peer.address)


def test_malformed_message_is_followed_by_a_new_connection(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    conversation._socket.sendall(b"\x32\x03\x00\xff\x00")  # a topic longer than the packet
    assert notice(inbox).text.startswith(f"peer {peer.address} is away, retrying: ")
    peer.accept().welcome()
    assert notice(inbox).text == f"peer {peer.address} is back"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason.NOT_AUTHORIZED, "Not authorized"),
        (Reason.BAD_USER_NAME_OR_PASSWORD, "Bad user name or password"),
        (Reason.BANNED, "Banned"),
    ],
)
def test_refused_user_is_a_final_notice(
    peer: Peer, listener: Listener, inbox: Inbox, reason: Reason, text: str
) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.receive(Connect)
    conversation.send(Connack(False, reason))
    assert notice(inbox) == Notice(f"peer {peer.address} refused the connection: {text}", final=True)


def test_later_refusal_of_the_user_is_retried(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    first = peer.accept()
    first.welcome()
    first.close()
    second = peer.accept()
    second.receive(Connect)
    second.send(Connack(False, Reason.NOT_AUTHORIZED))
    third = peer.accept()
    third.welcome()
    assert not notice(inbox).final
    assert notice(inbox).text == f"peer {peer.address} is back"


def test_busy_peer_is_retried(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.receive(Connect)
    conversation.send(Connack(False, Reason.SERVER_BUSY))
    assert notice(inbox) == Notice(f"peer {peer.address} is away, retrying: Server busy")
    peer.accept().welcome()


def test_refused_subscription_is_a_final_notice(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    peer.accept().welcome(Reason.NOT_AUTHORIZED)
    text = f"peer {peer.address} refused the subscription to {FILTER}: Not authorized"
    assert notice(inbox) == Notice(text, final=True)
    assert not listener.subscribed


def test_session_takeover_is_a_final_notice(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    conversation.send(Disconnect(Reason.SESSION_TAKEN_OVER))
    found = notice(inbox)
    assert found.final
    assert "another client took over the session" in found.text


@pytest.mark.parametrize(("keep_session", "expiry_s"), [(True, SESSION_S), (False, 0)])
def test_stop_sends_acknowledgements_before_disconnect(
    peer: Peer, listener: Listener, inbox: Inbox, keep_session: bool, expiry_s: int
) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    conversation.send(*map(message, range(1, 51)))
    found = [arrival(inbox) for _ in range(50)]
    listener.acknowledge(found[0].connection, [arrived.packet_id for arrived in found])
    listener.stop(keep_session=keep_session)
    assert [conversation.receive(Puback).packet_id for _ in range(50)] == list(range(1, 51))
    assert conversation.receive(Disconnect).properties.session_expiry_s == expiry_s
    assert conversation.ended()
    assert not threads_of(listener)


def test_stop_while_connecting_ends_the_session(peer: Peer, listener: Listener) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.receive(Connect)
    stopping = threading.Thread(target=listener.stop, kwargs={"keep_session": False})
    stopping.start()
    while not listener._stopping.is_set():
        time.sleep(0.001)
    conversation.send(Connack(False, Reason.SUCCESS))
    assert conversation.receive(Disconnect).properties.session_expiry_s == 0
    stopping.join(WITHIN_S)
    assert not threads_of(listener)


def test_queued_messages_arrive_after_unsubscribe(
    peer: Peer, listener: Listener, inbox: Inbox, eventually: Eventually
) -> None:
    listener.unsubscribe()  # not connected: no subscription to end
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    eventually(lambda: listener.subscribed)
    listener.unsubscribe()
    unsubscribe = conversation.receive(Unsubscribe)
    assert unsubscribe.filters == (FILTER,)
    conversation.send(message(1), Unsuback(unsubscribe.packet_id, (Reason.SUCCESS,)), message(2))
    assert [arrival(inbox).packet_id for _ in range(2)] == [1, 2]


def test_messages_with_qos_0_beyond_the_limit_are_dropped(
    peer: Peer, listener: Listener, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_QOS_0", 3)
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    assert inbox.get(timeout=WITHIN_S) == Subscribed(peer.address)
    conversation.send(*[message(number, 0) for number in range(5)], message(9))
    eventually(lambda: inbox.qsize() == 4)
    found = [arrival(inbox) for _ in range(4)]
    assert [(arrived.packet_id, arrived.payload) for arrived in found] == [(0, b"0"), (0, b"1"), (0, b"2"), (9, b"9")]
    assert listener.dropped == 2


def threads_of(listener: Listener) -> list[str]:
    return [thread.name for thread in threading.enumerate() if str(listener.address) in thread.name]
