"""The load generator: publishes at a rate, and measures the deliveries.

One thread, which never sleeps during a measurement, sends due messages in bursts of bounded length and reads arriving
ones. Separate clients measure the latency (the l-clients of §5.2); their payload is the time of sending.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Self

from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.load.patterns import PAYLOAD_BYTES, Pattern
from ringmq.experiments.load.raw_clients import BenchError, connected, subscribe
from ringmq.experiments.load.receiver import TIMESTAMP, Receiver
from ringmq.experiments.load.sender import Sender
from ringmq.experiments.processes.servers import Server
from ringmq.experiments.processes.usage import Usage, busy_s
from ringmq.mqtt_front.codec.codec import encode_publish
from ringmq.mqtt_front.codec.packets import Version

BURST: Final = 512
"""Publications sent between two looks at the receivers."""
LOOK_S: Final = 0.001
"""Least time between two such looks. A receiver on another core that reads each packet at once slows down a server that
writes once per packet: on one machine Mosquitto then reaches half of its limit. Probes are read without a delay."""
PROBES_HZ: Final = 1000.0
"""Messages a second to all clients that measure the latency together."""
QUIET_S: Final = 1.0
"""After this time without an arrival, no more arrivals are expected."""
UNACKNOWLEDGED_SHARE: Final = 0.5
"""The most unacknowledged messages of a publisher with QoS 1 or 2, on the average, as a share of its packet ids."""
DRAIN_S: Final = 20.0
"""Longest wait for messages in flight after the last publication."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """All counts at one moment."""

    at: float
    sent: int
    received_bytes: int
    latencies: int
    server: Usage
    busy_s: float
    """Busy time of the cores of the servers."""
    generator: Usage


class Load:
    """The clients of one pattern at its servers, or at a single server. `measure` any number of times, then `close`."""

    def __init__(self, servers: Sequence[Server], pattern: Pattern) -> None:
        self._pattern = pattern
        self._servers = servers
        self._pids = [server.pid for server in servers]
        self._cores = {core for pid in self._pids for core in os.sched_getaffinity(pid)}
        self._receiver = Receiver()
        self._sockets: list[socket.socket] = []
        self._probe_head = encode_publish(Version.V311, b"bench/latency", bytes(PAYLOAD_BYTES))[:-PAYLOAD_BYTES]
        self._probe_tail = bytes(PAYLOAD_BYTES - TIMESTAMP.size)
        self._probe_s = len(pattern.probed) / PROBES_HZ
        self._idle_s = self._blocked_s = 0.0
        self._open(pattern)

    def _open(self, pattern: Pattern) -> None:
        receiver = self._receiver
        for number in range(pattern.topics * pattern.subscribers):
            topic, subscriber = divmod(number, pattern.subscribers)
            at = pattern.subscriber_at(topic, subscriber)
            client = self._client(at, f"sub-{number}", pattern.topic(topic), pattern.qos)
            id_at = pattern.packet_bytes - pattern.payload_bytes - 2
            if pattern.qos == 2:
                receiver.complete_deliveries(client, pattern.packet_bytes, id_at)
            elif pattern.qos:
                receiver.acknowledge(client, pattern.packet_bytes, id_at)
            else:
                receiver.count(client)
        for number, server in enumerate(pattern.probed):
            prober = self._client(server, f"probe-sub-{number}", "bench/latency")
            receiver.time(prober, len(self._probe_head) + PAYLOAD_BYTES, len(self._probe_head))
        self._prober = self._client(pattern.prober_at, "probe-pub")
        publishers = []
        for number in range(pattern.all_publishers):
            at = pattern.publisher_at(*divmod(number, pattern.publishers))
            publishers.append(self._client(at, f"pub-{number}"))
        if pattern.qos:
            follow = receiver.complete_publications if pattern.qos == 2 else receiver.await_acknowledgements
            for publisher in publishers:
                follow(publisher)
        self._most_unacknowledged = UNACKNOWLEDGED_SHARE * pattern.packet_ids * pattern.all_publishers
        self._sender = Sender(pattern, publishers)

    def _client(self, at: int, client_id: str, topic: str | None = None, qos: int = 0) -> socket.socket:
        """A client at a server of the pattern. If there is only one server, all clients are at it."""
        client = connected(self._servers[at % len(self._servers)].address, client_id)
        self._sockets.append(client)
        if topic is not None:
            subscribe(client, topic, qos=qos)
        client.setblocking(False)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for client in self._sockets:
            client.close()
        self._receiver.close()

    def measure(self, rate_hz: float, warm_s: float, span_s: float) -> Figures:
        """Publish at a rate for a while, and measure after the first `warm_s`. Raises BenchError."""
        sent, received = self._sender.sent, self._receiver.received_bytes
        self._receiver.latencies_s.clear()
        # A garbage collection would delay the reading of probes, and so increase their latencies.
        gc.collect()
        gc.disable()
        try:
            start = perf_counter()
            self._publish(rate_hz, start, start + warm_s, sent)
            first = self._mark()
            self._idle_s = self._blocked_s = 0.0
            self._publish(rate_hz, start, start + warm_s + span_s, sent)
            last = self._mark()
            self._drain(sent, received)
        except OSError as error:
            raise BenchError(f"the server failed under load: {error.strerror or error}") from None
        finally:
            gc.enable()
        wanted = (self._sender.sent - sent) * self._pattern.sp_ratio
        got = (self._receiver.received_bytes - received) // self._pattern.packet_bytes
        return self._figures(rate_hz, first, last, 1 - got / wanted if wanted else 0.0)

    def _publish(self, rate_hz: float, start: float, end: float, base: int) -> None:
        """Publish until `end` at a rate that counts from `start`, when `base` messages had been sent."""
        sender, receiver = self._sender, self._receiver
        now = perf_counter()
        probe_at = look_at = now
        while now < end:
            due = int((now - start) * rate_hz) + base - sender.sent
            held = due > 0 and self._unacknowledged > self._most_unacknowledged
            if due > 0 and not held:
                sender.send(min(due, BURST))
            if now >= probe_at:
                self._probe()
                probe_at = max(probe_at + self._probe_s, now)
            came = receiver.look_at_probes()
            if now >= look_at:
                came |= receiver.look()
                look_at = now + LOOK_S
            before, now = now, perf_counter()
            if held or sender.blocked:
                self._blocked_s += now - before
            elif due <= 0 and not came:
                self._idle_s += now - before

    @property
    def _unacknowledged(self) -> int:
        return self._sender.sent - self._receiver.acknowledged if self._pattern.qos else 0

    def _probe(self) -> None:
        """Publish the time. A probe is skipped while its publisher is blocked, since its time would be too early."""
        with contextlib.suppress(BlockingIOError):
            self._prober.send(self._probe_head + TIMESTAMP.pack(perf_counter()) + self._probe_tail)

    def _mark(self) -> _Mark:
        return _Mark(
            perf_counter(),
            self._sender.sent,
            self._receiver.received_bytes,
            len(self._receiver.latencies_s),
            Usage.of(*self._pids),
            busy_s(self._cores),
            Usage.of(os.getpid()),
        )

    def _drain(self, sent: int, received: int) -> None:
        """Read the messages in flight, so that the next measurement starts with an idle server."""
        sender, receiver = self._sender, self._receiver
        now = quiet_since = perf_counter()
        end = now + DRAIN_S
        while now < end and now - quiet_since < QUIET_S:
            sender.flush()
            if receiver.look() | receiver.look_at_probes():
                quiet_since = now
            wanted = (sender.sent - sent) * self._pattern.sp_ratio * self._pattern.packet_bytes
            if receiver.received_bytes - received >= wanted and not self._unacknowledged and not sender.blocked:
                return
            now = perf_counter()

    def _figures(self, rate_hz: float, first: _Mark, last: _Mark, loss: float) -> Figures:
        span_s = last.at - first.at
        server, generator = last.server.since(first.server), last.generator.since(first.generator)
        received = (last.received_bytes - first.received_bytes) / self._pattern.packet_bytes
        return Figures(
            offered_hz=rate_hz,
            ingress_hz=(last.sent - first.sent) / span_s,
            egress_hz=received / span_s,
            sp_ratio=self._pattern.sp_ratio,
            loss=loss,
            latencies_s=tuple(sorted(self._receiver.latencies_s[first.latencies : last.latencies])),
            server_cpu=server.cpu_s / span_s,
            generator_cpu=max(0.0, 1 - (self._idle_s + generator.waited_s) / span_s),
            server_waited=self._kept_waiting_s(server, last.busy_s - first.busy_s) / span_s,
            generator_waited=generator.waited_s / span_s,
            blocked=self._blocked_s / span_s,
        )

    def _kept_waiting_s(self, server: Usage, cores_s: float) -> float:
        """Time in which other processes kept the servers from their cores, which were busy for `cores_s`.

        Several servers on one core also wait for each other. Other processes used at most the busy time of the cores
        that the servers did not use.
        """
        if len(self._pids) == 1:
            return server.waited_s
        return min(server.waited_s, max(0.0, cores_s - server.cpu_s))
