"""The scenario `hostile`: storms of well-formed messages with wrong contents, from an address that a member has.

A stranger greets peers by its own id or by that of a member, and sends role messages with random and boundary values,
replays, half frames and connections without a HELLO. It does not join. What is published during a storm is not
checked, as whoever reaches the overlay can do harm; what is published afterwards is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from random import Random
from typing import Final

from ringmq.experiments.chaos.history import FaultKind
from ringmq.experiments.chaos.hostile_values import HostileValues
from ringmq.experiments.chaos.run import ChaosRun
from ringmq.overlay.config import Address
from ringmq.overlay.core import codec
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Message, Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.overlay.links.frames import FrameReader, Kind, frame, header
from ringmq.overlay.links.handshake import MAX_HELLO_BYTES, Hello, decode_hello, encode_hello
from ringmq.peer.engines.partitioned.item_codec import decode_item, encode_item
from ringmq.peer.engines.partitioned.messages import Item
from ringmq.peer.messaging import publication
from ringmq.peer.messaging.fast_path import PUBLICATION
from ringmq.peer.messaging.messages import Control
from ringmq.peer.streams.stream_messages import Batch, Lane

RING: Final = "ringmq"
STORM_S: Final = (2.0, 6.0)
CALM_S: Final = (8.0, 12.0)
WITHIN_S: Final = 3.0
BURST: Final = 200
"""Messages of one connection."""
ITEMS: Final = 5
REMEMBERED: Final = 500
"""Frames that are sent again in other connections."""
HALF_BYTES: Final = 15 << 20
"""The announced length of half frames: below the largest frame of a link."""
HALF_SENT_BYTES: Final = 1 << 20
IMPOSTORS: Final = 0.2
"""The share of connections by the id of a member."""
PUBLICATION_BYTES: Final = (20, 40, 80, 300)


class Stranger:
    """Opens connections to peers, and sends what nobody should."""

    def __init__(self, chance: Random, members: list[Peer], ring_settings: str) -> None:
        self._chance = chance
        self._members = members
        self._settings = ring_settings
        self._id = Id(chance.getrandbits(128))
        ids = tuple(member.id for member in members)
        self._values = HostileValues(chance, (*ids, self._id, Id(0), Id((1 << 128) - 1)))
        self._sent: deque[bytes] = deque(maxlen=REMEMBERED)
        self._streams = 1

    async def attack(self) -> None:
        """One connection of a random kind to a random member."""
        victim = self._chance.choice(self._members)
        attack = self._chance.choices((self._storm, self._half_frame, self._silence), (8, 1, 1))[0]
        with contextlib.suppress(OSError, TimeoutError, ProtocolError, asyncio.IncompleteReadError):
            async with asyncio.timeout(WITHIN_S):
                reader, writer = await asyncio.open_connection(victim.host, victim.port)
                try:
                    await attack(victim, reader, writer)
                finally:
                    writer.transport.abort()

    def _hello(self, victim: Peer) -> bytes:
        host, port = victim.host, self._chance.randint(1, 65535)
        if self._chance.random() < IMPOSTORS:
            member = self._chance.choice(self._members)
            me = Peer(member.id, member.host, member.port, member.boot + self._chance.choice((0, 1, 1 << 40)))
        else:
            me = Peer(self._id, host, port, self._chance.choice((1, victim.boot, (1 << 62))))
        return frame(Kind.HELLO, encode_hello(Hello(RING, me, True, victim.id, self._settings)))

    async def _storm(self, victim: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._hello(victim))
        self._streams += 1
        for seq in range(1, BURST):
            data = self._frame(victim, seq)
            if data is not None:
                self._sent.append(data)
                writer.write(data)
            if self._sent and self._chance.random() < 0.1:
                writer.write(self._chance.choice(self._sent))
        await writer.drain()
        while await reader.read(1 << 16):  # until it is closed, or the time is over
            pass

    def _frame(self, victim: Peer, seq: int) -> bytes | None:
        """A frame of one of the layers; None if a drawn value has no form on the wire."""
        chance = self._chance
        try:
            match chance.randrange(4):
                case 0:
                    return frame(Kind.CONTROL, codec.encode(self._values.draw(Message)))
                case 1:
                    return frame(Kind.PARCEL, publication.encode_control(self._values.draw(Control)))
                case 2:
                    body = PUBLICATION + chance.randbytes(chance.choice(PUBLICATION_BYTES))
                    return frame(Kind.PARCEL, body)
                case _:
                    items = tuple(encode_item(self._values.draw(Item)) for _ in range(ITEMS))
                    for item in items:
                        decode_item(item)
                    batch = Batch(chance.choice(list(Lane)), victim.boot, self._streams, seq, True, False, items)
                    return frame(Kind.PARCEL, publication.encode_control(batch))
        except (ValueError, OverflowError, TypeError, ProtocolError):
            return None

    async def _half_frame(self, victim: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._hello(victim))
        writer.write(header(Kind.PARCEL, HALF_BYTES) + bytes(HALF_SENT_BYTES))
        await writer.drain()
        await reader.read()

    async def _silence(self, victim: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()


async def introduced(address: Address, ring_settings: str) -> Peer:
    """The peer at an address, by the HELLO that anybody gets. Raises OSError or ProtocolError."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        asker = Peer(Id(1), address[0], 9, 1)
        writer.write(frame(Kind.HELLO, encode_hello(Hello(RING, asker, False, None, ring_settings))))
        frames = FrameReader(MAX_HELLO_BYTES)
        async with asyncio.timeout(WITHIN_S):
            while data := await reader.read(1 << 16):
                for kind, body in frames.feed(data):
                    hello = decode_hello(body) if kind == Kind.HELLO else None
                    if hello is not None:
                        return hello.peer
    finally:
        writer.transport.abort()
    raise ProtocolError("no HELLO")


async def hostile(run: ChaosRun) -> None:
    """Storms of some seconds, and calm between them."""
    settings = f"timing {run.site.plan.timing}"
    addresses = [peer.ring_peer.overlay for peer in run.site.peers]
    members = [await introduced(address, settings) for address in addresses]
    while not run.is_over:
        stranger = Stranger(run.chance, members, settings)
        fault = run.recorder.injected(FaultKind.HOSTILE, text="hostile")
        until = run.recorder.now + run.chance.uniform(*STORM_S)
        while run.recorder.now < until:
            await asyncio.gather(*(stranger.attack() for _ in range(3)))
        fault.end = run.recorder.now
        await run.settle()
        await run.wait(*CALM_S)
