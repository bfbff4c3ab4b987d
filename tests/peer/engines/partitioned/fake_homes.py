"""A coordinator on streams that only note what is sent: each test decides what has been applied."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from ringmq.experiments.simulator.replication import GivenOverlay, NoClients
from ringmq.mqtt_front.iteration import StillClock
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.coordinator import Coordinator
from ringmq.peer.engines.partitioned.messages import Begun, Entry, EntryFlag, Register, State, StateRequest
from ringmq.peer.engines.partitioned.names import partition_of_filter
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.engine import NoDisk
from ringmq.peer.replication.neighbourhood import Neighbourhood
from ringmq.peer.replication.record import Key, SharedRecord
from ringmq.peer.replication.space import partitions_in
from ringmq.peer.replication.tombstones import Tombstones
from ringmq.peer.streams.stream_messages import Lane

FILTER = "a"
PARTITION = partition_of_filter(FILTER)


def peer_near(partition: int, distance: int, boot: int = 1) -> Peer:
    """A peer whose id is this far above the first key of a partition, in sixteenths of a partition."""
    return Peer(Id((partition * 16 + 8 + distance) * (SPACE >> 16) % SPACE), "10.0.0.1", 4883, boot)


class NotingStreams:
    """Notes items in the order of sending."""

    def __init__(self) -> None:
        self.sent: list[tuple[Peer, object, Callable[[], None] | None]] = []
        self.held = 0
        self.heard: dict[Peer, float] = {}
        """When peers have sent anything."""

    def send(self, peer: Peer, item: object, done: Callable[[], None] | None = None, lane: Lane = Lane.CONTROL) -> None:
        self.sent.append((peer, item, done))

    def hold_back(self) -> Callable[[], None]:
        self.held += 1
        return self._release

    def _release(self) -> None:
        self.held -= 1

    def held_back_at(self, peer: Peer) -> float:
        """Every peer that does not answer is silent."""
        return -inf

    def heard_at(self, peer: Peer) -> float:
        return self.heard.get(peer, -inf)

    def answer_s(self, peer: Peer) -> float:
        return 0.0

    def take(self, kind: type) -> list[tuple[Peer, object, Callable[[], None] | None]]:
        """Remove the items of a kind, and return them."""
        taken = [sent for sent in self.sent if isinstance(sent[1], kind)]
        self.sent = [sent for sent in self.sent if not isinstance(sent[1], kind)]
        return taken


class NotingDisk(NoDisk):
    """Has the lasting entries."""

    def __init__(self) -> None:
        self.entries: dict[Key, SharedRecord] = {}

    def keep_entry(self, record: SharedRecord) -> None:
        self.entries[record.key] = record

    def leave_entry(self, record: SharedRecord) -> None:
        del self.entries[record.key]


class Coordinating:
    """A peer beside PARTITION, and its neighbours by distance."""

    def __init__(self, distance: int, *others: int, shadows: int = 2) -> None:
        self.me = peer_near(PARTITION, distance)
        self.others = [peer_near(PARTITION, other) for other in others]
        self.overlay = GivenOverlay(self.me)
        self.overlay.active = True
        self.clock = StillClock(1000.0)
        self.disk = NotingDisk()
        config = PubSubConfig(shadows=shadows)
        self.state = MessagingContext(self.overlay, NoClients(), config, self.disk, self.clock)
        self.streams = NotingStreams()
        self.neighbourhood = Neighbourhood(lambda: self.me, shadows)
        self.coordinator = Coordinator(self.state, self.streams, self.neighbourhood, Tombstones(self.state))
        self.leaves(*self.others)

    def leaves(self, *peers: Peer) -> None:
        self.overlay.known = {peer.id: peer for peer in peers}
        self.coordinator.leaves_changed()
        self.coordinator.flush()

    def begin(self) -> None:
        """Take over all partitions, of which nobody has a copy."""
        self.coordinator.takeover.wake()
        while requests := self.streams.take(StateRequest):
            for peer, request, _ in requests:
                assert isinstance(request, StateRequest)
                self.coordinator.takeover.state(peer, State(request.ident, (), (), (), ()))
        self.coordinator.flush()

    def register(
        self, home: Peer, count: int, gone: bool = False, topic_filter: str = FILTER, *, lasting: bool = False
    ) -> None:
        flags = EntryFlag.LASTING if lasting else 0
        self.coordinator.register(home, Register((Entry(topic_filter, (home.boot, count), gone, flags),)))
        self.coordinator.flush()

    def confirm(self, kind: type, *peers: Peer) -> None:
        """These peers have applied all items of a kind that they were sent."""
        for peer, item, done in self.streams.take(kind):
            if peer in peers:
                if done is not None:
                    done()
            else:
                self.streams.sent.append((peer, item, done))
        self.coordinator.flush()

    def later(self, seconds: float) -> None:
        self.clock.now += seconds
        self.state.timers.run(self.clock.now)
        self.coordinator.tick()
        self.coordinator.flush()


def covers(begun: tuple[Begun, ...], partition: int) -> bool:
    return partition in partitions_in([(run.first, run.last) for run in begun])
