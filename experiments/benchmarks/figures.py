"""Measurements of a server at one rate, and conclusions from them. Knows no server and no socket."""

from __future__ import annotations

from dataclasses import dataclass

from ringmq.experiments.benchmarks.limit import keeps_up


@dataclass(frozen=True, slots=True)
class Figures:
    """Measurements at one offered rate."""

    offered_hz: float
    """Publications a second that all publishers together should send."""
    ingress_hz: float
    """Publications a second that they sent."""
    egress_hz: float
    """Deliveries a second to all subscribers."""
    sp_ratio: int
    """Subscribers of a topic, so deliveries of a publication."""
    loss: float
    """Share of the due deliveries that never came."""
    latencies_s: tuple[float, ...]
    """Latencies of the probes, sorted."""
    server_cpu: float
    """Share of a core that the server used."""
    generator_cpu: float
    """Share of a core that the generator used, without the time in which it only polled its sockets."""
    server_waited: float
    """Share of the time in which other processes kept the server from its core."""
    generator_waited: float
    """Share of the time in which other processes kept the generator from its core."""
    blocked: float
    """Share of the time in which the server did not accept the offered messages."""

    @property
    def offer_reached(self) -> bool:
        return self.ingress_hz >= 0.99 * self.offered_hz

    @property
    def keeps_up(self) -> bool:
        """Whether the server keeps up by Definition 1 and accepted the offered rate.

        Definition 1 alone is not enough: TCP holds back the publishers before messages gather in the server.
        """
        return self.offer_reached and keeps_up(self.ingress_hz, self.egress_hz, self.sp_ratio)

    @property
    def generator_bound(self) -> bool:
        """Whether the generator could not offer more while the server kept up, so that the server's limit is higher.

        The server's processor time is no criterion: a server that batches its work under load uses its whole core long
        before its limit.
        """
        busy = self.generator_cpu + self.generator_waited > 0.95 and self.blocked < 0.05
        return not self.offer_reached and busy and keeps_up(self.ingress_hz, self.egress_hz, self.sp_ratio)

    @property
    def waited(self) -> float:
        return max(self.server_waited, self.generator_waited)

    @property
    def egress_per_cpu_s(self) -> float:
        """Deliveries for each second of the server's processor time."""
        return self.egress_hz / self.server_cpu if self.server_cpu else float("nan")

    @property
    def cpu_s_per_million(self) -> float:
        """Seconds of the server's processor time for a million deliveries."""
        return 1e6 * self.server_cpu / self.egress_hz if self.egress_hz else float("nan")

    def percentile_s(self, percent: float) -> float:
        rank = min(len(self.latencies_s) - 1, int(len(self.latencies_s) * percent / 100))
        return self.latencies_s[rank] if self.latencies_s else float("nan")
