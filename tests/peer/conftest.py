"""Some cores on one clock and a network without delay: every role with all the others around it, and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.ids import Id, nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.partitioned.item_codec import decode_item
from ringmq.peer.engines.partitioned.names import partition_of_filter
from ringmq.peer.engines.partitioned.shell.record_store import RecordStore
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.engine import NO_DISK
from ringmq.peer.messaging.messages import Control
from ringmq.peer.messaging.publication import Publication, decode, taken_apart
from ringmq.peer.replication.space import key_of_partition
from ringmq.peer.streams.stream_messages import Batch

Lost = Callable[[Peer, Peer, Publication | Control], bool]


class Member:
    """A peer: the overlay and the clients of its core."""

    def __init__(self, net: Net, peer: Peer, before: Callable[[PartitionedEngine], None]) -> None:
        self.net = net
        self.me = peer
        self.active = True
        self.full = False
        """Whether `send` takes nothing."""
        self.quick = False
        """Whether its clients take plain messages on the quick way."""
        self.quick_wanted = True
        self.watched: dict[Id, int] = {}
        self.later: dict[Id, tuple[Peer, ...]] = {}
        """Owners that it was not told yet."""
        self.got: list[tuple[str, bytes]] = []
        self.publications: list[Publication] = []
        self.kept: dict[str, bytes] = {}
        self.reasons: list[Reason] = []
        self.refused: list[str] = []
        """Filters that a full partition did not take: removed at once, as a front does."""
        self.store = net.store(peer)
        self.core = net.engine(self, self, net.config, self.store or NO_DISK)
        self.core.acknowledges_later = self.store is not None
        self.core.clock.now = net.now
        if self.store is not None:
            self.core.restore(*self.store.load())
        before(self.core)
        self.core.activity_changed(True)

    def settle(self) -> None:
        """What the shell does at the end of a turn."""
        if self.store is not None and self.core.owes:
            self.store.commit()
            self.core.acknowledge()
        elif self.core.acknowledges_later:
            self.core._state.flush()  # the disk takes its time

    def send(self, peer: Peer, payload: bytes) -> bool:
        if not self.full:
            self.net.queue.extend((self.me, peer, part) for part in taken_apart(payload))
        return not self.full

    def route(self, key: Id, payload: bytes) -> bool:
        self.net.queue.append((self.me, self.net.owners(key, 1, self)[0], payload))
        return True

    def doubts(self, peer: Peer) -> bool:
        return peer.id in self.net.doubted

    def find_way(self, peer: Peer) -> None: ...

    def owner(self, key: Id) -> Peer | None:
        owners = self.net.owners(key, 1, self)
        return owners[0] if owners and self.net.sure else None

    @property
    def leaves(self) -> tuple[Peer, ...]:
        present = self.net.owners(self.me.id, len(self.net.members), self)
        return tuple(peer for peer in present if peer.id != self.me.id)

    @property
    def sees_all(self) -> bool:
        return self.net.small

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        self.watched[key] = count
        return self.net.owners(key, count, self)

    def unwatch(self, key: Id) -> None:
        del self.watched[key]

    def news(self, key: Id) -> tuple[Peer, ...] | None:
        return self.later.pop(key, None)

    def deliver(self, publication: Publication) -> int:
        self.publications.append(publication)
        self.got.append((publication.topic, publication.body))
        return 1

    def deliver_fast(self, topic: bytes, body: bytes) -> bool | None:
        if not self.quick:
            return None
        self.got.append((topic.decode(), body))
        return self.quick_wanted

    def retained(self, topic: str, body: bytes) -> None:
        self.kept[topic] = body

    # What tests ask

    def subscribe(self, *filters: str, lasting: bool = False) -> list[str]:
        """Fills the list that it returns with those that are in force."""
        done: list[str] = []
        for name in filters:
            self.core.clock.now = self.net.now
            self.core.subscribe(name, partial(self._answered, done, name), lasting)
        return done

    def _answered(self, done: list[str], name: str, reason: Reason) -> None:
        if reason is Reason.SUCCESS:
            done.append(name)
        else:
            self.refused.append(name)
            self.core.unsubscribe(name)

    def publish(self, topic: str, body: bytes = b"x", qos: int = 1, *, retain: bool = False) -> None:
        self.core.clock.now = self.net.now
        self.core.publish(topic, body, qos, retain=retain, clears=retain and not body, done=self.reasons.append)


class Net:
    """`add` members, `run` time. `lost` decides about each message; `seen` has all that arrived.

    With a folder each member has its disk there, on which it is for the wall clock what it is for all others.
    """

    def __init__(
        self, config: PubSubConfig, folder: Path | None = None, engine: Callable[..., Any] = PartitionedEngine
    ) -> None:
        self.config = config
        self.engine = engine
        self.folder = folder
        self.now = 0.0
        self.queue: deque[tuple[Peer, Peer, bytes]] = deque()
        self.sure = True
        """Whether members know who owns a key, so that they need not route."""
        self.small = True
        """Whether the leaf set of each member has all others."""
        self.doubted: set[Id] = set()
        """Members of whom nobody hears anything."""
        self.late = False
        """Whether members are not told who owns their keys now, unless they ask."""
        self.members: dict[Id, Member] = {}
        self._side: dict[int, int] = {}
        self.lost: Lost = lambda sender, receiver, message: False
        self.seen: list[tuple[Peer, Peer, Publication | Control]] = []

    def add(self, point: int, boot: int = 1, before: Callable[[PartitionedEngine], None] = lambda core: None) -> Member:
        """`before` is called before anything happens to its core."""
        peer = Peer(Id(point), "here", 1, boot)
        member = Member(self, peer, before)
        self.members[peer.id] = member
        self._changed()
        return member

    def store(self, peer: Peer) -> RecordStore | None:
        if self.folder is None:
            return None
        return RecordStore(self.folder / f"{peer.id:x}", lambda: self.now)

    def crash(self, *members: Member) -> None:
        for member in members:
            del self.members[member.me.id]
            if member.store is not None:
                member.store.close()
        self._changed()

    def restart(self, *members: Member) -> list[Member]:
        """As after `kill -9` of all of them at once."""
        self.crash(*[member for member in members if member.me.id in self.members])
        return [self.add(member.me.id, member.me.boot + 1) for member in members]

    def _changed(self) -> None:
        for member in list(self.members.values()):
            for key, count in list(member.watched.items()):
                member.core.clock.now = self.now
                owners = self.owners(key, count, member)
                if self.late:
                    member.later[key] = owners
                else:
                    member.core.owners_changed(key, owners)
            if not self.late:
                member.core.leaves_changed()
            member.settle()

    def split(self, *sides: Collection[Member]) -> None:
        """Nothing passes from one side to another, and each takes itself for all; without sides it is over."""
        self._side = {member.me.id: number for number, side in enumerate(sides) for member in side}
        self._changed()

    def owners(self, key: Id, count: int, seen_by: Member | None = None) -> tuple[Peer, ...]:
        side = self._side.get(seen_by.me.id) if seen_by is not None else None
        present = [point for point in self.members if side is None or self._side.get(point) == side]
        nearest = sorted(present, key=lambda point: nearness(key, point))
        return tuple(self.members[point].me for point in nearest[:count])

    def owning(self, topic_filter: str) -> list[Member]:
        """The coordinator and the shadows of a filter as they should be."""
        owners = self.owners(key_of_partition(partition_of_filter(topic_filter)), self.config.shadows + 1)
        return [self.members[peer.id] for peer in owners]

    def others(self, *filters: str) -> list[Member]:
        """Members that own none of the partitions of these filters."""
        parts = [member for topic_filter in filters for member in self.owning(topic_filter)]
        return [member for member in self.members.values() if member not in parts]

    def run(self, span_s: float = 0.0) -> None:
        """Deliver all that is on its way, and do all that is due in this time."""
        until = self.now + span_s
        while True:
            for member in list(self.members.values()):
                member.settle()
            self._deliver()
            due = min((member.core.deadline() for member in self.members.values()), default=until + 1)
            if due > until:
                break
            self.now = max(self.now, due)
            for member in list(self.members.values()):
                member.core.clock.now = self.now
                member.core.tick()
                member.settle()
        self.now = until

    def _deliver(self) -> None:
        while self.queue:
            self.step()

    def step(self) -> None:
        """Deliver one message that is on its way."""
        if not self.queue:
            return
        sender, receiver, payload = self.queue.popleft()
        message = decode(payload)
        member = self.members.get(receiver.id)
        apart = self._side.get(sender.id) != self._side.get(receiver.id)
        if member is None or apart or self.lost(sender, receiver, message):
            return
        self.seen.append((sender, receiver, message))
        member.core.clock.now = self.now
        member.core.receive(sender, payload)
        member.settle()

    def count(self, kind: type) -> int:
        """The messages of a kind that have arrived, also inside of streams."""
        return sum(isinstance(part, kind) for _, _, message in self.seen for part in parts_of(message))


def parts_of(message: Publication | Control) -> list[object]:
    """A message, or the items in it."""
    return [decode_item(item) for item in message.items] if isinstance(message, Batch) else [message]


@pytest.fixture
def net() -> Net:
    """Eight members, evenly spread."""
    return eight(PubSubConfig())


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[Net]:
    """The same, each with a disk."""
    net = eight(PubSubConfig(), tmp_path)
    yield net
    net.crash(*net.members.values())


def eight(config: PubSubConfig, folder: Path | None = None, engine: Callable[..., Any] = PartitionedEngine) -> Net:
    made = Net(config, folder, engine)
    for number in range(8):
        made.add((number << 125) + 5)
    made.run()
    return made


@pytest.fixture
def state() -> MessagingContext:
    """What a role of one peer stands on; it sends to nobody."""
    made = Net(PubSubConfig())
    made.sure = False
    member = made.add(5)
    return MessagingContext(member, member, made.config)
