"""Two stations with streams, joined by a simulated line that loses, duplicates, reorders and delays messages.

`StreamWorld.run` makes random calls on both sides and raises AssertionError as soon as a promise of streams is broken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Final, NamedTuple

import msgspec

from ringmq.mqtt_front.iteration import Clock, StillClock
from ringmq.overlay.core.codec import Codec
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timers import TimerQueue
from ringmq.peer.messaging.config import LAN
from ringmq.peer.streams.stream_messages import Batch, BatchAck, Lane
from ringmq.peer.streams.streams import Streams

CODEC: Final = Codec[Batch | BatchAck](Batch | BatchAck)


FAR_BOOT: Final = 1 << 40


class LineContext:
    """The parts of MessagingContext that streams use; `send` appends to `local` or to `posts`."""

    def __init__(self, me: Peer, clock: Clock) -> None:
        self.me = me
        self.clock = clock
        self.config = LAN
        self.ask_s = LAN.ask_s
        self.timers = TimerQueue()
        self.local: deque[Batch | BatchAck] = deque()
        self.posts: list[tuple[Peer, Batch | BatchAck]] = []
        self.owed = 0
        """How often acknowledgements or batches became due."""
        self.owing = self._owing
        self.sought: list[Peer] = []
        """Peers that a way was wanted to, as they sent nothing."""

    def find_way(self, to: Peer) -> None:
        self.sought.append(to)

    def is_far_boot(self, boot: int) -> bool:
        return boot > FAR_BOOT

    def _owing(self) -> None:
        self.owed += 1

    def send(self, peer: Peer, message: Batch | BatchAck) -> None:
        if peer.id == self.me.id:
            self.local.append(message)
        else:
            self.posts.append((peer, message))

    def after(self, delay_s: float, then: Callable[[], None]) -> None:
        self.timers.at(self.clock.now + delay_s, lambda now, subject: then())


class Label(NamedTuple):
    """An item that names itself: no two are equal."""

    side: int
    boot: int
    """The boot of the sender."""
    target: int
    """The boot of the receiver that it was sent to."""
    life: int
    """How often the sender had closed or lost the pair before."""
    lane: int
    number: int
    """Its place among the items of the same sender, target, life and lane."""
    hold: bool
    padding: bytes

    @property
    def way(self) -> tuple[int, int, int, int, int]:
        return self[:5]


class Station:
    """One process of one side. It stops at a restart, and another one takes its side."""

    def __init__(self, world: StreamWorld, side: int, boot: int, streams_class: type[Streams]) -> None:
        self.world = world
        self.side = side
        self.me = Peer(Id(side + 1), "h", 1, boot)
        self.context = LineContext(self.me, world.clock)
        self.streams = streams_class(
            self.context, msgspec.msgpack.encode, msgspec.msgpack.decode, self._handle, self._lost
        )
        self.known: Peer | None = None
        """The other side, as far as this station knows it."""
        self.life = 0
        self.numbers: dict[tuple[int, int, int], int] = {}
        self.expected: dict[Label, bool] = {}
        """Items sent in this life; whether `done` was called."""
        self.excused = False
        """The other side has closed the pair, so its stream may be lost."""
        self.uncommitted: list[Label] = []
        self.held: list[tuple[Label, Callable[[], None]]] = []
        self.refused: set[tuple[int, int]] = set()
        """Boots and lives of the other side that were closed here."""
        self.paused_until = 0.0

    # Calls

    def do(self, call: Callable[[], None]) -> None:
        call()
        while self.context.local:
            message = self.context.local.popleft()
            assert isinstance(message, Batch)
            self.streams.received(self.me, message)

    def send(self, lane: Lane, wants_done: bool, hold: bool, size: int) -> None:
        target = self.known
        assert target is not None
        key = (target.boot, self.life, lane)
        number = self.numbers[key] = self.numbers.get(key, -1) + 1
        label = Label(self.side, self.me.boot, target.boot, self.life, lane, number, hold, bytes(size))
        if wants_done:
            self.expected[label] = False
            self.streams.send(target, label, lambda: self._done(label), lane)
        else:
            self.streams.send_encoded(target, msgspec.msgpack.encode(label), lane=lane, patient=size % 2 == 1)
            self.world.unconfirmed.add(label)

    def _done(self, label: Label) -> None:
        world = self.world
        assert world.stations[self.side] is self
        assert label in self.expected, "done after the stream was closed or lost"
        assert not self.expected[label], "done twice"
        assert label in world.committed, "done before the receiver has committed"
        assert not any(label == held for held, _ in world.stations[1 - self.side].held), "done while it is held back"
        self.expected[label] = True
        if world.lively and world.random.random() < 0.1 and self.known is not None:
            self.send(Lane.CONTROL, True, False, 1)

    def close(self) -> None:
        if self.known is None:
            return
        self.streams.close(self.known)
        self._forget()
        other = self.world.stations[1 - self.side]
        other.excused = True
        self.refused |= {way[1:4:2] for way in self.world.handled if way[0] != self.side and way[2] == self.me.boot}

    def _lost(self, peer: Peer) -> None:
        assert self.world.stations[self.side] is self
        other = self.world.stations[1 - self.side]
        assert peer.boot != other.me.boot or self.excused, "lost without a reason"
        if self.known is not None and peer.boot == self.known.boot:
            self.known = other.me
            self._forget()

    def _forget(self) -> None:
        self.life += 1
        self.expected = {}
        self.excused = False

    def receive(self, sender: Peer, raw: bytes) -> None:
        if self.known is None or sender.boot > self.known.boot:
            if self.known is not None:
                self._forget()
            self.known = sender
        message = CODEC.decode(raw)
        if isinstance(message, Batch):
            self.do(lambda: self.streams.received(sender, message))
        else:
            self.do(lambda: self.streams.acknowledged(sender, message))

    def _handle(self, sender: Peer, item: object) -> None:
        assert isinstance(item, list)
        label = Label(*item)
        world = self.world
        assert label.target == self.me.boot, "handled by another boot"
        assert label not in world.handled_labels, "handled twice"
        world.handled_labels.add(label)
        last = world.handled.get(label.way, -1)
        assert label.number == last + 1, f"handled {label.number} after {last}"
        world.handled[label.way] = label.number
        assert (label.boot, label.life) not in self.refused, "handled after close"
        later = [way for way in world.handled if way[0] == label.side and way[1:4:2] > label.way[1:4:2]]
        assert not [way for way in later if way[2] == self.me.boot], "handled after a later stream"
        self.uncommitted.append(label)
        if label.hold:
            self.held.append((label, self.streams.hold_back()))
            if world.random.random() < 0.2:
                self.held.pop()[1]()

    def release_some(self) -> None:
        self.world.random.shuffle(self.held)
        for _ in range(self.world.random.randint(0, len(self.held))):
            self.held.pop()[1]()

    def release_all(self) -> None:
        while self.held:
            self.held.pop()[1]()

    def end(self, commit: bool) -> None:
        """The end of an iteration; without a commit, nothing is acknowledged."""
        if commit:
            self.world.committed |= set(self.uncommitted)
            self.uncommitted = []
            self.do(self.streams.acknowledge)
        self.do(self.streams.flush)
        posts, self.context.posts = self.context.posts, []
        for peer, message in posts:
            if isinstance(message, Batch):
                assert len(message.items) <= 512
                assert len(message.items) == 1 or sum(map(len, message.items)) <= 32 << 10
            self.world.put(self, peer, CODEC.encode(message))
        for pair in self.streams._by_id.values():
            for lane in pair.outgoing.lanes if pair.outgoing else ():
                assert lane is None or len(lane.in_flight) <= 4, "window"


class StreamWorld:
    def __init__(self, seed: int, streams_class: type[Streams] = Streams) -> None:
        self.random = Random(seed)
        self.clock: Clock = StillClock(100.0)
        self.streams_class = streams_class
        self.stations = [Station(self, 0, 1, streams_class), Station(self, 1, 1, streams_class)]
        for side in (0, 1):
            self.stations[side].known = self.stations[1 - side].me
        self.loss = self.doubling = self.spread_s = 0.0
        self.line: list[tuple[float, int, int, Peer, bytes]] = []
        self.count = 0
        self.lively = True
        """Callbacks send more items."""
        self.handled: dict[tuple[int, int, int, int, int], int] = {}
        """The last number handled of each way."""
        self.handled_labels: set[Label] = set()
        self.committed: set[Label] = set()
        self.unconfirmed: set[Label] = set()
        """Items sent without `done`."""

    def put(self, station: Station, peer: Peer, raw: bytes) -> None:
        random = self.random
        for _ in range(2 if random.random() < self.doubling else 1):
            if random.random() >= self.loss:
                self.count += 1
                delay_s = 0.001 + random.random() * self.spread_s
                # Now and then a message of long ago.
                if random.random() < self.doubling / 4:
                    delay_s += random.random() * 5.0
                heappush(self.line, (self.clock.now + delay_s, self.count, int(peer.id) - 1, station.me, raw))

    def step(self, delay_s: float) -> None:
        """Let time pass. Each side commits now and then."""
        until = self.clock.now + delay_s
        while True:
            at = min(
                [self.line[0][0] if self.line else until]
                + [max(station.context.timers.next_at, station.paused_until) for station in self.stations]
            )
            if at >= until:
                break
            self.clock.now = max(self.clock.now, at)
            if self.line and self.line[0][0] <= self.clock.now:
                _, _, side, sender, raw = heappop(self.line)
                station = self.stations[side]
                if station.paused_until > self.clock.now:
                    self.count += 1
                    heappush(self.line, (station.paused_until, self.count, side, sender, raw))
                    continue
                station.receive(sender, raw)
            for station in self.stations:
                if station.paused_until <= self.clock.now:
                    timers = station.context.timers
                    station.do(lambda timers=timers: timers.run(self.clock.now))  # type: ignore[misc]
            self._end_all()
        self.clock.now = until

    def _act(self) -> None:
        random = self.random
        station = random.choice(self.stations)
        chance = random.random()
        if chance < 0.6:
            for _ in range(random.choice((1, 1, 3, 40))):
                lane = random.choice(tuple(Lane))
                size = random.choice((0, 0, 10, 9000, 40_000))
                station.do(
                    lambda lane=lane, size=size: station.send(  # type: ignore[misc]
                        lane, random.random() < 0.6, random.random() < 0.1, size
                    )
                )
        elif chance < 0.7:
            station.do(station.release_some)
        elif chance < 0.75:
            self.loss = random.choice((0.0, 0.1, 0.5))
            self.doubling = random.choice((0.0, 0.2))
            self.spread_s = random.choice((0.0, 0.01, 0.4))
        elif chance < 0.8:
            station.paused_until = self.clock.now + random.random() * 5.0
        elif chance < 0.84:
            station.do(station.close)
        elif chance < 0.87:
            side = station.side
            known = station.known
            self.stations[side] = Station(self, side, station.me.boot + 1, self.streams_class)
            self.stations[side].known = known
        self._end_all()
        self.step(random.choice((0.0, 0.001, 0.05, 0.5)))

    def _end_all(self) -> None:
        for station in self.stations:
            if station.paused_until <= self.clock.now:
                station.end(commit=not self.lively or self.random.random() < 0.7)

    def run(self, actions: int) -> None:
        for _ in range(actions):
            self._act()
        self.lively = False
        self.loss = self.doubling = self.spread_s = 0.0
        for station in self.stations:
            station.paused_until = 0.0
        self._end_all()
        self.step(10.0)
        for station in self.stations:
            station.do(station.release_all)
        self._end_all()
        self.step(20.0)
        assert not self.line
        for station in self.stations:
            assert all(station.expected.values()), "not done"
            assert station.known is not None
            now_in = (station.side, station.me.boot, station.known.boot, station.life)
            assert not [
                label for label in self.unconfirmed if label[:4] == now_in and label not in self.handled_labels
            ], "not handled"
            assert station.streams.idle(station.known), "not idle"
            assert len(station.context.timers) == 0, "a timer without a reason"
