"""Discovery over UDP: candidates, bounds, and what garbage cannot do."""

import asyncio
import dataclasses
import random
import socket
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay.config import Address, OverlayConfig
from overlay.discovery import HINTS, Discovery
from overlay.errors import OverlayError
from overlay.handshake import Hello
from overlay.ids import SPACE, Id
from overlay.kademlia_contained import MAX_CONTACTS, MAX_PENDING, dialable, kademlia_key, point_of
from overlay.messages import Peer
from overlay.notices import Notices
from overlay.timing import LOCAL

ids = st.integers(0, SPACE - 1).map(Id)
QUICK = dataclasses.replace(LOCAL, reunion_s=0.01)
PATIENCE_S = 20.0
NUMBER = b"n" * 20
STRANGER = kademlia_key(Id(77))


class Side:
    """A peer with nothing but discovery; each introduction succeeds."""

    def __init__(self, point: int) -> None:
        self.config = OverlayConfig(id=Id(point), boot=1, listen=("127.0.0.1", 0), timing=QUICK)
        self.notices = Notices()
        self.discovery = Discovery(self.config, self, self.notices)
        self.asked: list[Address] = []
        self.met: list[Hello] = []
        self.friends: set[Id] = set()
        self.address: Address = ("127.0.0.1", 0)

    async def start(self, *seeds: Address, port: int = 0) -> None:
        await self.discovery.start(port, seeds)
        if self.discovery._server is not None:
            self.address = self.discovery._server.transport.get_extra_info("sockname")[:2]

    def known(self, peer: Id) -> bool:
        return peer in self.friends

    async def introduce(self, address: Address) -> Hello:
        self.asked.append(address)
        if address[1] == 1:
            raise OverlayError("nobody there")
        return Hello("ringmq", Peer(Id(address[1]), *address, 1), True, self.config.id)

    def introduced(self, hello: Hello) -> None:
        self.met.append(hello)

    @property
    def protocol(self):
        return self.discovery._server.protocol

    def contacts(self) -> int:
        return sum(len(bucket.nodes) + len(bucket.replacement_nodes) for bucket in self.protocol.router.buckets)


@pytest.fixture
async def side() -> AsyncIterator[Callable[..., object]]:
    started: list[Side] = []

    async def start(point: int, *seeds: Address, port: int = 0) -> Side:
        made = Side(point)
        started.append(made)
        await made.start(*seeds, port=port)
        return made

    yield start
    await asyncio.gather(*(made.discovery.stop() for made in started))
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - anything may become true, and nothing else should have to tell
            await asyncio.sleep(0.001)


class Probe(asyncio.DatagramProtocol):
    """Sends whatever it is told, and keeps what comes back."""

    def __init__(self) -> None:
        self.replies: list[bytes] = []
        self.calls: list[bytes] = []

    def datagram_received(self, data: bytes, addr: object) -> None:
        (self.calls if data[:1] == b"\x00" else self.replies).append(data)


@pytest.fixture
async def probe() -> AsyncIterator[tuple[asyncio.DatagramTransport, Probe]]:
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(Probe, local_addr=("127.0.0.1", 0))
    yield transport, protocol
    transport.abort()


def request(name: str, *keys: object) -> bytes:
    return b"\x00" + NUMBER + msgspec.msgpack.encode([name, list(keys)])


@given(ids, ids)
def test_keys_keep_the_order_of_ids(one: Id, other: Id) -> None:
    assert len(kademlia_key(one)) == 20
    assert point_of(kademlia_key(one)) == one
    assert (one < other) == (kademlia_key(one) < kademlia_key(other))


@pytest.mark.parametrize(
    ("host", "version", "verdict"),
    [
        ("10.0.0.1", 4, True),
        ("127.0.0.1", 4, True),
        ("::1", 6, True),
        ("fe80::1", 6, True),
        ("::1", 4, False),
        ("10.0.0.1", 6, False),
        ("0.0.0.0", 4, False),
        ("224.0.0.1", 4, False),
        ("255.255.255.255", 4, False),
        ("example.org", 4, False),
        ("", 4, False),
    ],
)
def test_only_addresses_of_one_machine_are_taken_from_strangers(host: str, version: int, verdict: bool) -> None:
    assert dialable(host, version) is verdict


async def test_peers_find_each_other_through_one_seed(side) -> None:
    first = await side(1)
    others = [await side(random.Random(number).getrandbits(128), first.address) for number in range(5)]
    addresses = {each.address for each in others}
    for each in others:
        await until(lambda each=each: addresses - {each.address} <= {(h.peer.host, h.peer.port) for h in each.met})
    assert all(each.notices.counters["discovery_errors"] == 0 for each in [first, *others])
    assert all(each.address not in each.asked for each in others)


async def test_the_known_are_not_asked_and_the_stale_are_counted(side) -> None:
    one = await side(1)
    crowd = [type("Contact", (), {"id": kademlia_key(Id(n)), "ip": "127.0.0.1", "port": 1 + n % 2}) for n in range(40)]
    one.friends = {Id(number) for number in range(20)}
    assert await one.discovery._follow(crowd) == HINTS // 2
    assert len(one.asked) == HINTS
    assert one.notices.counters["hints_stale"] == HINTS // 2


async def test_no_port_no_discovery_and_no_error(side) -> None:
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.bind(("127.0.0.1", 0))
    one = await side(1, port=taken.getsockname()[1])
    assert one.notices.counters["discovery_unavailable"] == 1
    taken.close()


async def test_requests_are_answered(side, probe) -> None:
    one = await side(1)
    transport, sender = probe
    transport.sendto(request("ping", STRANGER), one.address)
    await until(lambda: sender.replies)
    assert sender.replies == [b"\x01" + NUMBER + msgspec.msgpack.encode(kademlia_key(Id(1)))]
    transport.sendto(request("find_node", kademlia_key(Id(78)), STRANGER), one.address)
    await until(lambda: len(sender.replies) == 2)


NONSENSE = {
    "one byte": b"\x00",
    "short": b"\x00" * 21,
    "no message": b"\x02" + NUMBER + b"\x90",
    "no such call": request("stun"),
    "store": request("store", STRANGER, STRANGER, b"value"),
    "find_value": request("find_value", STRANGER, STRANGER),
    "short id": request("ping", b"x" * 19),
    "long id": request("ping", b"x" * 21),
    "text id": request("ping", "x" * 20),
    "too few": request("find_node", STRANGER),
    "too many": request("ping", STRANGER, STRANGER),
    "private": request("_timeout", STRANGER),
    "deep": b"\x00" + NUMBER + b"\x91" * 60_000,
    "huge": b"\x00" + NUMBER + b"\xdd\xff\xff\xff\xff",
    "unasked reply": b"\x01" + NUMBER + msgspec.msgpack.encode(STRANGER),
    "bad reply": b"\x01" + NUMBER + b"\xc1",
}


@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE.keys())
async def test_nonsense_is_counted_and_forgotten(side, probe, data: bytes) -> None:
    one = await side(1)
    transport, sender = probe
    transport.sendto(data, one.address)
    transport.sendto(request("ping", STRANGER), one.address)
    await until(lambda: sender.replies)
    assert len(sender.replies) == 1
    assert one.notices.counters["discovery_garbage"] == 1
    assert one.notices.counters["discovery_errors"] == 0
    assert list(one.protocol.storage) == []


async def test_random_datagrams_harm_nothing(side) -> None:
    one = await side(1)
    dice = random.Random(5)
    good = [request("ping", STRANGER), request("find_node", STRANGER, STRANGER)]
    for number in range(30_000):
        data = bytearray(dice.choice(good))
        if number % 2:
            data[dice.randrange(len(data))] = dice.randrange(256)
        else:
            data = bytearray([dice.randrange(3)]) + dice.randbytes(dice.randrange(80))
        one.protocol.datagram_received(bytes(data), ("127.0.0.1", 9))
    assert one.notices.counters["discovery_errors"] == 0
    assert one.notices.counters["discovery_garbage"] > 15_000
    assert one.contacts() <= MAX_CONTACTS


async def test_made_up_ids_take_bounded_memory(side) -> None:
    """Each id shares another length of prefix with the last, as one would do to split buckets without end."""
    one = await side(1)
    dice = random.Random(6)
    for number in range(20_000):
        point = (1 << dice.randrange(160)) if number % 3 == 0 else dice.getrandbits(160) >> dice.randrange(160)
        data = request("ping", point.to_bytes(20, "big"))
        one.protocol.datagram_received(data, ("127.0.0.1", 1 + number % 60_000))
        one.protocol.datagram_received(request("find_node", STRANGER, data[-20:]), ("127.0.0.1", 9))
    assert one.contacts() <= MAX_CONTACTS
    assert len(one.protocol._outstanding) <= MAX_PENDING
    assert len(one.protocol.router.buckets) < MAX_CONTACTS
    assert one.notices.counters["discovery_errors"] == 0
    assert len(asyncio.all_tasks()) < 200 + MAX_CONTACTS


async def test_hostile_replies_bring_neither_names_nor_errors(side, probe) -> None:
    """A reply may list hosts that would have to be resolved, and answers of another kind."""
    one = await side(1)
    transport, sender = probe
    call = asyncio.ensure_future(one.protocol.find_node(transport.get_extra_info("sockname"), STRANGER, STRANGER))
    await until(lambda: sender.calls)
    hosts = [[STRANGER, "example.org", 1], [STRANGER, "10.0.0.1", 2], [kademlia_key(Id(1)), "10.0.0.1", 3]]
    transport.sendto(b"\x01" + sender.calls[0][1:21] + msgspec.msgpack.encode(hosts), one.address)
    assert await call == (True, [(STRANGER, "10.0.0.1", 2)])
    crossed = asyncio.ensure_future(one.discovery._server.bootstrap_node(transport.get_extra_info("sockname")))
    await until(lambda: len(sender.calls) == 2)
    transport.sendto(b"\x01" + sender.calls[1][1:21] + msgspec.msgpack.encode(hosts), one.address)
    assert await crossed is None


async def test_a_dead_seed_blocks_nothing_and_stopping_is_quick(side) -> None:
    """The package waits 5 s for each answer: that is its task's own time."""
    dead = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    dead.bind(("127.0.0.1", 0))
    loop = asyncio.get_running_loop()
    began = loop.time()
    one = await side(1, dead.getsockname())
    await until(lambda: one.protocol._outstanding)
    await one.discovery.stop()
    assert loop.time() - began < 4.0
    assert not one.protocol._outstanding
    dead.close()
