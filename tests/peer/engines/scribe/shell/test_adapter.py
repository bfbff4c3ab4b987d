"""Fronts joined by trees, with real sockets on both sides."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from ringmq.mqtt_front.server.server import Listen, MqttServer
from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import LOCAL
from ringmq.overlay.node import Node
from ringmq.peer.engines.scribe.codec import encode_tree
from ringmq.peer.engines.scribe.config import LOCAL as TREES
from ringmq.peer.engines.scribe.messages import Join
from ringmq.peer.engines.scribe.places import key_of_place
from ringmq.peer.engines.scribe.shell.adapter import ScribeAdapter
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.config import LOCAL as ROLES
from tests.peer.engines.scribe.alone import peer_at
from tests.peer.messaging.shell.test_adapter import PATIENCE_S, Client, until


class PeerHere:
    """A peer without a process: node, Scribe and front."""

    def __init__(self, number: int, seeds: tuple[tuple[str, int], ...]) -> None:
        timing = dataclasses.replace(LOCAL, join_s=0.2)
        config = OverlayConfig(
            id=Id(number << 100), boot=1, listen=("127.0.0.1", 0), seeds=seeds, timing=timing, discovery=False
        )
        self.told: list[bool] = []
        iteration = Iteration()
        self.ports = ScribeAdapter(ROLES, iteration, TREES, self.told.append)
        self.front = MqttServer(iteration, cluster=self.ports)
        self.node = Node(config, self.ports, iteration)
        self.ports.attach(self.node, self.front)
        self.mqtt_port = 0

    async def start(self) -> None:
        await self.node.start()
        self.ports.begin()
        _, self.mqtt_port = await self.front.listen(Listen(host="127.0.0.1", port=0))
        await self.node.wait_active(PATIENCE_S)

    async def stop(self) -> None:
        await self.front.stop()
        self.ports.stop()
        await self.node.stop()


Start = Callable[[int], Coroutine[Any, Any, list[PeerHere]]]


@pytest.fixture
async def ring() -> AsyncIterator[Start]:
    """Starts so many peers; all are stopped in the end."""
    peers: list[PeerHere] = []

    async def start(count: int) -> list[PeerHere]:
        for number in range(1, count + 1):
            seeds = (peers[0].node.address,) if peers else ()
            peers.append(PeerHere(number, seeds))
            await peers[-1].start()
        return peers

    yield start
    for one in peers:
        await one.stop()


async def test_clients_of_two_peers_talk(ring: Start) -> None:
    peers = await ring(4)
    assert [one.told for one in peers] == [[True]] * 4
    hearer = await Client.to(peers[0].mqtt_port, "hearer")
    await hearer.subscribe("room/+/heat", "room/1/light")
    speaker = await Client.to(peers[3].mqtt_port, "speaker")
    await speaker.publish("room/1/heat", b"21")
    assert hearer.messages == [("room/1/heat", b"21", False)], "PUBACK comes when all in the tree hold it"
    await speaker.publish("room/1/light", b"on", qos=0)
    await until(lambda: len(hearer.messages) == 2)
    await hearer.unsubscribe("room/+/heat")
    await speaker.publish("room/1/heat", b"22")
    await speaker.publish("room/1/light", b"off")
    await until(lambda: len(hearer.messages) == 3)
    assert hearer.messages[2] == ("room/1/light", b"off", False)
    assert sum(one.ports.core.counters.joins for one in peers) > 0
    for client in (hearer, speaker):
        await client.close()


async def test_a_retained_message_reaches_later_subscribers_to_its_topic(ring: Start) -> None:
    peers = await ring(3)
    speaker = await Client.to(peers[0].mqtt_port, "speaker")
    await speaker.publish("door/1", b"open", retain=True)
    for number, one in enumerate(peers):
        hearer = await Client.to(one.mqtt_port, f"hearer {number}")
        await hearer.subscribe("door/1")
        await until(lambda hearer=hearer: hearer.messages == [("door/1", b"open", True)])
        await hearer.close()
    await speaker.close()


async def test_shared_filters_are_refused(ring: Start) -> None:
    (peer,) = await ring(1)
    client = await Client.to(peer.mqtt_port, "member")
    await client.subscribe("$share/crew/job", "job")
    assert client.told(0x90)[-1][2:] == b"\x80\x01"
    done: list[int] = []
    peer.ports.filter_added("$share/crew/job", lambda _: done.append(1))
    assert done == [1], "one of a session from before"
    assert len(peer.ports.core.subscriber) == 1
    await client.close()


async def test_a_join_that_passes_by_is_taken_off_its_way(ring: Start) -> None:
    (peer,) = await ring(1)
    child, root = peer_at(7), peer_at(8)
    payload = encode_tree(Join("far/away", child, False))
    assert not peer.ports.forward(key_of_place("far/away"), payload, root)
    tree = peer.ports.core.trees.get("far/away")
    assert tree is not None
    assert list(tree.children) == [child.id]
    assert peer.ports.forward(key_of_place("far/away"), b"what others send", root)


async def test_a_broken_link_is_no_parent_any_more(ring: Start) -> None:
    peers = await ring(3)
    clients = [await Client.to(one.mqtt_port, "client") for one in peers]
    for client in clients:
        await client.subscribe("a")
    below = next(one for one in peers if _parent(one) is not None)
    parent = _parent(below)
    assert parent is not None
    below.node.lost(parent, False)
    assert below.ports.core.counters.orphaned == 1
    await until(lambda: _parent(below) is not None)
    for client in clients:
        await client.close()


def _parent(one: PeerHere) -> Peer | None:
    tree = one.ports.core.trees.get("a")
    return None if tree is None else tree.parent
