"""Clients that people use, on every listener that they know, in MQTT 3.1.1 and 5.0: messages of every QoS, retained
messages and wills.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.mqtt_front.real_clients.listeners import HOST, WITHIN_S, Got, Listeners, RealClient
from tests.mqtt_front.real_clients.mosquitto_clients import Mosquitto
from tests.mqtt_front.real_clients.mqttjs import MqttJs, Node
from tests.mqtt_front.real_clients.python_clients import Aiomqtt, Paho

Make = Callable[..., RealClient]

EVERYWHERE = ("tcp", "tls", "mutual", "ws", "wss")
REACHES: dict[type[RealClient], tuple[str, ...]] = {
    Paho: EVERYWHERE,
    Aiomqtt: EVERYWHERE,
    MqttJs: EVERYWHERE,
    Mosquitto: ("tcp", "tls", "mutual"),
}
CASES = [
    pytest.param(kind, listener, version, id=f"{kind.__name__}-{listener}-{version}")
    for kind, listeners in REACHES.items()
    for listener, version in itertools.product(listeners, (4, 5))
]
CONNECT = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c"
LARGE_BYTES = 300_000
"""More than one read of a socket, one frame of a WebSocket, one record of TLS, and 16 bits of length."""


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    made = Listeners(tmp_path_factory.mktemp("listeners"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.close()


@pytest.fixture
def connect(
    request: pytest.FixtureRequest, kind: type[RealClient], listener: str, version: int, listeners: Listeners
) -> Iterator[Make]:
    """Make a client; those that are there at the end of the test are disconnected."""
    if kind is MqttJs:
        MqttJs.node = request.getfixturevalue("node")
    with ExitStack() as stack:

        def make(**how: Any) -> RealClient:
            client = kind(listeners.reach(listener, version), **how)
            stack.callback(client.close)
            return client

        yield make


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """One that no other test has."""
    return f"real/{request.node.name}"


@pytest.mark.parametrize(("kind", "listener", "version"), CASES)
def test_messages(connect: Make, topic: str) -> None:
    publisher, subscriber = connect(), connect()
    subscriber.subscribe(f"{topic}/+", 2)
    for qos in (0, 1, 2):
        publisher.publish(f"{topic}/{qos}", f"with {qos}".encode(), qos)
        assert subscriber.take() == Got(f"{topic}/{qos}", f"with {qos}".encode(), qos)
    large = b"0123456789" * (LARGE_BYTES // 10)
    publisher.publish(f"{topic}/large", large, 1)
    assert subscriber.take() == Got(f"{topic}/large", large, 1)


@pytest.mark.parametrize(("kind", "listener", "version"), CASES)
def test_a_subscription_bounds_the_qos(connect: Make, topic: str) -> None:
    publisher, subscriber = connect(), connect()
    subscriber.subscribe(f"{topic}/0", 0)
    subscriber.subscribe(f"{topic}/1", 1)
    for qos in (0, 1):
        publisher.publish(f"{topic}/{qos}", b"x", 2)
        assert subscriber.take() == Got(f"{topic}/{qos}", b"x", qos)


@pytest.mark.parametrize(("kind", "listener", "version"), CASES)
def test_a_retained_message(connect: Make, topic: str) -> None:
    publisher = connect()
    for qos in (0, 1, 2):
        publisher.publish(f"{topic}/kept", f"with {qos}".encode(), qos, True)
        publisher.publish(f"{topic}/other", b"", 1)
        subscriber = connect()
        subscriber.subscribe(f"{topic}/kept", 2)
        assert subscriber.take() == Got(f"{topic}/kept", f"with {qos}".encode(), qos, True)
    publisher.publish(f"{topic}/kept", b"", 1, True)
    late = connect()
    late.subscribe(f"{topic}/#", 2)
    publisher.publish(f"{topic}/new", b"new", 1)
    assert late.take() == Got(f"{topic}/new", b"new", 1), "the retained one is gone"


@pytest.mark.parametrize(("kind", "listener", "version"), CASES)
def test_a_will(connect: Make, topic: str) -> None:
    subscriber = connect()
    subscriber.subscribe(f"{topic}/will", 2)
    leaves = connect(will=Got(f"{topic}/will", b"never seen", 1))
    leaves.publish(f"{topic}/other", b"", 1)
    leaves.close()
    vanishes = connect(will=Got(f"{topic}/will", b"gone", 2, True))
    vanishes.subscribe(f"{topic}/orders", 0)
    vanishes.vanish()
    assert subscriber.take() == Got(f"{topic}/will", b"gone", 2)
    late = connect()
    late.subscribe(f"{topic}/will", 2)
    assert late.take() == Got(f"{topic}/will", b"gone", 2, True)


def test_clients_of_all_listeners_and_versions_see_each_other(listeners: Listeners) -> None:
    with ExitStack() as stack:
        clients = [Paho(listeners.reach(listener, version)) for listener in EVERYWHERE for version in (4, 5)]
        for client in clients:
            stack.callback(client.close)
            client.subscribe("real/everybody", 2)
        for place, client in enumerate(clients):
            client.publish("real/everybody", str(place).encode(), place % 3)
            expected = Got("real/everybody", str(place).encode(), place % 3)
            assert [one.take() for one in clients] == [expected] * len(clients)


def test_no_certificate_no_connection(listeners: Listeners) -> None:
    """And those of the others are none the worse for it."""
    context = ssl.create_default_context(cafile=listeners.ca)
    answer = b""
    with (
        socket.create_connection((HOST, listeners.cluster["mutual"]), WITHIN_S) as below,
        contextlib.suppress(ssl.SSLError, ConnectionError),
    ):
        # With TLS 1.3 a client learns only afterwards that it is not let in, or just sees the end.
        client = context.wrap_socket(below, server_hostname=HOST)
        client.sendall(CONNECT)
        answer = client.recv(1)
    assert answer == b""
    Paho(listeners.reach("mutual", 4)).close()


def test_the_server_tells_of_itself(listeners: Listeners) -> None:
    client = Paho(listeners.reach("ws", 5))
    client.subscribe("$SYS/broker/version", 0)
    message = client.take()
    client.close()
    assert message.retain
    assert message.payload.startswith(b"ringmq version ")
