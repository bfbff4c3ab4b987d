"""Some cores on one clock and a network without delay: every role with all the others around it, and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from mqtt_front.reasons import Reason
from overlay.ids import Id, nearness
from overlay.messages import Peer
from peer.pubsub.config import PubSubConfig
from peer.pubsub.core import PubSub
from peer.pubsub.messages import Control
from peer.pubsub.places import key_of_place
from peer.pubsub.state import State
from peer.pubsub.wire import Publication, decode

Lost = Callable[[Peer, Peer, Publication | Control], bool]


class Member:
    """A peer: the overlay and the clients of its core."""

    def __init__(self, net: Net, peer: Peer) -> None:
        self.net = net
        self.me = peer
        self.active = True
        self.full = False
        """Whether `send` takes nothing."""
        self.watched: dict[Id, int] = {}
        self.got: list[tuple[str, bytes]] = []
        self.publications: list[Publication] = []
        self.kept: dict[str, bytes] = {}
        self.reasons: list[Reason] = []
        self.core = PubSub(self, self, net.config)
        self.core.now = net.now
        self.core.activity_changed(True)

    def send(self, peer: Peer, payload: bytes) -> bool:
        if not self.full:
            self.net.queue.append((self.me, peer, payload))
        return not self.full

    def route(self, key: Id, payload: bytes) -> bool:
        self.net.queue.append((self.me, self.net.owners(key, 1)[0], payload))
        return True

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        self.watched[key] = count
        return self.net.owners(key, count)

    def unwatch(self, key: Id) -> None:
        del self.watched[key]

    def deliver(self, publication: Publication) -> None:
        self.publications.append(publication)
        self.got.append((publication.topic, publication.body))

    def retained(self, topic: str, body: bytes) -> None:
        self.kept[topic] = body

    # What tests ask

    def subscribe(self, *filters: str) -> list[str]:
        """Fills the list that it returns with those that are in force."""
        done: list[str] = []
        for name in filters:
            self.core.now = self.net.now
            self.core.subscribe(name, lambda name=name: done.append(name))  # type: ignore[misc]
        return done

    def publish(self, topic: str, body: bytes = b"x", qos: int = 1, *, retain: bool = False) -> None:
        self.core.now = self.net.now
        self.core.publish(topic, body, qos, retain=retain, clears=retain and not body, done=self.reasons.append)


class Net:
    """`add` members, `run` time. `lost` decides about each message; `seen` has all that arrived."""

    def __init__(self, config: PubSubConfig) -> None:
        self.config = config
        self.now = 0.0
        self.queue: deque[tuple[Peer, Peer, bytes]] = deque()
        self.members: dict[Id, Member] = {}
        self.lost: Lost = lambda sender, receiver, message: False
        self.seen: list[tuple[Peer, Peer, Publication | Control]] = []

    def add(self, point: int, boot: int = 1) -> Member:
        peer = Peer(Id(point), "here", 1, boot)
        member = Member(self, peer)
        self.members[peer.id] = member
        self._changed()
        return member

    def crash(self, member: Member) -> None:
        del self.members[member.me.id]
        self._changed()

    def _changed(self) -> None:
        for member in list(self.members.values()):
            for key, count in list(member.watched.items()):
                member.core.now = self.now
                member.core.owners_changed(key, self.owners(key, count))

    def owners(self, key: Id, count: int) -> tuple[Peer, ...]:
        nearest = sorted(self.members, key=lambda point: nearness(key, point))
        return tuple(self.members[point].me for point in nearest[:count])

    def holders(self, place: str) -> list[Member]:
        """The coordinator and the shadows as they should be."""
        owners = self.owners(key_of_place(place), self.config.shadows + 1)
        return [self.members[peer.id] for peer in owners]

    def others(self, *places: str) -> list[Member]:
        """Members without a part in these places."""
        parts = [member for place in places for member in self.holders(place)]
        return [member for member in self.members.values() if member not in parts]

    def run(self, span_s: float = 0.0) -> None:
        """Deliver all that is on its way, and do all that is due in this time."""
        until = self.now + span_s
        while True:
            self._deliver()
            due = min((member.core.deadline() for member in self.members.values()), default=until + 1)
            if due > until:
                break
            self.now = max(self.now, due)
            for member in list(self.members.values()):
                member.core.now = self.now
                member.core.tick()
        self.now = until

    def _deliver(self) -> None:
        while self.queue:
            sender, receiver, payload = self.queue.popleft()
            message = decode(payload)
            member = self.members.get(receiver.id)
            if member is None or self.lost(sender, receiver, message):
                continue
            self.seen.append((sender, receiver, message))
            member.core.now = self.now
            member.core.receive(sender, payload)

    def count(self, kind: type) -> int:
        return sum(isinstance(message, kind) for _, _, message in self.seen)


@pytest.fixture
def net() -> Net:
    """Eight members, evenly spread."""
    made = Net(PubSubConfig())
    for number in range(8):
        made.add((number << 125) + 5)
    made.run()
    return made


@pytest.fixture
def state() -> State:
    """What a role of one peer stands on; it sends to nobody."""
    made = Net(PubSubConfig())
    member = made.add(5)
    return State(member, member, made.config)
