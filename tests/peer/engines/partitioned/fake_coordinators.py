"""A publisher among coordinators that do as the protocol says, without any other role."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import (
    Begun,
    Elsewhere,
    Hold,
    Release,
    Renew,
    Renewed,
    Retain,
    Retained,
    Routes,
)
from ringmq.peer.engines.partitioned.names import partition_of_filter
from ringmq.peer.engines.partitioned.publishing.holdings import RENEWALS
from ringmq.peer.engines.partitioned.publishing.publisher import Publisher
from ringmq.peer.messaging.config import LAN, PubSubConfig
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.messages import Held
from ringmq.peer.messaging.publication import Publication, decode
from ringmq.peer.messaging.tree_relay import TreeRelay
from ringmq.peer.replication.space import PARTITIONS, partitions_in, runs_of
from ringmq.peer.streams.stream_messages import Lane
from tests.peer.engines.partitioned.routes_of import CAME, Change, peer_of, routes_of

SWEEP_S = 10.0
ME = peer_of(1)


class Links:
    """The overlay and the clients of the publisher's peer."""

    def __init__(self) -> None:
        self.me = ME
        self.active = True
        self.sent: list[tuple[Peer, Publication]] = []
        self.delivered: list[Publication] = []
        self.full = False

    def send(self, peer: Peer, payload: bytes) -> bool:
        publication = decode(payload)
        assert isinstance(publication, Publication)
        if not self.full:
            self.sent.append((peer, publication))
        return not self.full

    def deliver(self, publication: Publication) -> int:
        self.delivered.append(publication)
        return 1

    def doubts(self, peer: Peer) -> bool:
        return False

    def find_way(self, peer: Peer) -> None: ...


class ItemLog:
    """Streams that keep items until `Publishing.answer` takes them."""

    def __init__(self) -> None:
        self.items: list[tuple[Peer, object]] = []
        self.held_back = 0
        """Batches that are not confirmed yet."""

    def send(self, peer: Peer, item: object, done: Callable[[], None] | None = None, lane: Lane = Lane.CONTROL) -> None:
        assert done is None, "coordinators answer with items"
        assert lane is Lane.CONTROL, "requests have an order"
        self.items.append((peer, item))

    def hold_back(self) -> Callable[[], None]:
        self.held_back += 1

        def release() -> None:
            self.held_back -= 1

        return release


class Owners:
    """A directory that knows all, or nothing of some partitions."""

    def __init__(self, coordinators: list[Peer]) -> None:
        self.of: list[Peer | None] = [
            coordinators[partition * len(coordinators) // PARTITIONS] for partition in range(PARTITIONS)
        ]
        self.asked: list[int] = []
        self.verified: list[int] = []
        self.doubted: list[int] = []

    def coordinator(self, partition: int) -> Peer | None:
        if self.of[partition] is None:
            self.asked.append(partition)
        return self.of[partition]

    def review(self) -> None:
        """It is always up to date."""

    def by_partition(self) -> list[Peer | None]:
        return self.of.copy()

    def few(self, most: int) -> tuple[Peer, ...]:
        known = [peer for peer in dict.fromkeys(self.of) if peer is not None]
        return tuple(known) if None not in self.of and len(known) <= most else ()

    def verify(self, partition: int) -> None:
        self.verified.append(partition)

    def doubt(self, partition: int) -> None:
        self.doubted.append(partition)

    def wrong(self, peer: Peer, partitions: Iterable[int]) -> None:
        """It was right."""

    def give(self, partitions: Iterable[int], peer: Peer) -> None:
        for partition in partitions:
            self.of[partition] = peer


@dataclass
class FakeCoordinator:
    """A coordinator of partitions in its term."""

    peer: Peer
    epoch: int = 1
    term: int = 1
    """The number of the publisher as a holder."""
    holds: set[int] = field(default_factory=set)
    """Partitions that the publisher holds from it."""
    knows_all: bool = False
    known: bool = False
    silent: bool = False
    seen: list[object] = field(default_factory=list)
    acting: set[int] = field(default_factory=set)


class Publishing:
    """`publish`, `answer` and `run` time."""

    def __init__(self, coordinators: int = 3, config: PubSubConfig = LAN) -> None:
        self.links = Links()
        self.state = MessagingContext(self.links, self.links, config)  # type: ignore[arg-type]
        self.streams = ItemLog()
        peers = [peer_of(100 + number) for number in range(coordinators)]
        self.owners = Owners(peers)
        self.coordinators = {peer.id: FakeCoordinator(peer) for peer in peers}
        for partition, peer in enumerate(self.owners.of):
            assert peer is not None
            self.coordinators[peer.id].acting.add(partition)
        self.filters: dict[int, dict[tuple[str, Id], Peer]] = {}
        self.served: set[str] = set()
        self.settled: list[Publication] = []
        self.reasons: list[Reason] = []
        self.stores = True
        """Whether coordinators store retained messages."""
        self.publisher = Publisher(
            self.state, self.streams, self.owners, TreeRelay(self.state), self.served.__contains__, self.settled.append
        )
        self.state.every(config.lease_s / RENEWALS, self.publisher.holdings.renew)
        self.state.every(SWEEP_S, self.publisher.sweep)

    @property
    def now(self) -> float:
        return self.state.clock.now

    def at(self, partition: int) -> FakeCoordinator:
        """The coordinator of a partition."""
        peer = self.owners.of[partition]
        assert peer is not None
        return self.coordinators[peer.id]

    def of(self, name: str) -> FakeCoordinator:
        """The coordinator of a filter."""
        return self.at(partition_of_filter(name))

    # Publications

    def publish(
        self, topic: str, body: bytes = b"x", qos: int = 0, *, retain: bool = False, clears: bool = False
    ) -> Publication:
        state = self.state
        state.seq += 1
        stamp = state.stamp() if retain else 0
        publication = Publication(ME.boot, state.seq, qos, topic, body, retain, stamp, clears=clears)
        self.publisher.publish(publication, False, self.reasons.append)
        return publication

    def receivers(self, topic: str) -> list[Peer]:
        """Publish, and return the peers that the message was sent to; nobody gets anything else meanwhile."""
        before = len(self.links.sent)
        self.publish(topic)
        self.answer()
        return [peer for peer, _ in self.links.sent[before:]]

    def bodies_to(self, peer: Peer) -> list[bytes]:
        return [publication.body for receiver, publication in self.links.sent if receiver.id == peer.id]

    def hold_numbers(self, peer: Peer, up_to: int) -> None:
        """A receiver acknowledges what it has."""
        self.publisher.send_windows.held(peer, Held(ME.boot, up_to, ()))

    # Coordinators

    def subscribe(self, *changes: Change) -> None:
        """Filters come and go, and the publisher's routes follow."""
        for name, home, flags in changes:
            entries = self.filters.setdefault(partition_of_filter(name), {})
            if flags == CAME:
                entries[name, home.id] = home
            else:
                entries.pop((name, home.id), None)
            coordinator = self.of(name)
            if partition_of_filter(name) in coordinator.holds:
                self.publisher.routes(coordinator.peer, routes_of([(name, home, flags)]))

    def beginning(self, coordinator: FakeCoordinator, partitions: Iterable[int]) -> Routes:
        """All routes of these partitions."""
        theirs = sorted(set(partitions) & coordinator.acting)
        coordinator.holds.update(theirs)
        rows = [
            (name, home, CAME) for partition in theirs for (name, _), home in self.filters.get(partition, {}).items()
        ]
        begun = [Begun(first, last, coordinator.epoch) for first, last in runs_of(theirs)]
        return replace(routes_of(rows, begun), term=coordinator.term)

    def answer(self) -> None:
        """Coordinators answer everything that was sent to them, until nothing more is sent."""
        waiting: list[tuple[Peer, object]] = []
        while self.streams.items:
            items, self.streams.items = self.streams.items, []
            for peer, item in items:
                coordinator = self.coordinators.get(peer.id)
                if coordinator is None or coordinator.peer != peer or coordinator.silent:
                    waiting.append((peer, item))
                else:
                    coordinator.seen.append(item)
                    self._answer(coordinator, item)
        self.streams.items = waiting

    def _answer(self, coordinator: FakeCoordinator, item: object) -> None:
        publisher, peer = self.publisher, coordinator.peer
        if isinstance(item, Hold):
            coordinator.known = True
            wanted = coordinator.acting if item.all else set(partitions_in(item.runs))
            coordinator.knows_all |= item.all
            publisher.routes(peer, self.beginning(coordinator, wanted))
            others = wanted - coordinator.acting
            if others:
                publisher.elsewhere(peer, Elsewhere(runs_of(others)))
        elif isinstance(item, Release):
            named = set(partitions_in(item.runs))
            coordinator.holds = coordinator.holds & named if item.all else coordinator.holds - named
            coordinator.knows_all &= not item.all
            coordinator.known = bool(coordinator.holds)
        elif isinstance(item, Renew):
            publisher.renewed(peer, Renewed(item.asked_at, coordinator.known, 0))
        elif isinstance(item, Retain):
            if item.row.partition not in coordinator.acting:
                publisher.elsewhere(peer, Elsewhere(((item.row.partition, item.row.partition),)))
            elif self.stores:
                publisher.retained(peer, Retained(item.row.name, item.row.number, 0))

    def move(self, partitions: Iterable[int], successor: FakeCoordinator, *, begins: bool = True) -> None:
        """A successor takes partitions over, in the next term, and knows the holders of them."""
        self.coordinators[successor.peer.id] = successor
        moved = set(partitions)
        held = {partition for partition in moved if partition in self.at(partition).holds}
        successor.epoch = max(successor.epoch, 1 + max(self.at(partition).epoch for partition in moved))
        for coordinator in self.coordinators.values():
            coordinator.acting -= moved
            coordinator.holds -= moved
        successor.acting |= moved
        self.owners.give(moved, successor.peer)
        if successor.knows_all:
            held, begins = moved, True
        if begins and held:
            successor.known = True
            self.publisher.routes(successor.peer, self.beginning(successor, held))
        self.publisher.coordinators_changed()

    # Time

    def run(self, seconds: float) -> None:
        """Let time pass, with answers at once."""
        end = self.now + seconds
        self.answer()
        while self.state.timers.next_at <= end:
            self.state.clock.now = max(self.now, self.state.timers.next_at)
            self.state.timers.run(self.now, 1)
            self.answer()
        self.state.clock.now = end

    def pause(self, seconds: float) -> None:
        """Time passes, and this peer does nothing in it."""
        self.state.clock.now += seconds
