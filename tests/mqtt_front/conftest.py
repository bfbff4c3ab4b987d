"""Clients in memory: they feed bytes to connections of one broker and read what comes out, in any version of MQTT."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ringmq.mqtt_front.access.access import Decision
from ringmq.mqtt_front.access.acl import ALL_RIGHTS, Rights
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.cluster import Cluster, Done, Enrolment, Settled, Standing
from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    NO_PROPERTIES,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.connection import Connection
from ringmq.mqtt_front.connection.writer import Writer
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.moving_session import Origin
from ringmq.mqtt_front.sessions.session import Session
from tests.mqtt_front.front_bench import Bench

P = TypeVar("P")


class SlowPorts:
    """A layer above that answers when the test says so."""

    serves_groups = False
    keeps_retained = False

    def __init__(self) -> None:
        self.messages: list[tuple[Message, int]] = []
        self.dones: list[Done | None] = []
        self.added: list[tuple[str, Done]] = []
        self.removed: list[str] = []
        self.unserved: set[str] = set()
        self.refused: set[str] = set()

    def published(self, message: Message, receivers_here: int, done: Done | None) -> None:
        self.messages.append((message, receivers_here))
        self.dones.append(done)

    def published_fast(self, topic: str, payload: bytes, receivers_here: int) -> None:
        self.published(Message(topic, payload), receivers_here, None)

    def take_over(self, messages: list[Message]) -> bool:
        return False

    def serves(self, topic_filter: str) -> bool:
        return topic_filter not in self.unserved

    def filter_added(self, topic_filter: str, done: Done, lasting: bool = False) -> None:
        self.added.append((topic_filter, done))

    def is_refused(self, topic_filter: str) -> bool:
        return topic_filter in self.refused

    def filter_removed(self, topic_filter: str) -> None:
        self.refused.discard(topic_filter)
        self.removed.append(topic_filter)

    def enrol(self, enrolment: Enrolment, settled: Settled) -> None:
        settled(Standing.CURRENT)

    def discharge(self, client_id: str) -> None: ...
    def arrived(self, client_id: str) -> None: ...
    def next_origin(self) -> Origin:
        return 0, 0, len(self.messages) + 1

    @property
    def payloads(self) -> list[tuple[bytes, int]]:
        return [(message.payload, here) for message, here in self.messages]

    def settle(self, place: int, reason: Reason = Reason.SUCCESS) -> None:
        done = self.dones[place]
        assert done is not None
        done(reason)


class QuickPorts(SlowPorts):
    """A layer above in which every filter is in force at once."""

    def filter_added(self, topic_filter: str, done: Done, lasting: bool = False) -> None:
        done(Reason.SUCCESS)


class World:
    """A broker, its clock, who may connect, and the clients."""

    def __init__(self, config: FrontConfig | None = None, cluster: Cluster | None = None, defer: bool = False) -> None:
        self.broker = Broker(config or FrontConfig(), cluster)
        self.rights: dict[str, Rights] = {}
        """By client id; who is not here may do everything."""
        self.refused: dict[str, Reason] = {}
        self.defer = defer
        self.undecided: deque[tuple[Connection, Connect, str]] = deque()
        self._ids = 0
        self._inboxes: dict[Writer, Client] = {}

    # The gate

    def decide(self, connection: Connection, connect: Connect, client_id: str) -> None:
        if self.defer:
            self.undecided.append((connection, connect, client_id))
        else:
            connection.admitted(self._decision(client_id))

    def decide_next(self) -> None:
        connection, _, client_id = self.undecided.popleft()
        connection.admitted(self._decision(client_id))

    def _decision(self, client_id: str) -> Decision:
        reason = self.refused.get(client_id, Reason.SUCCESS)
        return Decision(reason, self.rights.get(client_id, ALL_RIGHTS), client_id)

    def new_client_id(self) -> str:
        self._ids += 1
        return f"assigned-{self._ids}"

    # Time and bytes

    @property
    def now(self) -> float:
        return self.broker.clock.now

    def pass_time(self, seconds: float) -> None:
        self.broker.clock.now += seconds
        self.broker.tick()

    def turn(self) -> None:
        """What the shell does at the end of a turn: bring the bytes to the clients."""
        broker = self.broker
        broker.end_iteration()
        broker.journal.commit()
        dirty, broker.dirty = broker.dirty, []
        for writer in dirty:
            assert isinstance(writer, Writer)
            client = self._inboxes[writer]
            client.inbox += writer.gathered()
            writer.clear()
            if writer.starved:
                client.connection.go_on()

    # Clients

    def client(self, version: Version = Version.V5) -> Client:
        """One that has not said anything."""
        client = Client(self, version)
        self._inboxes[client.connection.writer] = client
        return client

    def connect(self, client_id: str = "c", version: Version = Version.V5, **fields: Any) -> Client:
        """One that is let in. `fields` are those of its CONNECT, and properties."""
        client = self.client(version)
        client.connect(client_id, **fields)
        client.connack = client.only(Connack)
        assert client.connack.reason is Reason.SUCCESS
        return client

    def pair(self, version: Version = Version.V5) -> tuple[Client, Client]:
        """A publisher and a subscriber to be."""
        return self.connect("publisher", version), self.connect("subscriber", version)

    def session(self, client_id: str) -> Session:
        return self.broker.sessions[client_id]


class Client:
    """The other end of a connection."""

    def __init__(self, world: World, version: Version) -> None:
        self.world = world
        self.version = version
        self.connection = Connection(world.broker, world, True)
        self.inbox = b""
        self.connack = Connack(False, Reason.SUCCESS)
        self._packet_id = 0

    # Out

    def connect(
        self,
        client_id: str,
        clean: bool = True,
        keep_alive_s: int = 0,
        will: Will | None = None,
        user_name: str | None = None,
        password: bytes | None = None,
        **properties: Any,
    ) -> None:
        self.send(
            Connect(
                self.version, client_id, clean, keep_alive_s, will, user_name, password, made_of(properties)
            )
        )  # fmt: skip

    def send(self, *packets: Packet) -> None:
        for packet in packets:
            self.feed(encode(self.version, packet))

    def feed(self, data: bytes) -> None:
        self.connection.feed(data)

    def next_id(self) -> int:
        self._packet_id += 1
        return self._packet_id

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 0, **fields: Any) -> int:
        """Send a PUBLISH; gives its packet id. `fields`: retain, dup, packet_id, and properties."""
        retain, dup = fields.pop("retain", False), fields.pop("dup", False)
        packet_id = fields.pop("packet_id", None) or (self.next_id() if qos else 0)
        self.send(Publish(topic, payload, qos, retain, dup, packet_id, made_of(fields)))
        return int(packet_id)

    def subscribe(self, *filters: str | Subscription, qos: int = 0, ids: tuple[int, ...] = ()) -> Suback:
        """Subscribe and give the SUBACK, which comes before any retained message."""
        packet_id = self.send_subscribe(*filters, qos=qos, ids=ids)
        self.world.turn()
        suback = self.pop()
        assert isinstance(suback, Suback)
        assert suback.packet_id == packet_id
        return suback

    def send_subscribe(self, *filters: str | Subscription, qos: int = 0, ids: tuple[int, ...] = ()) -> int:
        lines = tuple([Subscription(one, qos) if isinstance(one, str) else one for one in filters])
        packet_id = self.next_id()
        self.send(Subscribe(packet_id, lines, made_of({"subscription_ids": ids} if ids else {})))
        return packet_id

    def unsubscribe(self, *filters: str) -> Unsuback:
        packet_id = self.next_id()
        self.send(Unsubscribe(packet_id, filters))
        answer = self.only(Unsuback)
        assert answer.packet_id == packet_id
        return answer

    def leave(self, reason: Reason = Reason.SUCCESS, **properties: Any) -> None:
        """With a DISCONNECT."""
        self.send(Disconnect(reason, made_of(properties)))
        self.drop()

    def drop(self) -> None:
        """Without a word."""
        self.connection.lost()

    # In

    def take(self) -> list[Packet]:
        """All packets that have come since the last look."""
        self.world.turn()
        reader, data, self.inbox = PacketReader(), self.inbox, b""
        packets = [_kept(decode(self.version, first, body)) for first, body in reader.feed(data)]
        assert not reader.buffered_bytes, "half a packet"
        return packets

    def pop(self) -> Packet:
        """The first packet that has come."""
        first, *rest = self.take() or [None]
        assert first is not None, "nothing has come"
        self.inbox = b"".join([encode(self.version, packet) for packet in rest])
        return first

    def only(self, kind: type[P]) -> P:
        """The one packet that has come."""
        packets = self.take()
        assert len(packets) == 1, packets
        assert isinstance(packets[0], kind), packets
        return packets[0]

    def messages(self) -> list[Publish]:
        """The packets that have come, all of which are messages."""
        packets = self.take()
        assert all(isinstance(packet, Publish) for packet in packets), packets
        return [packet for packet in packets if isinstance(packet, Publish)]

    def message(self) -> Publish:
        return self.only(Publish)

    def payloads(self) -> list[bytes]:
        return [bytes(message.payload) for message in self.messages()]

    def closed_with(self, reason: Reason) -> bool:
        """Whether the last that came was a DISCONNECT with this reason, and the connection is to be closed."""
        last = self.take()[-1]
        return self.closed and isinstance(last, Disconnect) and last.reason is reason

    @property
    def closed(self) -> bool:
        return self.connection.writer.closing


def made_of(properties: dict[str, Any]) -> Properties:
    return Properties(**properties) if properties else NO_PROPERTIES


def _kept(packet: Packet) -> Packet:
    return replace(packet, payload=bytes(packet.payload)) if isinstance(packet, Publish) else packet


@pytest.fixture(scope="session")
def make_world() -> type[World]:
    """For tests that need a broker of their own kind, or many of them."""
    return World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def quick_ports() -> QuickPorts:
    return QuickPorts()


@pytest.fixture
def slow_ports() -> SlowPorts:
    return SlowPorts()


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    for client in bench.clients:
        client.writer.transport.abort()
    await bench.front.stop()
