"""A ring on virtual time with a hostile member: real overlay cores and engines, with disks, and clients that note all.

The member sends well-formed messages with false contents over its links, as anybody who reaches the port can.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, get_args

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator.checks import Checks
from ringmq.experiments.simulator.pubsub import BurstEngine, PubSubNode, PubSubWorld
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core import messages as ring_messages
from ringmq.overlay.core.codec import decode, encode
from ringmq.overlay.core.messages import Parcel, Route
from ringmq.overlay.core.timing import LAN
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.partitioned.item_codec import encode_item
from ringmq.peer.engines.partitioned.messages import Item
from ringmq.peer.engines.partitioned.shell.record_store import RecordStore
from ringmq.peer.engines.scribe.codec import encode_tree, wrap
from ringmq.peer.engines.scribe.config import TreeConfig
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.engines.scribe.messages import TreeMessage
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.fast_path import FAST_HEAD
from ringmq.peer.messaging.messages import Control
from ringmq.peer.messaging.publication import Publication, Relay, Trace, encode_control, put_together
from ringmq.peer.messaging.publication import encode as encode_publication
from ringmq.peer.streams.stream_messages import Batch, Lane
from tests.peer.engines.partitioned.liars import Liar

RING: Final = get_args(ring_messages.Message)
CONTROLS: Final = get_args(Control)
ITEMS: Final = get_args(Item)
TREES: Final = get_args(TreeMessage)
BIG: Final = (0, 1, 2, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
"""Numbers for fields of 64 bits."""
NAMES: Final = ["a", "a/b", "c", "a/+", "a/#", "kept"]


class NotingClients:
    """The clients of one peer: all that came, and the retained messages that they would get."""

    def __init__(self) -> None:
        self.came: list[tuple[str, bytes]] = []
        self.kept: dict[str, bytes] = {}

    def deliver(self, publication: Publication) -> int:
        self.came.append((publication.topic, publication.body))
        return 1

    def deliver_fast(self, topic: bytes, body: bytes) -> bool | None:
        return None

    def retained(self, topic: str, body: bytes) -> None:
        self.kept[topic] = body


class Indifferent(Checks):
    """A hostile member breaks the invariants of a ring for a while: only that it becomes whole again counts."""

    def _broken(self, kind: str, text: str) -> None: ...


class HostileWorld(PubSubWorld):
    """The peers have disks in `folder`, if they are not those of Scribe."""

    def __init__(self, folder: Path, trees: TreeConfig | None, count: int = 5) -> None:
        self.folder = folder
        self.stores: dict[int, RecordStore] = {}
        self.noting: dict[int, NotingClients] = {}
        super().__init__(1, LAN, config=PubSubConfig(), trees=trees, strict=False)
        self.checks = Indifferent(False, 2 * LAN.stabilise_s)
        settled_ring(self, count)
        self.run(1.0)
        self.hostile, *self.honest = self.peers()

    def core_for(self, overlay: Any, clients: Any) -> Any:
        noting = self.noting.setdefault(overlay.me.id, NotingClients())
        if self.trees is not None:
            return ScribeEngine(overlay, noting, self.config, self.trees, clock=self)
        store = self.stores[overlay.me.id] = RecordStore(self.folder / f"{overlay.me.id:x}", lambda: self.now)
        core = BurstEngine(overlay, noting, self.config, store, clock=self)
        core.acknowledges_later = True
        core.restore(*store.load())
        return core

    def _after(self, node: Any, force: bool = False) -> None:
        store = self.stores.get(node.peer.id)
        # What the shell does at the end of an iteration.
        while store is not None and node.core.owes:
            store.commit()
            node.core.acknowledge()
        super()._after(node, force)

    def close(self) -> None:
        for store in self.stores.values():
            store.close()

    def restart_all(self) -> None:
        """As after `kill -9` of all honest peers at once, one after the other."""
        for node in list(self.honest):
            self.crash(node)
            self.stores.pop(node.peer.id).close()
            again = self.add(node.peer.id)
            self.honest[self.honest.index(node)] = again
            self.join(again, next(other for other in self.honest if other is not again))
            self.run(self.now + 10.0)

    def clients_of(self, node: PubSubNode) -> NotingClients:
        return self.noting[node.peer.id]

    def asks_for(self, node: PubSubNode, *filters: str) -> list[str]:
        """Fills the list that it returns with those that are in force."""
        done: list[str] = []
        for name in filters:
            node.core.subscribe(name, lambda _, name=name: done.append(name))
            self._after(node)
        return done

    def says(self, node: PubSubNode, topic: str, body: bytes, qos: int = 1, *, retain: bool = False) -> list[Reason]:
        reasons: list[Reason] = []
        node.core.publish(topic, body, qos, retain=retain, done=reasons.append)
        self._after(node)
        return reasons

    def strike(self, victim: PubSubNode, message: ring_messages.Message) -> None:
        """A frame of the hostile member arrives."""
        with contextlib.suppress(ProtocolError):
            read = decode(encode(message))
            # Links take no other way for parcels.
            if isinstance(read, Parcel):
                victim.ring.parcel(self.hostile.peer, read.payload, self.now)
            else:
                victim.ring.receive(self.hostile.peer, read, self.now)
        self._after(victim)

    def is_whole(self) -> bool:
        """Whether honest peers subscribe, publish and retain as before: everything within 20 s."""
        topic = f"late/{self.now:.0f}"
        reader, *writers = self.honest
        # Scribe keeps retained messages for filters without wildcards.
        done = self.asks_for(reader, topic, f"{topic}/kept")
        self.run(self.now + 10.0)
        told = [self.says(node, topic, node.peer.id.hex().encode()) for node in writers]
        kept = self.says(writers[0], f"{topic}/kept", b"kept", retain=True)
        self.run(self.now + 5.0)
        late = self.asks_for(writers[-1], f"{topic}/kept")
        self.run(self.now + 5.0)
        came = [body for name, body in self.clients_of(reader).came if name == topic]
        return (
            sorted(done) == sorted({topic, f"{topic}/kept"})
            and sorted(came) == sorted(node.peer.id.hex().encode() for node in writers)
            and [reasons[0] for reasons in (*told, kept) if reasons] == [Reason.SUCCESS] * (len(told) + 1)
            and bool(late)
            and self.clients_of(writers[-1]).kept.get(f"{topic}/kept") == b"kept"
        )


class Forger:
    """Makes frames of the hostile member out of the name of a kind and a seed."""

    def __init__(self, world: HostileWorld) -> None:
        self._world = world
        self._peers = [node.peer for node in world.peers()]
        self._numbers: dict[tuple[int, Lane], int] = {}

    def make(self, kind: type, seed: int) -> tuple[PubSubNode, ring_messages.Message]:
        chance = random.Random(seed)
        world = self._world
        victim = chance.choice(world.honest)
        liar = Liar(chance, [*self._peers, victim.peer, world.hostile.peer], NAMES)
        if kind in RING and kind not in (Parcel, Route):
            return victim, liar.message(kind)
        if kind is Route:
            message = liar.message(kind)
            if isinstance(message.body, bytes):
                inner = chance.choice((*CONTROLS, *TREES))
                message = Route(message.origin, message.seq, message.key, message.hops, self._payload(liar, inner))
            return victim, message
        return victim, Parcel(self._parcel(liar, chance, kind, victim))

    def _parcel(self, liar: Liar, chance: random.Random, kind: type, victim: PubSubNode) -> bytes:
        if kind is Publication:
            return self._publication(liar, chance)
        if kind is Parcel:
            return b"".join(put_together([self._payload(liar, chance.choice(CONTROLS)) for _ in range(5)]))
        if kind in ITEMS:
            return encode_control(self._batch(liar, kind, victim))
        return self._payload(liar, kind)

    def _batch(self, liar: Liar, kind: type, victim: PubSubNode) -> Batch:
        """An item in a stream that the victim takes for the next of the hostile member."""
        pair = victim.core.streams._pairs.by_id.get(self._world.hostile.peer.id)
        incoming = None if pair is None else pair.incoming
        lane = None if incoming is None else incoming.lanes[Lane.CONTROL]
        stream = 1 + (0 if pair is None else pair.refused) if incoming is None else incoming.number
        seq = 1 if lane is None else lane.last + 1
        items = tuple([encode_item(liar.message(kind)) for _ in range(2)])
        return Batch(Lane.CONTROL, victim.peer.boot, stream, seq, True, False, items)

    def _payload(self, liar: Liar, kind: type) -> bytes:
        return encode_tree(liar.message(kind)) if kind in TREES else encode_control(liar.message(kind))

    def _publication(self, liar: Liar, chance: random.Random) -> bytes:
        relay = liar.message(Relay) if chance.random() < 0.5 else None
        trace = Trace(chance.choice(BIG), chance.choice((0, 255))) if chance.random() < 0.2 else None
        body = chance.choice((b"", FAST_HEAD, FAST_HEAD + b"x", b"\xff" * 30))
        if self._world.trees is not None and chance.random() < 0.7:
            inner = self._plain(liar, chance, body, None, None)
            body = wrap(chance.choice(self._peers), chance.random() < 0.5, inner)
        return encode_publication(self._plain(liar, chance, body, relay, trace))

    def _plain(
        self, liar: Liar, chance: random.Random, body: bytes, relay: Relay | None, trace: Trace | None
    ) -> Publication:
        shared = chance.choice(((), (), ("$share/g/a",), ("", "#")))
        return Publication(
            chance.choice((0, 1, *BIG)), chance.choice(BIG), chance.randint(0, 2), liar._plain(str, "topic"), body,
            chance.random() < 0.5, chance.choice(BIG), chance.choice(BIG), chance.choice(BIG), chance.random() < 0.8,
            shared, relay, chance.random() < 0.3, trace,
        )  # fmt: skip


Kinds = tuple[type, ...]
ROLES: Final[Kinds] = (*RING, *CONTROLS, *ITEMS, Publication)
SCRIBE_ROLES: Final[Kinds] = (*RING, *TREES, Publication)
Make = Callable[[type, int], tuple[PubSubNode, ring_messages.Message]]
