"""A request to a ring of fifty peers, of which each knows at most 32 others by its leaf set, over real links."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec
import pytest_asyncio

from ringmq.overlay.config import Address, OverlayConfig
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import LAN
from ringmq.overlay.node import Node
from ringmq.overlay.queries import ask_ring
from ringmq.peer.administration.requests import (
    ClientRow,
    Reply,
    Request,
    Row,
    Subject,
    decode_reply,
    encode_request,
)
from ringmq.peer.administration.shell.desk import Desk
from ringmq.peer.administration.survey import NO_ANSWER, SILENT_S
from ringmq.peer.iteration import Iteration

PEERS = 50
CLIENTS = 200
"""Of each peer: 10,000 in all."""


class Quiet:
    """An application that does nothing."""

    def started(self, me: Peer) -> None: ...
    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None: ...
    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return True

    def receive(self, sender: Peer, payload: bytes) -> None: ...
    def read_done(self) -> None: ...
    def undeliverable(self, key: Id, payload: bytes) -> None: ...
    def unsent(self, payload: bytes) -> None: ...
    def link_lost(self, peer: Peer) -> None: ...
    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None: ...
    def leaves_changed(self) -> None: ...
    def activity_changed(self, active: bool) -> None: ...


class Crowd:
    """Tells of clients with the number of their peer."""

    def __init__(self, number: int) -> None:
        self.number = number

    def rows(self, request: Request) -> Iterator[Row | None]:
        for client in range(CLIENTS):
            yield ClientRow(client=f"client-{self.number:03}-{client:04}", address="127.0.0.1:40000", version="5.0")


class LargeRing:
    """Nodes of one process, each with its desk."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.desks: list[Desk] = []

    async def start(self) -> None:
        seeds: tuple[Address, ...] = ()
        for number in range(PEERS):
            config = OverlayConfig(
                id=Id(SPACE // PEERS * number + 7),
                boot=1,
                listen=("127.0.0.1", 0),
                seeds=seeds,
                discovery=False,
                timing=LAN,
            )
            iteration = Iteration()
            node = Node(config, Quiet(), iteration)
            self.nodes.append(node)
            await node.start()
            seeds = seeds or (node.address,)
            desk = Desk(node, iteration, Crowd(number))
            desk.open()
            self.desks.append(desk)
        await until(lambda: all(node.active and len(node.ring.leaves.peers) == 32 for node in self.nodes), 60.0)

    async def stop(self) -> None:
        for desk in self.desks:
            desk.close()
        for node in self.nodes:
            await node.stop()


async def until(condition: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def large() -> AsyncIterator[LargeRing]:
    made = LargeRing()
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def asked(ring: LargeRing, number: int, limit: int) -> tuple[Reply, list[ClientRow]]:
    body = encode_request(Request(about=Subject.CLIENTS, limit=limit))
    return decode_reply(await ask_ring(ring.nodes[number].address, body, 10.0), ClientRow)


async def test_ten_thousand_clients_of_fifty_peers_are_listed(large: LargeRing) -> None:
    assert not large.nodes[0].ring.leaves.covers(large.nodes[PEERS // 2].ring.me.id), "nobody knows all"
    took: list[float] = []
    for number in (0, 17):
        began = time.monotonic()
        reply, rows = await asked(large, number, 100_000)
        took.append(time.monotonic() - began)
        assert (len(rows), reply.total, reply.missing, len(reply.peers)) == (PEERS * CLIENTS, 10_000, [], PEERS)
        assert len({row.client for row in rows}) == PEERS * CLIENTS
        assert {row.peer for row in rows} == {node.ring.me.id.hex() for node in large.nodes}
    print(f"\n10,000 clients of 50 peers: {took[0]:.2f} s, again {took[1]:.2f} s, all peers in one process")
    # All fifty peers share one event loop here, and the machine may be busy.
    assert min(took) < 3.0


async def test_a_silent_peer_far_away_is_named_in_time(large: LargeRing) -> None:
    far = large.nodes[PEERS // 2]
    far.ring.on_question = lambda peer, question: None
    began = time.monotonic()
    reply, rows = await asked(large, 0, 10)
    assert time.monotonic() - began < SILENT_S + 3.0
    assert [(missing.peer, missing.why) for missing in reply.missing] == [(far.ring.me.id.hex(), NO_ANSWER)]
    assert (len(rows), reply.total) == (10, (PEERS - 1) * CLIENTS)
    assert msgspec.json.encode(reply)
