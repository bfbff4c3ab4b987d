"""The publishing half of the load generator: prepared packets, each passed to the system by its own send()."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from itertools import cycle, islice

from ringmq.experiments.load.patterns import Pattern

_Sending = tuple[Callable[[bytes], int], bytes]


class Sender:
    """All publishers of a pattern, which take turns. `sent` counts the messages that the system has accepted whole."""

    def __init__(self, pattern: Pattern, publishers: list[socket.socket]) -> None:
        self.sent = 0
        self._size = pattern.packet_bytes
        self._turns: Iterator[_Sending] = cycle(_turns(pattern, publishers))
        self._stuck: _Sending | None = None

    @property
    def blocked(self) -> bool:
        """Whether the server reads too slowly, so that the last packet does not fit into the buffer of its socket."""
        return self._stuck is not None

    def send(self, count: int) -> None:
        """Publish `count` messages, or fewer if a publisher is blocked."""
        if self._stuck is not None and not self._send_rest(self._stuck):
            return
        size, done = self._size, 0
        for send, packet in islice(self._turns, count):
            try:
                taken = send(packet)
            except BlockingIOError:
                taken = 0
            if taken != size:
                self._stuck = send, packet[taken:]
                break
            done += 1
        self.sent += done

    def flush(self) -> None:
        """Try to send the rest of a packet."""
        if self._stuck is not None:
            self._send_rest(self._stuck)

    def _send_rest(self, stuck: _Sending) -> bool:
        send, rest = stuck
        try:
            rest = rest[send(rest) :]
        except BlockingIOError:
            return False
        self._stuck = (send, rest) if rest else None
        self.sent += not rest
        return not rest


def _turns(pattern: Pattern, publishers: list[socket.socket]) -> list[_Sending]:
    packets = [pattern.packets(number // pattern.publishers) for number in range(len(publishers))]
    rounds = pattern.packet_ids if pattern.qos else 1
    return [
        (publisher.send, packets[number][packet])
        for packet in range(rounds)
        for number, publisher in enumerate(publishers)
    ]
