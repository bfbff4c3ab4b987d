"""Measures the servers of a system: processor time of a work, cores at rest, memory; and the reference message.

Owns the decision when servers are idle again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Final

from ringmq.experiments.benchmarks.topics.costs import Work
from ringmq.experiments.benchmarks.topics.systems import System
from ringmq.experiments.load.raw_clients import connected, subscribe
from ringmq.experiments.load.receiver import Receiver
from ringmq.experiments.load.topic_stream import TopicStream, blocks, packet_size, payload_of
from ringmq.experiments.processes.usage import Usage, busy_s, proportional_bytes

WINDOW_S: Final = 0.02
"""Length of a look at the processor time of the servers."""
IDLE_SHARE: Final = 0.5
"""Servers that want less than this share of a core have finished their work. The upkeep of thousands of topics can take
a third of a core."""
QUIET_S: Final = 5.0
"""Longest wait for idle servers after the last answer."""
TOPIC: Final = "use/0000000"
WARM: Final = 1000
"""Messages to the topic in use that are not measured."""
MESSAGES: Final = 6000
"""Messages to the topic in use."""


class Meter:
    """Measures one system, whose servers may change."""

    def __init__(self, system: System) -> None:
        self._system = system

    def used(self) -> Usage:
        """Processor time of the live servers since their start."""
        return Usage.of(*self._system.pids)

    def memory(self) -> int:
        return proportional_bytes(*self._system.pids)

    def rest(self, seconds: float) -> float:
        """Cores that the servers use while the generator does nothing."""
        before, start = self.used(), perf_counter()
        time.sleep(seconds)
        return self.used().since(before).cpu_s / (perf_counter() - start)

    @contextmanager
    def work(self, name: str, wanted: int) -> Iterator[Work]:
        """Measure the work that the caller does in this context; the caller counts its units."""
        measured = Work(name, wanted)
        cores = {core for pid in self._system.pids for core in os.sched_getaffinity(pid)}
        before, own, busy, start = self.used(), Usage.of(os.getpid()), busy_s(cores), perf_counter()
        yield measured
        measured.seconds = perf_counter() - start
        servers, generator = self.used().since(before), Usage.of(os.getpid()).since(own)
        measured.generator_s = generator.cpu_s
        # Servers on one core also wait for each other: other processes had at most the rest of the busy time.
        measured.waited_s = max(generator.waited_s, min(servers.waited_s, busy_s(cores) - busy - servers.cpu_s))
        idle_at, idle = self._idle()
        measured.cpu_s = idle.since(before).cpu_s
        if measured.ends_when_quiet:
            measured.seconds = idle_at - start

    def _idle(self) -> tuple[float, Usage]:
        """Wait until the servers are idle: the start of the first window in which they were, and the usage then.

        Servers that stay busy with upkeep, or with work that a timeout cut off, finished with the last answer.
        """
        pids = self._system.pids
        first = at, usage = perf_counter(), Usage.of(*pids)
        end = at + QUIET_S
        while at < end:
            time.sleep(WINDOW_S)
            next_at, after = perf_counter(), Usage.of(*pids)
            span = after.since(usage)
            # Time in the run queue counts as well: on a busy machine, servers with work may not get a core.
            if span.cpu_s + span.waited_s < IDLE_SHARE * (next_at - at):
                return at, usage
            at, usage = next_at, after
        return first


class Reference(ExitStack):
    """A topic in use: its publisher at the first server, its subscriber at the second. Measures its QoS 1 messages."""

    def __init__(self, system: System, meter: Meter) -> None:
        super().__init__()
        self._meter = meter
        receiver = Receiver()
        self.callback(receiver.close)
        subscriber = self.enter_context(connected(system.address(1), "use-sub"))
        subscribe(subscriber, TOPIC, qos=1)
        subscriber.setblocking(False)
        size = packet_size(TOPIC, 1)
        receiver.acknowledge(subscriber, size, size - len(payload_of(0)) - 2)
        self._stream = TopicStream(
            self.enter_context(connected(system.address(0), "use-pub")), 1, receiver, packet_bytes=size
        )

    def measure(self, timeout_s: float) -> Work:
        self._run(WARM, timeout_s)
        with self._meter.work("message to a topic in use", MESSAGES) as work:
            work.done = self._run(MESSAGES, timeout_s)
        return work

    def _run(self, count: int, timeout_s: float) -> int:
        work = list(blocks([TOPIC] * count, 1, deliveries=lambda topic: 1))
        done = self._stream.run(work, perf_counter() + timeout_s)
        return min(done.answered(1), done.delivered)
