"""A switch between hosts: carries Ethernet frames from one line to the others, late, and not all of them.

A process of its own: its arguments are the delay, the jitter, the share that is lost, a seed, and the lines, each the
file descriptor of a TAP device. `cut N` on its standard input takes a line out, `heal N` puts it back, and `ok` says
that it is done. It ends when its standard input does. Order on a line is kept, as on a cable.

The kernel can delay and lose frames by itself (tc netem); small kernels are built without that, but with TAP devices.
"""

from __future__ import annotations

import heapq
import os
import select
import sys
import time
from collections.abc import Sequence
from random import Random

MAX_FRAME_BYTES = 2048
"""An Ethernet frame of 1500 bytes, with its header."""
MAX_WAITING = 10_000
"""Frames on their way. A real switch holds fewer, and drops what comes beyond, too."""
GROUP = 1
"""The bit of a destination's first byte that says: for many."""


class Switch:
    """Takes frames, and gives them out when they are due."""

    def __init__(self, lines: Sequence[int], delay_s: float, jitter_s: float, loss: float, seed: int) -> None:
        self._lines = lines
        self._delay_s = delay_s
        self._jitter_s = jitter_s
        self._loss = loss
        self._random = Random(seed)
        self._cut: set[int] = set()
        self._waiting: list[tuple[float, int, int, bytes]] = []
        """When due, a number that keeps equal ones in order, the line that it came from, and the frame."""
        self._count = 0
        self._last_due = dict.fromkeys(lines, 0.0)
        self._homes: dict[bytes, int] = {}
        """Which line leads to a hardware address, as far as frames from there told it."""

    def run(self, orders: int) -> None:
        """Until there are no more orders."""
        while True:
            wait_s = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            ready, _, _ = select.select([orders, *self._lines], [], [], wait_s)
            now = time.monotonic()
            for line in ready:
                if line != orders:
                    self._take(line, now)
                elif not self._obey(os.read(orders, 4096)):
                    return
            self._give(now)

    def _obey(self, orders: bytes) -> bool:
        for order in orders.decode().splitlines():
            word, number = order.split()
            (self._cut.add if word == "cut" else self._cut.discard)(self._lines[int(number)])
            os.write(sys.stdout.fileno(), b"ok\n")
        return bool(orders)

    def _take(self, line: int, now: float) -> None:
        try:
            frame = os.read(line, MAX_FRAME_BYTES)
        except OSError:  # the host's interface is down
            return
        self._homes[frame[6:12]] = line
        if line in self._cut or len(self._waiting) >= MAX_WAITING or self._random.random() < self._loss:
            return
        due = now + self._delay_s + self._random.uniform(-self._jitter_s, self._jitter_s)
        self._last_due[line] = due = max(due, self._last_due[line])
        self._count += 1
        heapq.heappush(self._waiting, (due, self._count, line, frame))

    def _give(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, _, source, frame = heapq.heappop(self._waiting)
            if source in self._cut:
                continue
            home = None if frame[0] & GROUP else self._homes.get(frame[:6])
            for line in self._lines if home is None else (home,):
                if line != source and line not in self._cut:
                    self._write(line, frame)

    def _write(self, line: int, frame: bytes) -> None:
        try:
            os.write(line, frame)
        except OSError:  # the host's interface is down, or its queue full
            return


def main(delay_s: str, jitter_s: str, loss: str, seed: str, *lines: str) -> None:
    switch = Switch([*map(int, lines)], float(delay_s), float(jitter_s), float(loss), int(seed))
    switch.run(sys.stdin.fileno())


if __name__ == "__main__":
    main(*sys.argv[1:])
