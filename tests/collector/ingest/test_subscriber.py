"""Listening to a peer, which is a socket here: what is acknowledged when, and what happens when the peer goes."""

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
    Access,
    Arrival,
    Inbox,
    Listener,
    Listening,
    Notice,
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
    """The side of a peer, in one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.settimeout(WITHIN_S)
        self._reader = PacketReader()
        self._packets: list[Packet] = []

    def hear(self, kind: type[P]) -> P:
        """The next packet, which must be of this kind."""
        while not self._packets:
            data = self._socket.recv(65536)
            assert data, "the connection was closed"
            self._packets = [decode(Version.V5, first, bytes(body)) for first, body in self._reader.feed(data)]
        packet = self._packets.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    def say(self, *packets: Packet) -> None:
        self._socket.sendall(b"".join(encode(Version.V5, packet) for packet in packets))

    def welcome(self, *reasons: Reason) -> tuple[Connect, Subscribe]:
        connect = self.hear(Connect)
        self.say(Connack(False, Reason.SUCCESS))
        subscribe = self.hear(Subscribe)
        self.say(Suback(subscribe.packet_id, reasons or (Reason.GRANTED_QOS_1,)))
        return connect, subscribe

    def ended(self) -> bool:
        return self._socket.recv(1) == b""

    def close(self) -> None:
        self._socket.close()


class Peer:
    """Where the listener connects to."""

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
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
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
    made = Listener(peer.address, "me", FILTER, Access("jo", "secret"), inbox)
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
    """That it listens for the first time is for one test only."""
    found = inbox.get(timeout=WITHIN_S)
    return inbox.get(timeout=WITHIN_S) if isinstance(found, Listening) else found


def test_what_it_asks_for(peer: Peer, listener: Listener, inbox: Inbox, eventually: Eventually) -> None:
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
    assert inbox.get(timeout=WITHIN_S) == Listening(peer.address)
    eventually(lambda: listener.subscribed)
    assert listener.was_subscribed


def test_messages_are_acknowledged_when_that_is_asked_for(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    conversation.say(message(1), message(2), message(3))
    found = [arrival(inbox) for _ in range(3)]
    assert [(one.listener, one.topic, one.payload) for one in found] == [
        (listener, "ringmq/log/x", b"%d" % number) for number in (1, 2, 3)
    ]
    listener.acknowledge(found[0].connection, [2, 1])
    assert [conversation.hear(Puback).packet_id for _ in range(2)] == [2, 1]
    listener.stop(keep_session=True)
    conversation.hear(Disconnect)


def test_a_new_connection_is_not_told_of_messages_of_the_one_before(
    peer: Peer, listener: Listener, inbox: Inbox
) -> None:
    listener.start()
    first = peer.accept()
    first.welcome()
    first.say(message(1))
    old = arrival(inbox)
    first.close()
    second = peer.accept()
    second.welcome()
    assert notice(inbox).text == f"peer {peer.address} is away, and tried again: the connection broke"
    assert notice(inbox) == Notice(f"peer {peer.address} is back")
    listener.acknowledge(old.connection, [5])
    second.say(message(1, dup=True))
    new = arrival(inbox)
    assert new.connection != old.connection
    listener.acknowledge(old.connection, [1, 2, 3])
    listener.acknowledge(new.connection, [new.packet_id])
    assert second.hear(Puback).packet_id == 1
    listener.stop(keep_session=True)
    second.hear(Disconnect)


def test_a_peer_that_is_away_is_said_once(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    for _ in range(5):
        peer.accept().close()
    assert not notice(inbox).final
    conversation = peer.accept()
    conversation.welcome()
    assert inbox.get(timeout=WITHIN_S) == Listening(peer.address)
    conversation.say(Disconnect(Reason.SERVER_SHUTTING_DOWN))
    assert notice(inbox).text.endswith("tried again: Server shutting down")
    for _ in range(5):
        peer.accept().close()
    peer.accept().welcome()
    assert notice(inbox) == Notice(f"peer {peer.address} is back")


def test_nobody_there(closed_port: int, inbox: Inbox, eventually: Eventually) -> None:
    listener = Listener(Address(HOST, closed_port), "me", FILTER, Access(), inbox)
    listener.start()
    assert notice(inbox).text == f"peer {HOST}:{closed_port} is away, and tried again: Connection refused"
    listener.stop(keep_session=True)
    with pytest.raises(Empty):
        inbox.get_nowait()
    assert not listener.was_subscribed
    assert not threads_of(listener)


def test_a_name_that_no_host_can_have(inbox: Inbox) -> None:
    address = Address("a" * 64 + ".example", 1883)
    listener = Listener(address, "me", FILTER, Access(), inbox)
    listener.start()
    assert notice(inbox).text.startswith(f"peer {address} is away, and tried again: Unicode")
    listener.stop(keep_session=True)


@pytest.mark.parametrize(
    "nonsense", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x20\x00", b"\x20\x03\x00\x00\xff", b"\xff" * 9]
)
def test_a_peer_that_speaks_nonsense_is_away(peer: Peer, listener: Listener, inbox: Inbox, nonsense: bytes) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.hear(Connect)
    conversation._socket.sendall(nonsense)
    with suppress(OSError):  # it may have gone already
        conversation._socket.shutdown(socket.SHUT_WR)
    assert notice(inbox).text.startswith(f"peer {peer.address} is away, and tried again: ")
    peer.accept().welcome()
    assert inbox.get(timeout=WITHIN_S) == Listening(peer.address)


def test_a_message_that_cannot_be_read_is_no_end(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    conversation._socket.sendall(b"\x32\x03\x00\xff\x00")  # a topic longer than the packet
    assert notice(inbox).text.startswith(f"peer {peer.address} is away, and tried again: ")
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
def test_a_wrong_user_is_the_end(peer: Peer, listener: Listener, inbox: Inbox, reason: Reason, text: str) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.hear(Connect)
    conversation.say(Connack(False, reason))
    assert notice(inbox) == Notice(f"peer {peer.address} does not let us in: {text}", final=True)


def test_who_was_let_in_once_is_tried_again(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    first = peer.accept()
    first.welcome()
    first.close()
    second = peer.accept()
    second.hear(Connect)
    second.say(Connack(False, Reason.NOT_AUTHORIZED))
    third = peer.accept()
    third.welcome()
    assert not notice(inbox).final
    assert notice(inbox).text == f"peer {peer.address} is back"


def test_a_busy_peer_is_tried_again(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.hear(Connect)
    conversation.say(Connack(False, Reason.SERVER_BUSY))
    assert notice(inbox) == Notice(f"peer {peer.address} is away, and tried again: Server busy")
    peer.accept().welcome()


def test_a_refused_subscription_is_the_end(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    peer.accept().welcome(Reason.NOT_AUTHORIZED)
    text = f"peer {peer.address} does not let us subscribe to {FILTER}: Not authorized"
    assert notice(inbox) == Notice(text, final=True)
    assert not listener.subscribed


def test_a_session_that_another_one_took_is_the_end(peer: Peer, listener: Listener, inbox: Inbox) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    conversation.say(Disconnect(Reason.SESSION_TAKEN_OVER))
    found = notice(inbox)
    assert found.final
    assert "another one goes on with our session" in found.text


@pytest.mark.parametrize(("keep_session", "expiry_s"), [(True, SESSION_S), (False, 0)])
def test_the_end_comes_after_the_last_acknowledgements(
    peer: Peer, listener: Listener, inbox: Inbox, keep_session: bool, expiry_s: int
) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    conversation.say(*map(message, range(1, 51)))
    found = [arrival(inbox) for _ in range(50)]
    listener.acknowledge(found[0].connection, [one.packet_id for one in found])
    listener.stop(keep_session=keep_session)
    assert [conversation.hear(Puback).packet_id for _ in range(50)] == list(range(1, 51))
    assert conversation.hear(Disconnect).properties.session_expiry_s == expiry_s
    assert conversation.ended()
    assert not threads_of(listener)


def test_who_ends_while_it_connects_leaves_no_session(peer: Peer, listener: Listener) -> None:
    listener.start()
    conversation = peer.accept()
    conversation.hear(Connect)
    stopping = threading.Thread(target=listener.stop, kwargs={"keep_session": False})
    stopping.start()
    while not listener._stopping.is_set():
        time.sleep(0.001)
    conversation.say(Connack(False, Reason.SUCCESS))
    assert conversation.hear(Disconnect).properties.session_expiry_s == 0
    stopping.join(WITHIN_S)
    assert not threads_of(listener)


def test_who_leaves_still_gets_what_waits(peer: Peer, listener: Listener, inbox: Inbox, eventually: Eventually) -> None:
    listener.leave()  # not connected: nothing to leave
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    eventually(lambda: listener.subscribed)
    listener.leave()
    unsubscribe = conversation.hear(Unsubscribe)
    assert unsubscribe.filters == (FILTER,)
    conversation.say(message(1), Unsuback(unsubscribe.packet_id, (Reason.SUCCESS,)), message(2))
    assert [arrival(inbox).packet_id for _ in range(2)] == [1, 2]


def test_what_nobody_waits_for_is_dropped_when_there_is_too_much(
    peer: Peer, listener: Listener, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(module, "MAX_UNPROMISED", 3)
    listener.start()
    conversation = peer.accept()
    conversation.welcome()
    assert inbox.get(timeout=WITHIN_S) == Listening(peer.address)
    conversation.say(*[message(number, 0) for number in range(5)], message(9))
    eventually(lambda: inbox.qsize() == 4)
    found = [arrival(inbox) for _ in range(4)]
    assert [(one.packet_id, one.payload) for one in found] == [(0, b"0"), (0, b"1"), (0, b"2"), (9, b"9")]
    assert listener.dropped == 2


def threads_of(listener: Listener) -> list[str]:
    return [thread.name for thread in threading.enumerate() if str(listener.address) in thread.name]
