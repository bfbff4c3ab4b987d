"""The reader of a connection: bytes become packets, and each packet takes the fast path or the general path.

Owns the bytes that are not processed yet, the share of the iteration's budget that this connection has used, and the
time at which the client was last heard. The meaning of packets is the business of `mqtt_front.connection.handlers`; the
begin and end of a connection, that of `mqtt_front.connection.connection`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ringmq.mqtt_front.access.acl import ALL_RIGHTS
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.codec.encode import PINGRESP
from ringmq.mqtt_front.codec.framing import PacketReader, ends_whole
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.connection.budget import DELIVERY_BYTES, NEW_TOPIC_BYTES, PACKET_BYTES, SLICE_BYTES
from ringmq.mqtt_front.connection.fast_path import FastPath
from ringmq.mqtt_front.connection.handlers import Handlers
from ringmq.mqtt_front.connection.writer import Writer
from ringmq.mqtt_front.errors import PacketError

PART_BYTES: Final = 1000
"""So much of an incomplete packet is a sign of life, as a packet is. By the letter only packets are, but then a client
with a slow link could not send a large one. Mosquitto takes any byte of a packet that lacks as many for a sign: there
one byte per keep-alive is enough for a million of them. Here a packet lasts as many keep-alives as it has kilobytes."""
WAITING_BYTES: Final = 32 << 10
"""So much is read of a client whose SUBSCRIBE waits for its admission, with the SUBSCRIBE."""
PINGREQ: Final = b"\xc0\x00"
SUBSCRIBE: Final = 0x82
"""The first byte of a SUBSCRIBE."""
HEADER_BYTES: Final = 2
"""The shortest fixed header."""


class Reader:
    """The reader of one connection. Before it is open, `packet` reads one packet; then `read` processes all."""

    __slots__ = (
        "_broker",
        "_fast",
        "_handlers",
        "_held",
        "_iteration",
        "_limit",
        "_packets",
        "_part_bytes",
        "_rest",
        "_spent",
        "_waits",
        "_writer",
        "behind",
        "heard_at",
    )

    def __init__(self, broker: Broker, handlers: Handlers, writer: Writer) -> None:
        self._broker = broker
        self._handlers = handlers
        self._writer = writer
        self._fast = FastPath(broker, handlers, writer)
        self.heard_at = broker.clock.now
        self.behind = False
        """The client has sent more than the budget of one iteration allows."""
        self._limit = broker.config.max_packet_bytes
        self._packets = PacketReader(self._limit)
        """For the CONNECT, and for packets that `_run` does not know."""
        self._rest = b""
        """Bytes not processed: an incomplete packet, or all bytes behind a decision or the end of the budget."""
        self._waits = False
        """Whether the first packet that is not processed is a SUBSCRIBE that waits for its admission."""
        self._held: bytes | None = None
        """The body of that SUBSCRIBE, if it is a long one."""
        self._iteration = -1
        self._spent = 0
        """The work of this iteration, and the excess of single packets over the share of earlier iterations."""
        self._part_bytes = 0
        """How much of the incomplete packet has counted as a sign of life."""

    @property
    def idle(self) -> bool:
        """Whether every byte that came has been processed."""
        return not self._rest and not self._packets.buffered_bytes

    def begin_iteration(self) -> None:
        """Take a new share of the budget, if a new iteration has begun since the last call."""
        iteration, work = self._broker.iteration, self._broker.work
        if self._iteration == iteration:
            return
        if work.iteration != iteration:
            work.begin(iteration)
        if self._spent:
            # A single packet may take more than a share: the excess is paid back by the next iterations.
            self._spent = max(0, self._spent - (iteration - self._iteration) * work.share)
        self._iteration = iteration

    def _room(self) -> int:
        """The rest of this connection's budget in this iteration."""
        work, spent = self._broker.work, self._spent
        left = work.share - spent
        return left if left <= work.left else max(work.left, SLICE_BYTES - spent)

    def hear(self) -> None:
        """Count this moment as a sign of life."""
        self.heard_at = self._broker.clock.now

    def stop(self) -> None:
        """The connection is closed: nothing that came is processed any more."""
        self.behind = False
        self._rest = b""
        self._held = None

    def take_rest(self, data: bytes) -> bytes:
        """All bytes that are not processed, the new ones last."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        return data

    def keep(self, data: bytes) -> None:
        """Keep what follows the CONNECT until the decision on it. Raises PacketError for more than one packet's worth.

        Clients may send packets before the CONNACK (5.0 §3.1.4).
        """
        self._rest = data
        if len(data) > self._limit:
            raise PacketError(Reason.PACKET_TOO_LARGE, "too much before the CONNACK")

    def check_lengths(self, shortest: bool) -> None:
        """Whether remaining lengths must have their shortest form, which depends on the version."""
        self._packets.shortest_lengths = shortest

    def packet(self, data: bytes, at: int, handle: Callable[[int, memoryview], None]) -> int:
        """Read one packet, or a part of one; returns the start of the next. Raises PacketError."""
        # No byte of the next packet is fed: this packet may set the version, close the connection or use up the budget.
        end = at + (self._packets.lacking_bytes or HEADER_BYTES)
        for first, body in self._packets.feed(data[at:end]):
            self.heard_at = self._broker.clock.now
            self._part_bytes = 0
            handle(first, body)
        self._heard_part(self._packets.buffered_bytes)
        return end

    def _heard_part(self, size_bytes: int) -> None:
        """An incomplete packet has grown to this size."""
        if size_bytes - self._part_bytes >= PART_BYTES:
            self.heard_at = self._broker.clock.now
            self._part_bytes = size_bytes

    def read(self, data: bytes) -> None:
        """Process bytes of the client of an open connection, as far as the budget allows. Raises PacketError."""
        if self._waits and self.behind and self._answer_ping(data):
            return
        if self._rest:
            data, self._rest = self._rest + data, b""
        if self._iteration != self._broker.iteration:
            self.begin_iteration()
        at, size, writer = 0, len(data), self._writer
        if self._held is not None and not self.behind:
            held, self._held = self._held, None
            self._take(SUBSCRIBE, memoryview(held))
        while at < size and not writer.closing:
            if self.behind:
                self._rest = data[at:] if at else data
                return
            at = self.packet(data, at, self._take) if self._packets.buffered_bytes else self._run(data, at)

    def _take(self, first: int, body: memoryview) -> None:
        if first == SUBSCRIBE and self._must_wait(len(body)):
            self._held = bytes(body)
            return
        spent = self._handled(first, body)
        self._spent += spent
        self._broker.work.left -= spent
        if not self._writer.closing and self._room() <= 0:
            self._fall_behind()

    def _must_wait(self, size_bytes: int) -> bool:
        """Whether a SUBSCRIBE of this length, and all that follows it, waits for its admission."""
        self._waits = self._broker.admission.holds_subscribe(self._writer, size_bytes)
        self.behind |= self._waits
        return self._waits

    def _handled(self, first: int, body: memoryview) -> int:
        """Handle a packet on the general path; returns what it counts for."""
        broker, handlers = self._broker, self._handlers
        counters = broker.counters
        before = counters.given
        answers = broker.router.answers_made
        handlers.handle(first, body)
        # Dropped deliveries are included: finding their receivers took work, too.
        given = counters.given - before
        spent = PACKET_BYTES + given * (len(body) + DELIVERY_BYTES) + handlers.take_extra_bytes()
        if broker.router.answers_made != answers:
            spent += NEW_TOPIC_BYTES
        return spent

    def _fall_behind(self) -> None:
        """The budget is used up: the rest waits for the next iteration."""
        self._broker.work.behind += 1
        self.postpone()

    def postpone(self) -> None:
        """Process what is left in the next iteration."""
        self.behind = True
        self._writer.starve()

    def resume(self) -> None:
        """Another iteration has begun: `read` processes the bytes beyond the budget of the last."""
        self.behind = self._waits = False

    @property
    def pauses(self) -> bool:
        """Whether the client's socket is not to be read. While its SUBSCRIBE waits, it may still send some packets, as
        it would take a server that does not answer a PINGREQ for dead."""
        return self.behind and not (self._waits and len(self._rest) <= WAITING_BYTES)

    def _answer_ping(self, data: bytes) -> bool:
        """Whether all that came while a SUBSCRIBE waits is a PINGREQ. Its answer may precede the SUBACK."""
        self.heard_at = self._broker.clock.now
        if data != PINGREQ or self._packets.buffered_bytes or not ends_whole(self._rest):
            return False
        self._broker.counters.messages_received += 1
        self._writer.send(PINGRESP)
        return True

    def _run(self, data: bytes, at: int) -> int:
        """Process whole packets of up to 16 kB: nearly all bytes come this way. Returns the start of the rest.

        A publication on the fast path costs one function call here. Longer packets and odd lengths go to `packet`, as
        does a packet beyond the budget.
        """
        size, limit = len(data), self._limit - 3
        broker, fast, session = self._broker, self._fast, self._handlers.session
        assert session is not None
        work, spent = broker.work, self._spent
        left = work.share - spent
        if left > work.left:
            left = max(work.left, SLICE_BYTES - spent)
        room, begin = left, at
        view: memoryview | None = None
        all_rights = session.rights is ALL_RIGHTS
        whole = False
        while at + 1 < size and left > 0:
            length = data[at + 1]
            start = at + 2
            if length >= 0x80:
                # Two bytes of length reach 16 kB, which is enough for nearly all packets. The rest go to `packet`.
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
            if first == 0x30 and all_rights:
                spent = fast.publish_0(data, at, start, end)
            elif first == 0x32 and all_rights:
                spent = fast.publish_1(data, at, start, end)
            elif first == 0x40 and length == 2:
                spent = fast.puback(data, start)
            if spent < 0:
                if first == SUBSCRIBE and self._must_wait(length):
                    break
                view = view or memoryview(data)
                spent = self._handled(first, view[start:end])
                if self._writer.closing:
                    # The work was done although this connection has ended: the others have less budget left.
                    work.left -= room - left + spent
                    return size
                all_rights = session.rights is ALL_RIGHTS
            left -= spent
            at = end
        if at > begin:
            self.heard_at = broker.clock.now
            self._part_bytes = 0
            self._spent += room - left
            work.left -= room - left
        if left <= 0:
            self._fall_behind()
        if at == size:
            return size
        if left <= 0 or self._waits:
            return at
        if whole:
            return self.packet(data, at, self._take)
        self._rest = data[at:] if at else data
        self._heard_part(len(self._rest))
        return size
