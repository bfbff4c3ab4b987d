"""Raw clients at a real front, and at servers that answer wrongly."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from ringmq.experiments.load.raw_clients import Address, BenchError, connected, subscribe
from ringmq.experiments.processes.ports import choose_ports
from ringmq.experiments.processes.servers import Server
from ringmq.mqtt_front.codec.codec import encode_publish
from ringmq.mqtt_front.codec.packets import Version

Answering = Callable[[bytes], Address]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """A server that answers its first packet with the given bytes, and closes."""
    threads = []

    def start(answer: bytes) -> Address:
        listener = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            client, _ = listener.accept()
            with listener, client:
                client.recv(1000)
                client.sendall(answer)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        host, port = listener.getsockname()
        return host, port

    yield start
    for thread in threads:
        thread.join()


def test_subscribed_client_gets_a_publication(ringmq_server: Server) -> None:
    with connected(ringmq_server.address, "a") as subscriber, connected(ringmq_server.address, "b") as publisher:
        subscribe(subscriber, "x/+", qos=1)
        packet = encode_publish(Version.V311, b"x/y", b"payload")
        publisher.sendall(packet)
        assert subscriber.recv(1000) == packet


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"\x20\x02\x00\x05", "refused with 5"),
        (b"\xd0\x00", "packet type 13 instead of a CONNACK"),
        (b"", "closed instead of sending a CONNACK"),
    ],
)
def test_wrong_answer_to_a_connect_is_an_error(answering: Answering, answer: bytes, text: str) -> None:
    with pytest.raises(BenchError, match=text):
        connected(answering(answer), "a")


def test_closed_port_is_an_error() -> None:
    with pytest.raises(BenchError, match="cannot connect"):
        connected(("127.0.0.1", choose_ports(0, 1)[0]), "a")


def test_refused_subscription_is_an_error(ringmq_server: Server) -> None:
    with connected(ringmq_server.address, "c") as client, pytest.raises(BenchError):
        subscribe(client, "not/#/valid")
