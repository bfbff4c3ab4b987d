"""One peer with Scribe by hand: what it is told, what it says, and nothing in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.codec import decode, encode_tree, wrap
from ringmq.peer.engines.scribe.config import TreeConfig
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.engines.scribe.messages import TreeMessage
from ringmq.peer.engines.scribe.places import key_of_place
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.messages import Control
from ringmq.peer.messaging.publication import Publication, encode

Message = Publication | Control | TreeMessage
M = TypeVar("M")


def peer_at(point: int, boot: int = 0) -> Peer:
    return Peer(Id(point), f"h{point}", 1, boot)


class Lone:
    """One peer by hand: an overlay that keeps what is sent, and clients that keep theirs. `owners` are of every key."""

    def __init__(
        self,
        config: PubSubConfig | None = None,
        trees: TreeConfig | None = None,
        clock_us: Callable[[], int] | None = None,
    ) -> None:
        self.me = peer_at(100)
        self.active = True
        self.takes = True
        """Whether `send` takes anything."""
        self.owners: tuple[Peer, ...] = (peer_at(1), self.me, peer_at(2))
        self.leaves: tuple[Peer, ...] = (peer_at(1), peer_at(2))
        self.watched: set[Id] = set()
        self.sent: list[tuple[Peer, Message]] = []
        self.routed: list[tuple[Id, Message]] = []
        self.given: list[Publication] = []
        self.kept: dict[str, bytes] = {}
        self.reasons: list[Reason] = []
        self.core = ScribeEngine(self, self, config or PubSubConfig(), trees or TreeConfig(), clock_us=clock_us)
        self.core.activity_changed(True)

    def send(self, peer: Peer, payload: bytes) -> bool:
        if self.takes:
            self.sent.append((peer, decode(payload)))
        return self.takes

    def route(self, key: Id, payload: bytes) -> bool:
        self.routed.append((key, decode(payload)))
        return True

    def find_way(self, peer: Peer) -> None: ...

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        self.watched.add(key)
        return self.owners[:count]

    def unwatch(self, key: Id) -> None:
        self.watched.remove(key)

    def deliver(self, publication: Publication) -> int:
        self.given.append(publication)
        return 1

    def retained(self, topic: str, body: bytes) -> None:
        self.kept[topic] = body

    # What tests do and ask

    def hears(self, sender: Peer, *messages: TreeMessage) -> None:
        for message in messages:
            self.core.receive(sender, encode_tree(message))

    def reigns(self, place: str) -> None:
        """Be the root of this place from now on, if anybody asks."""
        self.owners = (self.me, peer_at(1), peer_at(2))
        self.core.owners_changed(key_of_place(place), self.owners)

    def follows(self, place: str) -> None:
        """Be it no longer."""
        self.owners = (peer_at(1), self.me, peer_at(2))
        self.core.owners_changed(key_of_place(place), self.owners)

    def wait(self, span_s: float) -> None:
        until = self.core.clock.now + span_s
        while self.core.deadline() <= until:
            self.core.clock.now = self.core.deadline()
            self.core.tick()
        self.core.clock.now = until

    def told(self, kind: type[M]) -> list[tuple[Peer, M]]:
        """What of this kind was sent since this was asked last; the rest is forgotten."""
        sent, self.sent = self.sent, []
        return [(peer, message) for peer, message in sent if isinstance(message, kind)]

    def asked(self, kind: type[M]) -> list[M]:
        """As `told`, of what was routed."""
        routed, self.routed = self.routed, []
        return [message for _, message in routed if isinstance(message, kind)]

    def envelope(self, place: str, one: Publication, origin: Peer, number: int, *, up: bool = False) -> Publication:
        """The next one from a peer that has sent only these."""
        return Publication(0, number, one.qos, place, wrap(origin, up, one), number=number, base=1 if one.qos else 0)

    def takes_in(
        self, sender: Peer, place: str, one: Publication, number: int, *, up: bool = False, origin: Peer | None = None
    ) -> None:
        self.core.receive(sender, encode(self.envelope(place, one, origin or sender, number, up=up)))
