"""Load in rounds: one publication of every publisher, and the next round when all deliveries have arrived.

At a rate alone, a server that other processes kept from its core finds a backlog, and the larger it is, the less each
message costs: on a busy machine a delivery cost a third of its usual processor time. A late round never becomes larger.
So every slice is the same work, and only its duration depends on the machine.
"""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from ringmq.experiments.load.generator import Load
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.usage import Usage, busy_s

LOOK_S: Final = 0.00025
"""Between two looks at the receivers. Reading each packet at once would slow down servers that write each at once."""
ROUND_S: Final = 20.0
"""When a round is not complete by then, messages are lost."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The measurement of some rounds, from an idle server to an idle server."""

    publications: int
    deliveries: int
    cpu_s: float
    """Processor time of the servers."""
    seconds: float
    waited: float
    """The share of the time in which other processes kept the servers, or the load generator, from their cores."""

    @property
    def rate_hz(self) -> float:
        """Publications a second."""
        return self.publications / self.seconds


class Rounds(Load):
    """The clients of one pattern, which work in rounds."""

    def slice(self, rounds: int, rate_hz: float) -> Slice:
        """Publish rounds at this rate, or as fast as they become complete if that is slower.

        Raises BenchError when a round does not become complete.
        """
        size = self._pattern.all_publishers
        gc.collect()
        gc.disable()
        try:
            used, own, busy = Usage.of(*self._pids), Usage.of(os.getpid()), busy_s(self._cores)
            start = due = perf_counter()
            for _ in range(rounds):
                while perf_counter() < due:
                    pass
                self._round(size)
                due = max(due + size / rate_hz, perf_counter())
            seconds = perf_counter() - start
            server, generator = Usage.of(*self._pids).since(used), Usage.of(os.getpid()).since(own)
            waited_s = max(self._kept_waiting_s(server, busy_s(self._cores) - busy), generator.waited_s)
        except OSError as error:
            raise BenchError(f"the server failed under load: {error.strerror or error}") from None
        finally:
            gc.enable()
        deliveries = rounds * size * self._pattern.sp_ratio
        return Slice(rounds * size, deliveries, server.cpu_s, seconds, waited_s / seconds)

    def _round(self, size: int) -> None:
        sender, receiver = self._sender, self._receiver
        packet_bytes = self._pattern.packet_bytes
        sent = sender.sent + size
        received_bytes = receiver.received_bytes + size * self._pattern.sp_ratio * packet_bytes
        now = look_at = perf_counter()
        deadline = now + ROUND_S
        while sender.sent < sent or receiver.received_bytes < received_bytes or self._unacknowledged:
            if sender.sent < sent:
                sender.send(sent - sender.sent)
            if now >= look_at:
                receiver.look()
                look_at = now + LOOK_S
            if now > deadline:
                missing = (received_bytes - receiver.received_bytes) // packet_bytes
                raise BenchError(f"{missing} deliveries of a round did not arrive within {ROUND_S:g} s")
            now = perf_counter()
