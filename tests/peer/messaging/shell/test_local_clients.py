"""What crosses the ring becomes messages of the front that serves the clients here, whichever that is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ringmq.mqtt_front.amqtt.server import AmqttServer
from ringmq.mqtt_front.iteration import StillClock
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.listeners import Listen
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.peer.engines.partitioned.shell.adapter import PartitionedAdapter
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.config import LOCAL
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.shell.local_clients import AdapterClients, AmqttClients, FrontClients, NoClients, clients_of

BODY = encode_body(Message("a", b"1", 1), 0.0)


@pytest.fixture(params=["own", "amqtt"])
async def front(request: pytest.FixtureRequest) -> AsyncIterator[MqttServer | AmqttServer]:
    front: MqttServer | AmqttServer
    if request.param == "own":
        iteration = Iteration()
        front = MqttServer(iteration, cluster=PartitionedAdapter(LOCAL, iteration))
    else:
        pytest.importorskip("amqtt", reason="the extra amqtt is not installed")
        front = AmqttServer(cluster=PartitionedAdapter(LOCAL, Iteration()))
        await front.listen(Listen(host="127.0.0.1", port=0))  # what was never started cannot be stopped
    yield front
    await front.stop()


def kept(clients: AdapterClients) -> dict[str, bytes]:
    if isinstance(clients, FrontClients):
        retained = clients._broker.retained
        return {one.topic: one.payload for one in retained if not one.topic.startswith("$")}
    assert isinstance(clients, AmqttClients)
    messages = clients._broker._retained_messages
    return {topic: bytes(one.data) for topic, one in messages.items() if not topic.startswith("$")}


async def test_retained_message_of_another_peer_is_set_and_removed(front: MqttServer | AmqttServer) -> None:
    clients = clients_of(front, StillClock())
    clients.retained("a", BODY)
    assert kept(clients) == {"a": b"1"}
    clients.retained("a", b"")
    assert kept(clients) == {}


async def test_retained_message_of_a_client_here_waits_for_the_engine(front: MqttServer | AmqttServer) -> None:
    clients = clients_of(front, StillClock())
    message = Message("a", b"1", 0, retain=True)
    if isinstance(front, MqttServer):
        front.broker.publish(message, None)
    else:
        await front.broker._publish(message)
    assert kept(clients) == {}


async def test_unreadable_body_is_counted(front: MqttServer | AmqttServer) -> None:
    clients = clients_of(front, StillClock())
    for body in (b"x", b"\xff" * 20):
        clients.deliver(Publication(1, 1, 1, "a", body))
        clients.retained("a", body)
    assert clients.unreadable == 4
    assert clients.safe
    assert kept(clients) == {}


async def test_retained_body_is_decoded_once(front: MqttServer | AmqttServer) -> None:
    clients = clients_of(front, StillClock())
    if isinstance(clients, FrontClients):
        message = Message("a", b"1", 1, retain=True)
        clients.publishing(BODY, message)
        clients.retained("a", BODY)
        assert clients._broker.retained.get("a", 0.0) is message
    clients.leave()
    clients.read_done()


def test_a_peer_without_clients_takes_everything() -> None:
    clients = clients_of(None, StillClock())
    assert isinstance(clients, NoClients)
    clients.deliver(Publication(1, 1, 1, "a", b"x"))
    clients.retained("a", b"x")
    clients.publishing(BODY, Message("a", b"1"))
    clients.leave()
    clients.read_done()
    assert (clients.unreadable, clients.safe) == (0, True)


async def test_fast_path_serves_the_own_front_and_refuses_others(front: MqttServer | AmqttServer) -> None:
    clients = clients_of(front, StillClock())
    body = encode_body(Message("a", b"1"), 0.0)
    if isinstance(front, AmqttServer):
        assert clients.deliver_fast(b"a", body) is None
        return
    assert clients.deliver_fast(b"a", body) is False, "nobody wants it"
    assert clients.deliver_fast(b"a", BODY) is None, "it is not plain"
    assert clients.unreadable == 0
    for wrong in (b"\xff", b"a/#", b""):
        assert clients.deliver_fast(wrong, body) is False
    assert clients.unreadable == 3
