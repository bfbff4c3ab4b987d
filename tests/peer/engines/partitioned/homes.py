"""A home alone: the real subscriber and directory, among coordinators that a test lets act step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache, partial

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.ids import SPACE, Id, nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.directory import Directory
from ringmq.peer.engines.partitioned.messages import (
    Elsewhere,
    Entry,
    EntryFlag,
    Find,
    Found,
    Here,
    Item,
    Present,
    Presented,
    Register,
    Registered,
    Registry,
    Row,
    Silent,
    Where,
)
from ringmq.peer.engines.partitioned.names import fingerprint_of, partition_of, partition_of_filter
from ringmq.peer.engines.partitioned.subscribing.local_filter import LocalFilter
from ringmq.peer.engines.partitioned.subscribing.subscriber import Subscriber
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.retained_cache import RetainedCache
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.replication.record import Number, RecordKind, digest_of
from ringmq.peer.replication.space import PARTITIONS, Runs, key_of_partition, partitions_in, runs_of
from ringmq.peer.streams.stream_messages import Lane

STEP_S = 0.05


def peer_at(place: int, of: int = 16, boot: int = 5) -> Peer:
    return Peer(Id(SPACE * place // of), "127.0.0.1", 1000 + place, boot)


def nearest(key: int, peers: Iterable[Peer]) -> Peer:
    return min(peers, key=lambda peer: nearness(key, peer.id))


@lru_cache(maxsize=8)
def runs_by_peer(ring: tuple[Peer, ...]) -> dict[Peer, Runs]:
    """The partitions of each peer: every answer of a peer names them."""
    partitions: dict[Peer, list[int]] = {}
    for partition in range(PARTITIONS):
        partitions.setdefault(nearest(key_of_partition(partition), ring), []).append(partition)
    return {peer: runs_of(theirs) for peer, theirs in partitions.items()}


class View:
    """The overlay of the home: `peers` are its leaf set and itself."""

    def __init__(self, me: Peer, peers: list[Peer]) -> None:
        self.me = me
        self.active = True
        self.peers = peers
        self.doubted: Callable[[Id], bool] = lambda key: False
        self.suspects: set[Peer] = set()
        self.sees_all = True
        self.lookups = 0

    @property
    def leaves(self) -> tuple[Peer, ...]:
        return tuple(peer for peer in self.peers if peer != self.me)

    def owner(self, key: Id) -> Peer | None:
        self.lookups += 1
        return None if not self.active or self.doubted(key) else nearest(key, self.peers)

    def send(self, peer: Peer, payload: bytes) -> bool:
        raise AssertionError("roles send by streams and by the context")

    def route(self, key: Id, payload: bytes) -> bool:
        raise AssertionError("roles route by the context")

    def doubts(self, peer: Peer) -> bool:
        return peer in self.suspects

    def find_way(self, peer: Peer) -> None: ...

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        return ()

    def unwatch(self, key: Id) -> None: ...

    def news(self, key: Id) -> tuple[Peer, ...] | None:
        return None


class Clients:
    """They keep the retained messages."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def retained(self, topic: str, body: bytes) -> None:
        self.kept[topic] = body

    def deliver(self, publication: Publication) -> int:
        raise AssertionError("no publications here")

    def deliver_fast(self, topic: bytes, body: bytes) -> bool | None:
        return None


class Context(MessagingContext):
    """It keeps the routed messages for the test."""

    __slots__ = ("around", "heres", "samples", "silents", "wheres")

    def __init__(self, view: View, clients: Clients, config: PubSubConfig) -> None:
        super().__init__(view, clients, config)
        self.wheres: list[Where] = []
        self.heres: list[tuple[Peer, Here]] = []
        self.samples: list[float] = []
        self.silents: list[tuple[Peer, Silent]] = []
        self.around: list[tuple[Peer, Where]] = []

    def route(self, key: Id, message: object) -> None:  # type: ignore[override]
        assert isinstance(message, Where)
        assert key == key_of_partition(message.partition)
        self.wheres.append(message)

    def send(self, peer: Peer, message: object) -> None:  # type: ignore[override]
        match message:
            case Here():
                self.heres.append((peer, message))
            case Silent():
                self.silents.append((peer, message))
            case Where():
                self.around.append((peer, message))
            case _:
                raise AssertionError(message)

    def answered(self, after_s: float) -> None:
        self.samples.append(after_s)
        super().answered(after_s)


class Home:
    """`ring` is the truth about peers, `view.peers` the home's belief.

    Items wait in `sent` until `work`; answers wait in `answers` until `hear`.
    """

    def __init__(self, count: int = 3, config: PubSubConfig | None = None) -> None:
        self.ring = [peer_at(place * 16 // count) for place in range(count)]
        self.me = self.ring[0]
        self.view = View(self.me, list(self.ring))
        clients = Clients()
        self.state = Context(self.view, clients, config or PubSubConfig())
        self.directory = Directory(self.state, self, self.known)
        self.missing: list[tuple[Peer, int, Peer]] = []
        self.bypasses: list[Where] = []
        self.kept = clients.kept
        self.soon: list[str] = []
        self.cache = RetainedCache(self.state)
        self.subscriber = Subscriber(self.state, self, self.directory, self.cache, self.soon.append)
        self.sent: dict[Peer, deque[tuple[Item, Callable[[], None] | None]]] = {}
        self.log: list[tuple[Peer, Item]] = []
        self.answers: deque[tuple[Peer, Item]] = deque()
        self.entries: dict[int, dict[str, Entry]] = {}
        """What all coordinators know, by partition: shadows keep it when they die."""
        self.granting: dict[Peer, list[Entry]] = {}
        self.full: set[int] = set()
        self.refused: list[str] = []
        self.keeps_refused = False
        """Whether sessions keep a filter that was refused, as restored ones do."""
        self.retained: dict[str, Row] = {}
        self.granted: dict[str, Number] = {}
        """The last answer for each filter that arrived."""

    # The home's side

    def owned_runs(self) -> Runs:
        return runs_of(p for p in range(PARTITIONS) if self.actor(p) == self.me)

    def neighbours(self, peer: Peer) -> tuple[Peer, ...]:
        around = sorted(self.ring, key=lambda other: other.id)
        at = around.index(peer)
        return around[at - 1], around[(at + 1) % len(around)]

    def missed(self, peer: Peer, partition: int, origin: Peer) -> None:
        self.missing.append((peer, partition, origin))

    def bypassed(self, message: Where) -> None:
        self.bypasses.append(message)

    def known(self) -> None:
        self.subscriber.coordinators_changed()

    def send(self, peer: Peer, item: Item, done: Callable[[], None] | None = None, lane: Lane = Lane.CONTROL) -> None:
        self.log.append((peer, item))
        self.sent.setdefault(peer, deque()).append((item, done))

    def subscribe(self, *filters: str) -> list[str]:
        """Fills the list that it returns with the filters that are in force."""
        done: list[str] = []
        for name in filters:
            self.subscriber.add(name, partial(self._answered, done, name))
        return done

    def _answered(self, done: list[str], name: str, reason: Reason) -> None:
        if reason is Reason.SUCCESS:
            done.append(name)
        else:
            self.refused.append(name)
            if not self.keeps_refused:
                self.subscriber.remove(name)

    def run(self, seconds: float, *, work: bool = True) -> None:
        """Let time pass, with a renewal of leases in each period."""
        state = self.state
        end = state.clock.now + seconds
        every = state.config.entry_s / 5
        while state.clock.now < end - 1e-9:
            before = state.clock.now
            state.clock.now += STEP_S
            state.timers.run(state.clock.now)
            if state.clock.now // every != before // every:
                self.subscriber.renew()
            self.subscriber.flush()
            if work:
                self.work()
                self.grant()
                self.hear()

    def settle(self) -> None:
        """End the iteration, and let everybody answer until nothing is left."""
        for _ in range(8):
            self.subscriber.flush()
            self.work()
            self.grant()
            self.hear()

    # The coordinators' side

    def actor(self, partition: int) -> Peer:
        return nearest(key_of_partition(partition), self.ring)

    def runs_of_peer(self, peer: Peer) -> Runs:
        return runs_by_peer(tuple(self.ring)).get(peer, ())

    def work(self, peer: Peer | None = None) -> None:
        """Peers process all that was sent to them. Whoever is not in the ring is silent."""
        for other in [peer] if peer else list(self.sent):
            items = self.sent.get(other)
            while items and other in self.ring:
                item, done = items.popleft()
                self._process(other, item)
                if done is not None:
                    done()

    def _process(self, peer: Peer, item: Item) -> None:
        match item:
            case Register():
                self._register(peer, item.entries)
            case Registry():
                if self.actor(item.partition) != peer:
                    self.answers.append((peer, Elsewhere(((item.partition, item.partition),))))
                    return
                known = self.entries.setdefault(item.partition, {})
                listed = {entry.filter for entry in item.entries}
                for name, entry in list(known.items()):
                    if name not in listed and entry.number <= item.up_to:
                        known[name] = Entry(name, entry.number, True)
                self._register(peer, item.entries)
            case Present():
                self._present(peer, item)
            case Find():
                runs = [p for p in partitions_in(item.runs) if self.actor(p) == peer]
                others = [p for p in partitions_in(item.runs) if self.actor(p) != peer]
                rows = [row for row in self.retained.values() if row.partition in set(runs)]
                half = len(runs) // 2
                self.answers.append((peer, Found(item.ident, (), runs_of(runs[:half]))))
                self.answers.append((peer, Found(item.ident, tuple(rows), runs_of(runs[half:]), runs_of(others))))
            case _:
                raise AssertionError(item)

    def _register(self, peer: Peer, entries: Iterable[Entry]) -> None:
        elsewhere = []
        ended = []
        refused = []
        for entry in entries:
            partition = partition_of_filter(entry.filter)
            if self.actor(partition) != peer:
                elsewhere.append(partition)
                continue
            known = self.entries.setdefault(partition, {})
            old = known.get(entry.filter)
            if partition in self.full and not entry.gone:
                refused.append(entry.number)
            elif old is not None and (old.number > entry.number or (old.number == entry.number and old.gone)):
                if not entry.gone:
                    ended.append((max(old.number[0], entry.number[0]), entry.number[1]))
            else:
                known[entry.filter] = entry
                if not entry.gone:
                    self.granting.setdefault(peer, []).append(entry)
        if elsewhere:
            self.answers.append((peer, Elsewhere(runs_of(elsewhere))))
        if ended or refused:
            self.answers.append((peer, Registered((), tuple(ended), tuple(refused))))

    def _present(self, peer: Peer, item: Present) -> None:
        mine = [p for p in partitions_in(item.runs) if self.actor(p) == peer]
        digests = []
        count = digest = 0
        for partition in mine:
            live = [entry for entry in self.entries.get(partition, {}).values() if not entry.gone]
            own = 0
            for entry in live:
                own ^= digest_of(fingerprint_of(inner_of(entry.filter)), entry.number)
            count += len(live)
            digest ^= own
            if live:
                digests.append((partition, len(live), own))
        elsewhere = runs_of(p for p in partitions_in(item.runs) if self.actor(p) != peer)
        same = (count, digest) == (item.count, item.digest) and not elsewhere
        details = () if same else tuple(digests)
        self.answers.append((peer, Presented(same, item.runs, details, elsewhere, item.asked_at)))

    def grant(self, peer: Peer | None = None) -> None:
        """All has been applied everywhere: answer what was registered."""
        for other in [peer] if peer else list(self.granting):
            entries = self.granting.pop(other, [])
            live = [
                entry for entry in entries if self.entries[partition_of_filter(entry.filter)][entry.filter] == entry
            ]
            if live and other in self.ring:
                rows = [self.retained[entry.filter] for entry in live if entry.filter in self.retained]
                numbers = tuple([entry.number for entry in live])
                self.answers.append((other, Registered(numbers, (), (), tuple(rows))))

    def lapse(self, name: str, *, said: bool) -> None:
        """The coordinator drops a live entry. It says so at once, or the digests differ."""
        partition = partition_of_filter(name)
        entry = self.entries.get(partition, {}).get(name)
        if entry is not None and not entry.gone:
            self.entries[partition][name] = Entry(name, entry.number, True)
            if said:
                self.answers.append((self.actor(partition), Registered((), (entry.number,), ())))

    def retain(self, topic: str, body: bytes, *, confirmed: bool = False, number: Number = (1, 1)) -> None:
        index = partition_of(topic)
        self.retained[topic] = Row(index, RecordKind.RETAINED, topic, -1, number, False, confirmed, 0, body)

    def hear(self, most: int = 1 << 30) -> None:
        """The home processes answers, also those to its questions about coordinators."""
        calls: dict[type, Callable[..., None]] = {
            Registered: self.subscriber.registered,
            Presented: self.subscriber.presented,
            Elsewhere: self.subscriber.elsewhere,
            Found: self.subscriber.found,
        }
        while self.answers and most:
            sender, item = self.answers.popleft()
            if isinstance(item, Registered):
                self._note(item)
            calls[type(item)](sender, item)
            most -= 1
        wheres, self.state.wheres = self.state.wheres, []
        for where in wheres:
            owner = self.actor(where.partition)
            self.directory.here(owner, Here(self.runs_of_peer(owner)))

    def _note(self, message: Registered) -> None:
        names = {own.count: own.filter for own in self.subscriber}
        for number in message.in_force:
            if number[1] in names:
                self.granted[names[number[1]]] = number
        for number in message.ended:
            if number[1] in names:
                self.granted.pop(names[number[1]], None)

    def lose(self, peer: Peer) -> None:
        """The stream to a peer breaks."""
        self.sent.pop(peer, None)
        self.subscriber.stream_lost(peer)

    def items(self, kind: type) -> list[tuple[Peer, Item]]:
        return [(peer, item) for peer, item in self.log if isinstance(item, kind)]

    def live(self) -> dict[str, Number]:
        """The entries that coordinators hold."""
        entries = [entry for known in self.entries.values() for entry in known.values()]
        return {entry.filter: entry.number for entry in entries if not entry.gone}

    def lasting(self) -> set[str]:
        """The filters of live entries that coordinators keep on their disks."""
        entries = [entry for known in self.entries.values() for entry in known.values()]
        return {entry.filter for entry in entries if not entry.gone and entry.flags & EntryFlag.LASTING}

    def own(self, name: str) -> LocalFilter:
        return next(own for own in self.subscriber if own.filter == name)
