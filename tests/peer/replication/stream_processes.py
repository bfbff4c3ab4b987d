"""Two processes with streams, and a line between them that a test delivers by hand."""

from __future__ import annotations

from collections.abc import Callable

from ringmq.mqtt_front.iteration import Clock, StillClock
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.replication.stream_messages import Batch, BatchAck
from ringmq.peer.replication.streams import Streams
from tests.peer.replication.stream_line import LineContext

A = Peer(Id(1), "a", 1, 5)
B = Peer(Id(2), "b", 1, 7)


class Process:
    """One process with streams; items are strings. `end` ends an iteration."""

    def __init__(self, me: Peer, clock: Clock, streams_class: type[Streams] = Streams) -> None:
        self.context = LineContext(me, clock)
        self.handled: list[str] = []
        self.lost: list[Peer] = []
        self.on_item: Callable[[str], None] = lambda item: None
        self.streams = streams_class(self.context, self._encode, self._decode, self._handle, self.lost.append)

    def _encode(self, item: object) -> bytes:
        assert isinstance(item, str)
        return item.encode()

    def _decode(self, data: bytes) -> str:
        if data == b"unreadable":
            raise ProtocolError("unreadable")
        return data.decode()

    def _handle(self, sender: Peer, item: object) -> None:
        assert isinstance(item, str)
        self.handled.append(item)
        self.on_item(item)

    def settle(self) -> None:
        """Handle the messages of this peer to itself."""
        while self.context.local:
            message = self.context.local.popleft()
            assert isinstance(message, Batch)
            self.streams.received(self.context.me, message)

    def end(self) -> list[Batch | BatchAck]:
        """Commit, acknowledge and flush: the messages sent."""
        self.settle()
        self.streams.acknowledge()
        self.streams.flush()
        posts, self.context.posts = self.context.posts, []
        return [message for _, message in posts]

    def take(self, sender: Peer, messages: list[Batch | BatchAck]) -> None:
        for message in messages:
            if isinstance(message, Batch):
                self.streams.received(sender, message)
            else:
                self.streams.acknowledged(sender, message)
            self.settle()


class Line:
    """Two processes on a line without faults."""

    def __init__(self, streams_class: type[Streams] = Streams) -> None:
        self.clock = StillClock(50.0)
        self.a = Process(A, self.clock, streams_class)
        self.b = Process(B, self.clock, streams_class)
        self.crossed: list[Batch | BatchAck] = []

    def exchange(self) -> None:
        """Carry messages until neither side has any."""
        while True:
            to_b, to_a = self.a.end(), self.b.end()
            if not to_b and not to_a:
                return
            self.crossed += to_b + to_a
            self.b.take(self.a.context.me, to_b)
            self.a.take(self.b.context.me, to_a)

    def pass_time(self, until_s: float) -> None:
        """Run the timers of both sides until then, and carry their messages."""
        until = self.clock.now + until_s
        while (at := min(self.a.context.timers.next_at, self.b.context.timers.next_at)) <= until:
            self.clock.now = at
            self.a.context.timers.run(at)
            self.b.context.timers.run(at)
            self.exchange()
        self.clock.now = until


def batches(messages: list[Batch | BatchAck]) -> list[Batch]:
    return [message for message in messages if isinstance(message, Batch)]
