"""What is measured of a server at one rate, and what follows from it. Knows no server and no socket."""

from __future__ import annotations

from dataclasses import dataclass

from ringmq.experiments.benchmarks.limit import keeps_up


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured at one offered rate."""

    offered_hz: float
    """Publications a second, of all publishers together; so is the next."""
    ingress_hz: float
    egress_hz: float
    sp_ratio: int
    loss: float
    """Of what was to be received in the end, the share that was not."""
    latencies_s: tuple[float, ...]
    """Sorted."""
    server_cpu: float
    generator_cpu: float
    """Shares of a core; of the generator without the time in which it only looked whether something had come."""
    server_waited: float
    generator_waited: float
    """Shares of the time in which other processes kept them from their cores."""
    blocked: float
    """The share of the time in which the server did not take what was offered."""

    @property
    def offer_reached(self) -> bool:
        return self.ingress_hz >= 0.99 * self.offered_hz

    @property
    def keeps_up(self) -> bool:
        """Definition 1, and what was offered was taken: TCP holds publishers back before anything gathers."""
        return self.offer_reached and keeps_up(self.ingress_hz, self.egress_hz, self.sp_ratio)

    @property
    def generator_bound(self) -> bool:
        """More could not be offered, and the server coped with all that was: its limit is higher. This needs no look at
        the server's processor time, which is full long before the limit where it does more at once under load."""
        busy = self.generator_cpu + self.generator_waited > 0.95 and self.blocked < 0.05
        return not self.offer_reached and busy and keeps_up(self.ingress_hz, self.egress_hz, self.sp_ratio)

    @property
    def waited(self) -> float:
        return max(self.server_waited, self.generator_waited)

    @property
    def egress_per_cpu_s(self) -> float:
        """Deliveries for a second of the server's processor time."""
        return self.egress_hz / self.server_cpu if self.server_cpu else float("nan")

    @property
    def cpu_s_per_million(self) -> float:
        """Of the server's processor time, for a million deliveries."""
        return 1e6 * self.server_cpu / self.egress_hz if self.egress_hz else float("nan")

    def percentile_s(self, percent: float) -> float:
        rank = min(len(self.latencies_s) - 1, int(len(self.latencies_s) * percent / 100))
        return self.latencies_s[rank] if self.latencies_s else float("nan")
