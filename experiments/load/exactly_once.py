"""QoS 2 of the load generator: the answers of subscribers and publishers, made from bytes without decoding packets.

Every PUBLISH has one size and every other packet has 4 bytes, so the packet type alone says where the next one begins.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from ringmq.mqtt_front.codec.packets import Kind

_ACK_BYTES: Final = 4


class _Answering:
    """Sends answers without blocking, and keeps bytes that the system did not take."""

    def __init__(self, client: socket.socket, buffer: bytearray) -> None:
        self._client = client
        self._buffer = buffer
        self._rest = b""
        self._unsent = b""

    def _received(self) -> bytes:
        """All bytes that were not processed before."""
        count = self._client.recv_into(self._buffer)
        return self._rest + self._buffer[:count]

    def _send(self, answers: bytes) -> None:
        unsent = self._unsent + answers
        if unsent:
            with contextlib.suppress(BlockingIOError):
                unsent = unsent[self._client.send(unsent) :]
        self._unsent = unsent


class SubscriberHandshake(_Answering):
    """A subscriber with QoS 2: answers PUBLISH with PUBREC, and PUBREL with PUBCOMP."""

    def __init__(self, client: socket.socket, buffer: bytearray, packet_bytes: int, id_at: int) -> None:
        super().__init__(client, buffer)
        self._packet_bytes = packet_bytes
        self._id_at = id_at

    def read(self) -> int:
        """Process the bytes that arrived; returns how many bytes of complete PUBLISH packets were among them."""
        data = self._received()
        answers = bytearray()
        size, id_at = self._packet_bytes, self._id_at
        at = publications = 0
        while at < len(data):
            is_publish = data[at] >> 4 == Kind.PUBLISH
            end = at + (size if is_publish else _ACK_BYTES)
            if end > len(data):
                break
            if is_publish:
                answers += b"\x50\x02" + data[at + id_at : at + id_at + 2]
                publications += 1
            else:
                answers += b"\x70\x02" + data[at + 2 : end]
            at = end
        self._rest = bytes(data[at:])
        self._send(bytes(answers))
        return publications * size


class PublisherHandshake(_Answering):
    """A publisher with QoS 2: answers PUBREC with PUBREL."""

    def read(self) -> int:
        """Process the bytes that arrived; returns how many PUBCOMP packets were among them."""
        data = self._received()
        whole = len(data) - len(data) % _ACK_BYTES
        answers = bytearray()
        completed = 0
        for at in range(0, whole, _ACK_BYTES):
            if data[at] >> 4 == Kind.PUBREC:
                answers += b"\x62\x02" + data[at + 2 : at + _ACK_BYTES]
            else:
                completed += 1
        self._rest = bytes(data[whole:])
        self._send(bytes(answers))
        return completed
