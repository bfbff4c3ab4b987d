"""A client of this package at a broker of this project, in memory."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.client.connection import ClientConnection
from ringmq.mqtt_front.client.events import (
    Acknowledged,
    Arrived,
    ClientEvent,
)
from ringmq.mqtt_front.client.session_state import PublicationPhase, SessionState
from ringmq.mqtt_front.codec.packets import (
    Connect,
    Properties,
    Subscription,
    Version,
)
from tests.mqtt_front.client.exchange import V3, V5
from tests.mqtt_front.conftest import World


class Wired:
    """A client of this package at a broker in memory."""

    def __init__(self, world: World, version: Version, state: SessionState) -> None:
        self.client = ClientConnection(Connect(version, "own", False, 0, properties=LASTING), state)
        self._world = world
        self._broker = world.client(version)
        self.go_on()

    def go_on(self) -> list[ClientEvent]:
        """Exchange bytes until neither side has more."""
        events: list[ClientEvent] = []
        while True:
            data = self.client.data_to_send(0.0)
            if data:
                self._broker.feed(data)
            self._world.turn()
            answers, self._broker.inbox = self._broker.inbox, b""
            if not data and not answers:
                return events
            self.client.feed(answers)
            events += self.client.events_received()

    def drop(self) -> None:
        self._broker.drop()


LASTING = Properties(session_expiry_s=1000)


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_goes_through_the_broker_and_back(world: World, version: Version, qos: int) -> None:
    wired = Wired(world, version, SessionState())
    wired.client.subscribe(Subscription("a/+", 2))
    wired.go_on()
    publication = wired.client.publish("a/b", b"x", qos)
    events = wired.go_on()
    arrived = [event for event in events if isinstance(event, Arrived)]
    assert [(event.topic, event.payload, event.qos) for event in arrived] == [("a/b", b"x", qos)]
    if publication is not None:
        assert next(event for event in events if isinstance(event, Acknowledged)).publication is publication
        assert publication.phase is PublicationPhase.COMPLETE
    assert wired.client.state.received == set()


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("lost_after", [0, 1, 2])
def test_an_interrupted_exchange_ends_on_the_next_connection_and_delivers_once(
    world: World, version: Version, lost_after: int
) -> None:
    subscriber = world.connect("s", version)
    subscriber.subscribe("a", qos=0)
    state = SessionState()
    wired = Wired(world, version, state)
    publication = wired.client.publish("a", b"x", 2)
    assert publication is not None
    for _ in range(lost_after):  # the PUBLISH, and then the PUBREL
        wired._broker.feed(wired.client.data_to_send(0.0))
        world.turn()
        wired.client.feed(wired._broker.inbox)
        wired._broker.inbox = b""
    wired.drop()
    assert Wired(world, version, state).go_on() == []
    assert publication.phase is PublicationPhase.COMPLETE
    assert subscriber.payloads() == [b"x"]
