"""A switch between hosts: carries Ethernet frames from one line to the others, late, and not all of them.

A process of its own: its arguments are a seed, the delay, the jitter, the share of lost and of overtaking frames, and
the lines, each the file descriptor of a TAP device. Orders on its standard input, each answered with `ok`:

    cut N                      take line N out
    heal N                     put it back
    block A>B C>D              lose the frames from line A to B, and so on, and no others
    weather D J L R            delay, jitter, loss and reordering of the frames from now on

It ends when its standard input does. Order on a line is kept as on a cable, but for frames that may overtake.

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
"""Frames on their way. A real switch holds fewer, and drops further ones, too."""
MANY = 1
"""The bit of the first byte of a destination that says: for many."""
AT_ONCE = 64
"""Frames of a line that are taken before those of the next."""


class Switch:
    """Takes frames, and gives them out when they are due."""

    def __init__(self, lines: Sequence[int], weather: Sequence[float], seed: int) -> None:
        self._lines = lines
        self._delay_s, self._jitter_s, self._loss, self._overtaking = weather
        self._random = Random(seed)
        self._cut: set[int] = set()
        self._blocked: set[tuple[int, int]] = set()
        self._waiting: list[tuple[float, int, int, bytes]] = []
        """When due, a number that keeps equal ones in order, the line that it came from, and the frame."""
        self._count = 0
        self._last_due = dict.fromkeys(lines, 0.0)
        self._homes: dict[bytes, int] = {}
        """The line that leads to a hardware address, as far as frames from there told it."""

    def run(self, orders: int) -> None:
        """Until there are no more orders."""
        while True:
            wait_s = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            ready, _, _ = select.select([orders, *self._lines], [], [], wait_s)
            now = time.monotonic()
            for line in ready:
                if line != orders:
                    self._take(line, now)
                elif not self._obey(os.read(orders, 1 << 16)):
                    return
            self._give(now)

    def _obey(self, orders: bytes) -> bool:
        for order in orders.decode().splitlines():
            word, *words = order.split()
            if word == "cut":
                self._cut.add(self._lines[int(words[0])])
            elif word == "heal":
                self._cut.discard(self._lines[int(words[0])])
            elif word == "block":
                self._blocked = {self._pair(pair) for pair in words}
            else:
                self._delay_s, self._jitter_s, self._loss, self._overtaking = map(float, words)
            os.write(sys.stdout.fileno(), b"ok\n")
        return bool(orders)

    def _pair(self, pair: str) -> tuple[int, int]:
        source, target = pair.split(">")
        return self._lines[int(source)], self._lines[int(target)]

    def _take(self, line: int, now: float) -> None:
        for _ in range(AT_ONCE):
            try:
                frame = os.read(line, MAX_FRAME_BYTES)
            except OSError:  # there is no further frame, or the host's interface is down
                return
            self._homes[frame[6:12]] = line
            if line in self._cut or len(self._waiting) >= MAX_WAITING or self._random.random() < self._loss:
                continue
            due = now + self._delay_s + self._random.uniform(-self._jitter_s, self._jitter_s)
            if not self._overtaking or self._random.random() >= self._overtaking:
                self._last_due[line] = due = max(due, self._last_due[line])
            self._count += 1
            heapq.heappush(self._waiting, (due, self._count, line, frame))

    def _give(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, _, source, frame = heapq.heappop(self._waiting)
            if source in self._cut:
                continue
            home = None if frame[0] & MANY else self._homes.get(frame[:6])
            for line in self._lines if home is None else (home,):
                if line != source and line not in self._cut and (source, line) not in self._blocked:
                    self._write(line, frame)

    def _write(self, line: int, frame: bytes) -> None:
        try:
            os.write(line, frame)
        except OSError:  # the host's interface is down, or its queue full
            return


def main(seed: str, *words: str) -> None:
    """Run the switch of this process."""
    switch = Switch([*map(int, words[4:])], [*map(float, words[:4])], int(seed))
    switch.run(sys.stdin.fileno())


if __name__ == "__main__":
    main(*sys.argv[1:])
