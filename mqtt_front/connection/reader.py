"""The half of a connection that reads: bytes become packets, which go the short way where there is one for them.

Owns what has come and is not worked off yet, what one turn may set going, and when the client was last heard. How a
client is let in and how it goes is `mqtt_front.connection.connection`'s business.
"""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum, auto
from typing import Final

from ringmq.mqtt_front.access.acl import ALL_RIGHTS
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.connection.budget import DELIVERY_BYTES, NEW_TOPIC_BYTES, PACKET_BYTES, SLICE_BYTES
from ringmq.mqtt_front.connection.fast_publish import ShortWay
from ringmq.mqtt_front.errors import PacketError

PART_BYTES: Final = 1000
"""So much of an incomplete packet is a sign of life, as a packet is. By the letter only packets are, but then a client
with a slow link could not send a large one. Mosquitto takes any byte of a packet that lacks as many for a sign: there
one byte per keep-alive is enough for a million of them. Here a packet lasts as many keep-alives as it has kilobytes."""
HEADER_BYTES: Final = 2
"""The shortest fixed header."""


class Phase(Enum):
    """What the connection waits for."""

    NEW = auto()
    """Its CONNECT."""
    DECIDING = auto()
    """The decision whether it may; what it sends meanwhile is kept."""
    OPEN = auto()
    CLOSED = auto()


class Reading(ShortWay):
    """`feed` it; `go_on` when the shell has emptied the outboxes, if it is `starved`."""

    __slots__ = (
        "_limit",
        "_part_bytes",
        "_reader",
        "_rest",
        "_spent",
        "_turn",
        "heard_at",
        "phase",
    )

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.phase = Phase.NEW
        self.heard_at = broker.clock.now
        self._limit = broker.config.max_packet_bytes
        self._reader = PacketReader(self._limit)
        """For the CONNECT, and for packets that `_run` does not know."""
        self._rest = b""
        """What is not worked off: a packet that is not all there, or what waits for a decision or the next turn."""
        self._turn = -1
        self._spent = 0
        """What has been worked off in this turn, and what single packets took beyond the share in those before."""
        self._part_bytes = 0
        """How much of the incomplete packet has been taken for a sign of life."""

    def feed(self, data: bytes) -> None:
        """What the client has sent. Never raises for what a client does: it closes the connection instead."""
        self.broker.counters.bytes_received += len(data)
        if self._rest:
            data, self._rest = self._rest + data, b""
        if self._turn != self.broker.turn:
            self._begin_turn()
        at, size = 0, len(data)
        try:
            while at < size:
                plain = self.phase is Phase.OPEN and not self._reader.buffered_bytes and not self.behind
                at = self._run(data, at) if plain else self._piece(data, at)
        except PacketError as error:
            self._thrown_out(error)

    def _begin_turn(self) -> None:
        turn, work = self.broker.turn, self.broker.work
        if work.turn != turn:
            work.begin(turn)
        if self._spent:
            self._spent = max(0, self._spent - (turn - self._turn) * work.share)
        self._turn = turn

    def _room(self) -> int:
        """What it may do yet in this turn."""
        work, spent = self.broker.work, self._spent
        left = work.share - spent
        return left if left <= work.left else max(work.left, SLICE_BYTES - spent)

    def _thrown_out(self, error: PacketError) -> None:
        """Close because of what the client sent."""
        error.__traceback__ = None  # The reader keeps the error, whose frames would keep this connection.
        if self.phase is Phase.OPEN:
            self.broker.counters.protocol_errors += 1
        self.fail(error.reason, str(error))

    @abstractmethod
    def _open(self, first: int, body: memoryview) -> None:
        """The first packet. Raises PacketError if it is no CONNECT, or none that may be let in."""

    def _piece(self, data: bytes, at: int) -> int:
        """The general way, for one packet or what there is of one; gives where the next begins."""
        if self.phase is Phase.CLOSED:
            return len(data)
        if self.phase is Phase.DECIDING or self.behind:
            # Packets may follow a CONNECT at once (5.0 §3.1.4).
            self._rest = data[at:] if at else data
            if self.phase is Phase.DECIDING and len(self._rest) > self._limit:
                raise PacketError(Reason.PACKET_TOO_LARGE, "too much before the CONNACK")
            return len(data)
        end = at + (self._reader.lacking_bytes or HEADER_BYTES)
        for first, body in self._reader.feed(data[at:end]):
            self.heard_at = self.broker.clock.now
            self._part_bytes = 0
            if self.phase is Phase.OPEN:
                self._take_one(first, body)
            else:
                self._open(first, body)
        self._heard_part(self._reader.buffered_bytes)
        return end

    def _take_one(self, first: int, body: memoryview) -> None:
        spent = self._taken(first, body)
        self._spent += spent
        self.broker.work.left -= spent
        if self.phase is Phase.OPEN and self._room() <= 0:
            self._fall_behind()

    def _taken(self, first: int, body: memoryview) -> int:
        """Take a packet, and give what it counts for."""
        broker = self.broker
        counters = broker.counters
        before = counters.given
        answers = broker.router.answers_made
        self.take(first, body)
        given = counters.given - before
        spent = PACKET_BYTES + given * (len(body) + DELIVERY_BYTES) + self.extra_bytes
        self.extra_bytes = 0
        if broker.router.answers_made != answers:
            spent += NEW_TOPIC_BYTES
        return spent

    def _fall_behind(self) -> None:
        """This turn is full: the rest is for the next."""
        self.broker.work.behind += 1
        self.behind = self.pausing = self.starved = True
        self.wake()

    def _heard_part(self, size_bytes: int) -> None:
        """So much of an incomplete packet is there."""
        if size_bytes - self._part_bytes >= PART_BYTES:
            self.heard_at = self.broker.clock.now
            self._part_bytes = size_bytes

    def go_on(self) -> None:
        if self._turn != self.broker.turn:
            self._begin_turn()
        super().go_on()
        self._catch_up()

    def _catch_up(self) -> None:
        """Work off what the last turn had no room for, as far as this one has."""
        if self.behind:
            self.behind = False
            self.feed(b"")
            self.see_whether_to_pause()

    def _run(self, data: bytes, at: int) -> int:
        """The way of most bytes: whole packets of up to 16 kB, plain publications without another function call.

        What it does not know (long packets, odd lengths) goes to `_piece`, as what the turn has no room for does.
        """
        size, limit = len(data), self._limit - 3
        work, spent = self.broker.work, self._spent
        left = work.share - spent
        if left > work.left:
            left = max(work.left, SLICE_BYTES - spent)
        room, begin = left, at
        view: memoryview | None = None
        plain_in = self.rights is ALL_RIGHTS
        whole = False
        while at + 1 < size and left > 0:
            length = data[at + 1]
            start = at + 2
            if length >= 0x80:
                if start >= size:
                    break
                if not 0 < data[start] < 0x80:
                    whole = True
                    break
                length = length & 0x7F | data[start] << 7
                start += 1
            end = start + length
            if length > limit:
                whole = True
                break
            if end > size:
                break
            first, spent = data[at], -1
            if first == 0x30 and plain_in:
                spent = self._publish_0(data, at, start, end)
            elif first == 0x32 and plain_in:
                spent = self._publish_1(data, at, start, end)
            elif first == 0x40 and length == 2:
                spent = self._puback(data, start)
            if spent < 0:
                view = view or memoryview(data)
                spent = self._taken(first, view[start:end])
                if self.phase is not Phase.OPEN:
                    work.left -= room - left + spent
                    return size
                plain_in = self.rights is ALL_RIGHTS
            left -= spent
            at = end
        if at > begin:
            self.heard_at = self.broker.clock.now
            self._part_bytes = 0
            self._spent += room - left
            work.left -= room - left
        if left <= 0:
            self._fall_behind()
        if at == size:
            return size
        if whole or left <= 0:
            return self._piece(data, at)
        self._rest = data[at:] if at else data
        self._heard_part(len(self._rest))
        return size
