"""Discovery over UDP: candidates, and a ring that works without."""

import asyncio
import dataclasses
import random
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from ringmq.overlay.bootstrap.discovery import HINTS, Discovery
from ringmq.overlay.bootstrap.kademlia import kademlia_key
from ringmq.overlay.config import Address, OverlayConfig
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import LOCAL
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.handshake import Hello
from ringmq.overlay.links.incidents import Incidents

QUICK = dataclasses.replace(LOCAL, reunion_s=0.01)


class Side:
    """A peer with nothing but discovery; each introduction succeeds."""

    def __init__(self, peer_id: int) -> None:
        self.config = OverlayConfig(id=Id(peer_id), boot=1, listen=("127.0.0.1", 0), timing=QUICK)
        self.incidents = Incidents()
        self.discovery = Discovery(self.config, self, self.incidents)
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

    async def start(peer_id: int, *seeds: Address, port: int = 0) -> Side:
        made = Side(peer_id)
        started.append(made)
        await made.start(*seeds, port=port)
        return made

    yield start
    await asyncio.gather(*(made.discovery.stop() for made in started))
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_peers_find_each_other_through_one_seed(side, until) -> None:
    first = await side(1)
    others = [await side(random.Random(number).getrandbits(128), first.address) for number in range(5)]
    addresses = {each.address for each in others}
    for each in others:
        await until(lambda each=each: addresses - {each.address} <= {(h.peer.host, h.peer.port) for h in each.met})
    assert all(each.incidents.counters["discovery_errors"] == 0 for each in [first, *others])
    assert all(each.address not in each.asked for each in others)


async def test_the_known_are_not_asked_and_the_stale_are_counted(side) -> None:
    ours = await side(1)
    crowd = [type("Contact", (), {"id": kademlia_key(Id(n)), "ip": "127.0.0.1", "port": 1 + n % 2}) for n in range(40)]
    ours.friends = {Id(number) for number in range(20)}
    assert await ours.discovery._follow(crowd) == HINTS // 2
    assert len(ours.asked) == HINTS
    assert ours.incidents.counters["hints_stale"] == HINTS // 2


async def test_no_port_no_discovery_and_no_error(side) -> None:
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.bind(("127.0.0.1", 0))
    ours = await side(1, port=taken.getsockname()[1])
    assert ours.incidents.counters["discovery_unavailable"] == 1
    taken.close()


async def test_a_dead_seed_blocks_nothing_and_stopping_is_quick(side, until) -> None:
    """The package waits 5 s for each answer: that is its task's own time."""
    dead = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    dead.bind(("127.0.0.1", 0))
    loop = asyncio.get_running_loop()
    began = loop.time()
    ours = await side(1, dead.getsockname())
    await until(lambda: ours.protocol._outstanding)
    await ours.discovery.stop()
    assert loop.time() - began < 4.0
    assert not ours.protocol._outstanding
    dead.close()
