"""Random histories of clients with kept sessions that go from peer to peer while others publish.

Each message that is published between the first SUBACK of a client and the end comes to it. It comes once and in order
if the client stays for some seconds at each peer; one that is thrown around faster may get some twice.
"""

from __future__ import annotations

import random

import pytest

from ringmq.mqtt_front.codec.packets import Connack, Packet, Puback, Publish, Suback
from ringmq.peer.messaging.config import PubSubConfig
from tests.mqtt_front.conftest import Client
from tests.peer.conftest import eight
from tests.peer.engines.partitioned.enrolling.whole_fronts import WholeFront

SEEDS = 3
STEPS = 150
TOPIC = "hall/door"
QUIET_S = 30.0
STAY_S = 3.0


class Wanderer:
    """A client with a kept session."""

    def __init__(self, name: str, filters: tuple[str, ...]) -> None:
        self.name = name
        self._filters = filters
        self.client: Client | None = None
        self.came: list[bytes] = []
        self.unacknowledged: list[int] = []
        self.subscribed = False
        self.absent = 0
        """CONNACKs without the session, after the first."""

    def connect(self, front: WholeFront) -> None:
        self.client = front.client()
        self.client.connect(self.name, clean=False, session_expiry_s=1000)
        self.unacknowledged.clear()

    def leave(self) -> None:
        if self.client is not None:
            self.client.leave()
            self.client = None

    def read(self, acknowledge: bool) -> None:
        if self.client is None:
            return
        for packet in self.client.take():
            self._take(packet)
        if acknowledge and not self.client.closed:
            for packet_id in self.unacknowledged:
                self.client.send(Puback(packet_id))
            self.unacknowledged.clear()

    def _take(self, packet: Packet) -> None:
        assert self.client is not None
        if isinstance(packet, Connack):
            if not packet.session_present:
                self.absent += self.subscribed
                self.client.send_subscribe(*self._filters, qos=1)
        elif isinstance(packet, Suback):
            self.subscribed = True
        elif isinstance(packet, Publish):
            # A repetition over another connection is no second delivery.
            if not packet.dup or bytes(packet.payload) not in self.came:
                self.came.append(bytes(packet.payload))
            self.unacknowledged.append(packet.packet_id)


class History:
    """The seed gives it again."""

    def __init__(self, seed: int, stays: bool) -> None:
        """`stays`: clients stay at each peer until their sessions have arrived."""
        self._stays = stays
        self.random = random.Random(seed)
        self.net = eight(PubSubConfig())
        self.fronts = [WholeFront(member) for member in self.net.members.values()]
        self.publishers = [front.client() for front in self.random.sample(self.fronts, 2)]
        self.sent: list[list[bytes]] = [[], []]
        for publisher in self.publishers:
            publisher.connect("")
        self.wanderers = [Wanderer("one", (TOPIC,)), Wanderer("two", ("hall/#", "yard"))]
        for wanderer in self.wanderers:
            wanderer.connect(self.random.choice(self.fronts))
        self.run(2.0)
        assert all(wanderer.subscribed for wanderer in self.wanderers)

    def run(self, span_s: float) -> None:
        """Some messages, or all of this time."""
        if span_s:
            for _ in range(10):
                self.net.run(span_s / 10)
                self._follow()
        else:
            for _ in range(self.random.randrange(20)):
                self.net.step()
            self._follow()

    def _follow(self) -> None:
        for front in self.fronts:
            front.follow()
            front.member.settle()
        for wanderer in self.wanderers:
            wanderer.read(acknowledge=self.random.random() < 0.7)

    def publish(self) -> None:
        number = self.random.randrange(2)
        payload = b"%d-%d" % (number, len(self.sent[number]))
        self.sent[number].append(payload)
        self.publishers[number].publish(TOPIC, payload, qos=1)

    def step(self) -> None:
        kind = self.random.random()
        if kind < 0.6:
            self.publish()
        elif kind < 0.75:
            wanderer = self.random.choice(self.wanderers)
            if self.random.random() < 0.5:
                wanderer.leave()
            wanderer.connect(self.random.choice(self.fronts))
            if self._stays:
                self.publish()
                self.run(self.random.choice((0.0, 0.01)))
                self.publish()
                self.run(STAY_S)
        elif kind < 0.8:
            self.random.choice(self.wanderers).leave()
        self.run(self.random.choice((0.0, 0.0, 0.0, 0.01, 0.3, 3.0)))

    def end(self) -> None:
        for wanderer in self.wanderers:
            wanderer.leave()
        self.run(QUIET_S)
        for wanderer in self.wanderers:
            wanderer.connect(self.random.choice(self.fronts))
        for _ in range(5):
            self.run(5.0)
            for wanderer in self.wanderers:
                wanderer.read(acknowledge=True)


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_message_is_missed_wherever_the_client_goes(seed: int, stays: bool) -> None:
    history = History(seed, stays)
    for _ in range(STEPS):
        history.step()
    history.end()
    for wanderer in history.wanderers:
        assert wanderer.absent == 0, "the session is present at each connection"
        for number, sent in enumerate(history.sent):
            came = [payload for payload in wanderer.came if payload.startswith(b"%d-" % number)]
            assert set(came) == set(sent), f"{wanderer.name} misses messages"
            assert not stays or came == sent, f"{wanderer.name} has some twice, or in another order"
    for front in history.fronts:
        assert front.broker.moves.leaving == {}
        assert front.broker.moves.coming == {}
        moves = front.member.core.enrolments.moves
        assert moves.leaving == moves.coming == 0
    sessions = sum(len(front.broker.sessions) for front in history.fronts)
    assert sessions == len(history.wanderers) + len(history.publishers)
