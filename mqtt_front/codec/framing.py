"""Cuts the bytes of a connection into packets. Knows the fixed header (5.0 §2.1), but not the contents of packets."""

from __future__ import annotations

from collections.abc import Iterator

from ringmq.mqtt_front.codec.fields import MAX_VARINT
from ringmq.mqtt_front.codec.packets import Buffer
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import FrontError, MalformedPacketError, PacketError

MAX_HEADER_BYTES = 5
"""One byte of type and flags, at most four of remaining length."""


class PacketReader:
    """One per connection: feed it the bytes that arrive; it yields packets as (first byte, body).

    `max_packet_bytes` includes the fixed header, like the Maximum Packet Size of 5.0 (§3.1.2.11.4). The reader holds at
    most one incomplete packet of that size. The public attributes may be changed at any time.
    """

    __slots__ = ("_error", "_partial", "_running", "max_packet_bytes", "shortest_lengths")

    def __init__(self, max_packet_bytes: int = MAX_VARINT + MAX_HEADER_BYTES) -> None:
        self.max_packet_bytes = max_packet_bytes
        self.shortest_lengths = False
        """Whether remaining lengths must have their shortest form: 5.0 requires it [MQTT-1.5.5-1], MQTT 3 does not."""
        self._partial = bytearray()
        self._running = False
        self._error: PacketError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Size of the incomplete packet that it holds."""
        return len(self._partial)

    @property
    def lacking_bytes(self) -> int:
        """Missing bytes of an incomplete packet, at least; 0 without one. Feeding no more yields no second packet."""
        if not self._partial:
            return 0
        head = self._header(self._partial, 0)
        return sum(head) - len(self._partial) if head else 1

    def feed(self, data: Buffer) -> Iterator[tuple[int, memoryview]]:
        """Yields the packets that `data` completes; exhaust the iterator before the next call.

        A body is a view: of `data` if the packet lies within it, else of a copy. Raises PacketError after the packets
        before the malformed packet, and so does every later call. Raises FrontError if the iterator of the last call
        was not exhausted, since the position in the stream is then lost.
        """
        if self._error is not None:
            raise self._error
        if self._running:
            raise FrontError("the packets of the last chunk were not all read")
        self._running = True
        view = memoryview(data)
        at = 0
        if self._partial:
            at = self._complete(view)
            if at < 0:
                self._running = False
                return
            packet, self._partial = self._partial, bytearray()
            head = self._header(packet, 0)
            assert head is not None, "a complete packet has a header"
            yield packet[0], memoryview(packet).toreadonly()[head[0] :]
        limit = self.max_packet_bytes
        size = len(view)
        while at + 1 < size:
            length = view[at + 1]
            # Inline, since most packets have a remaining length of one byte and then need no call of `_header`.
            if length < 0x80:
                start = at + 2
                if length + 2 > limit:
                    self._header(view, at)  # raises
            else:
                head = self._header(view, at)
                if head is None:
                    break
                start, length = head
            end = start + length
            if end > size:
                break
            yield view[at], view[start:end]
            at = end
        if at < size:
            self._partial += view[at:]
        self._running = False

    def _complete(self, view: memoryview) -> int:
        """Add missing bytes to the incomplete packet; returns the start of the next packet, or -1 without one."""
        partial, at = self._partial, 0
        head = self._header(partial, 0)
        while head is None:
            if at == len(view):
                return -1
            partial.append(view[at])
            at += 1
            head = self._header(partial, 0)
        lacking = sum(head) - len(partial)
        rest = view[at : at + lacking]
        partial += rest
        return at + lacking if len(rest) == lacking else -1

    def _header(self, view: Buffer | bytearray, at: int) -> tuple[int, int] | None:
        """Start and length of the body, or None if the fixed header is incomplete. Checks the limit."""
        length = shift = 0
        for index in range(at + 1, at + MAX_HEADER_BYTES):
            if index >= len(view):
                return None
            byte = view[index]
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift and self.shortest_lengths:
                    raise self._failed(MalformedPacketError("a remaining length is not in its shortest form"))
                start = index + 1
                # Before the body arrives, so that an announced size takes no memory [MQTT-3.2.2-15].
                if start - at + length > self.max_packet_bytes:
                    raise self._failed(
                        PacketError(
                            Reason.PACKET_TOO_LARGE,
                            f"a packet must have at most {self.max_packet_bytes} bytes, got {start - at + length}",
                        )
                    )
                return start, length
            shift += 7
        raise self._failed(MalformedPacketError("a remaining length has more than four bytes"))

    def _failed(self, error: PacketError) -> PacketError:
        # After an error nothing marks the start of the next packet, so every later call raises it again.
        self._error = error
        self._partial = bytearray()
        return error


def ends_whole(data: bytes) -> bool:
    """Whether the bytes are whole packets, from the start of the first on."""
    at, size = 0, len(data)
    while at < size:
        length = shift = 0
        for index in range(at + 1, min(at + MAX_HEADER_BYTES, size)):
            length |= (data[index] & 0x7F) << shift
            shift += 7
            if data[index] < 0x80:
                at = index + 1 + length
                break
        else:
            return False
    return at == size
