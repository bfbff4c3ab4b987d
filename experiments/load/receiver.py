"""The receiving half of the load generator: counts bytes, acknowledges QoS 1, and reads the times of latency probes.

All PUBLISH packets have one size, so packets are counted without parsing them.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final

from ringmq.experiments.load import exactly_once
from ringmq.experiments.load.raw_clients import BenchError

BUFFER_BYTES: Final = 1 << 18
MOST_EVENTS: Final = 4096
"""Sockets of one look. With fewer than there are, acknowledgements that the publisher waits for would come behind
several looks, and the generator would be the limit."""
TIMESTAMP: Final = struct.Struct("<d")
_PUBACK_BYTES: Final = 4

OnPackets = Callable[[bytes | bytearray], None]
"""Gets all bytes of one or several complete PUBLISH packets."""


class Receiver:
    """All sockets that are read. `look` and `look_at_probes` read them, and return whether any data had come."""

    def __init__(self) -> None:
        self.received_bytes = 0
        """Bytes of PUBLISH packets to subscribers."""
        self.puback_bytes = 0
        """Bytes of PUBACK packets to publishers."""
        self.latencies_s: list[float] = []
        self._clients = select.epoll()
        self._probes = select.epoll()
        self._buffer = bytearray(BUFFER_BYTES)
        self._readers: dict[int, Callable[[], int]] = {}

    def close(self) -> None:
        self._clients.close()
        self._probes.close()

    def count(self, subscriber: socket.socket) -> None:
        """Count the bytes to a subscriber with QoS 0."""
        self._add(subscriber, partial(subscriber.recv_into, self._buffer))

    def acknowledge(
        self, subscriber: socket.socket, packet_bytes: int, id_at: int, note: OnPackets | None = None
    ) -> None:
        """Count the packets to a subscriber with QoS 1, and acknowledge them. `note` is called with the packets."""
        self._add(subscriber, Acknowledger(subscriber, self._buffer, packet_bytes, id_at, note).read)

    def await_acknowledgements(self, publisher: socket.socket) -> None:
        def read() -> int:
            self.puback_bytes += publisher.recv_into(self._buffer)
            return 0

        self._add(publisher, read)

    def await_pings(self, publisher: socket.socket) -> None:
        """Count each PINGRESP to a publisher with QoS 0 as a PUBACK, which is twice as long."""

        def read() -> int:
            self.puback_bytes += 2 * publisher.recv_into(self._buffer)
            return 0

        self._add(publisher, read)

    def complete_deliveries(self, subscriber: socket.socket, packet_bytes: int, id_at: int) -> None:
        """Count the publications that a subscriber with QoS 2 receives, and take its part of the handshake."""
        self._add(subscriber, exactly_once.SubscriberHandshake(subscriber, self._buffer, packet_bytes, id_at).read)

    def complete_publications(self, publisher: socket.socket) -> None:
        """Take the part of a publisher with QoS 2 in the handshake. A PUBCOMP counts like a PUBACK."""
        handshake = exactly_once.PublisherHandshake(publisher, self._buffer)

        def read() -> int:
            self.puback_bytes += _PUBACK_BYTES * handshake.read()
            return 0

        self._add(publisher, read)

    def time(self, prober: socket.socket, packet_bytes: int, time_at: int) -> None:
        """Measure the latency of every packet to this subscriber."""
        rest = b""

        def read() -> int:
            nonlocal rest
            now = perf_counter()
            data = rest + prober.recv(BUFFER_BYTES)
            whole = len(data) - len(data) % packet_bytes
            for at in range(time_at, whole, packet_bytes):
                self.latencies_s.append(now - TIMESTAMP.unpack_from(data, at)[0])
            rest = data[whole:]
            return 0

        self._add(prober, read, self._probes)

    def _add(self, client: socket.socket, read: Callable[[], int], group: select.epoll | None = None) -> None:
        self._readers[client.fileno()] = read
        (group or self._clients).register(client.fileno(), select.EPOLLIN | select.EPOLLRDHUP)

    def look(self) -> bool:
        """Read all clients except probes. Raises BenchError if the server has closed a connection."""
        return self._look_at(self._clients)

    def look_at_probes(self) -> bool:
        """Read the probes. Raises BenchError if the server has closed a connection."""
        return self._look_at(self._probes)

    def _look_at(self, group: select.epoll) -> bool:
        events = group.poll(0, MOST_EVENTS)
        readers, received = self._readers, 0
        for fd, event in events:
            # Any other flag, also beside EPOLLIN, reports a closed or broken connection.
            if event != select.EPOLLIN:
                raise BenchError("the server closed a connection")
            received += readers[fd]()
        self.received_bytes += received
        return bool(events)

    @property
    def acknowledged(self) -> int:
        return self.puback_bytes // _PUBACK_BYTES


class Acknowledger:
    """One subscriber with QoS 1."""

    def __init__(
        self,
        client: socket.socket,
        buffer: bytearray,
        packet_bytes: int,
        id_at: int,
        note: OnPackets | None = None,
    ) -> None:
        self._note = note
        self._client = client
        self._buffer = buffer
        self._packet_bytes = packet_bytes
        self._id_at = id_at
        self._rest = b""
        self._unsent = b""

    def read(self) -> int:
        """Read, and acknowledge all complete packets with one send. Returns the number of bytes that came."""
        count = self._client.recv_into(self._buffer)
        data = self._rest + self._buffer[:count]
        size, at = self._packet_bytes, self._id_at
        packets = len(data) // size
        whole = packets * size
        self._rest = bytes(data[whole:])
        if self._note is not None:
            self._note(data[:whole])
        # A PUBACK has four bytes (3.1.1 §3.4). The slices copy the packet ids into the last two bytes of all PUBACKs.
        answers = bytearray(b"\x40\x02\0\0") * packets
        answers[2::4] = data[at:whole:size]
        answers[3::4] = data[at + 1 : whole : size]
        unsent = self._unsent + answers
        with contextlib.suppress(BlockingIOError):
            unsent = unsent[self._client.send(unsent) :]
        self._unsent = unsent
        return count
