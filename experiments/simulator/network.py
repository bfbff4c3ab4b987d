"""The simulated network: delay, loss and duplication of messages, which depend on the seed alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf
from random import Random
from typing import Final

from ringmq.overlay.core.ids import Id

DELAYS_S: Final[dict[str, tuple[float, float]]] = {
    "local": (0.00005, 0.0005),
    "lan": (0.001, 0.010),
    "wan": (0.020, 0.100),
}
"""Least and greatest one-way delay between two peers, by timing preset. The papers' testbeds emulate 1 to 10 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Faults and delays of the network. The default network has delays and no faults."""

    delay_s: tuple[float, float] = DELAYS_S["lan"]
    """Range of delays. Each pair of peers has one delay from it, equal in both directions."""
    jitter: float = 0.0
    """Greatest share of its delay that is added to a message, independently, so that messages overtake each other."""
    loss: float = 0.0
    """Share of the messages that are lost, independently."""
    burst_loss: float = 0.0
    """Share of the time in which one direction of a pair loses all messages."""
    burst_s: float = 2.0
    """Mean length of such a burst."""
    duplication: float = 0.0
    """Share of the messages that arrive twice."""
    gap_s: float = 0.0
    """Time between two parcels of a peer, for the work of the sender."""
    uplink_bits_per_s: float = inf
    """Bandwidth of a peer. Sending a parcel takes the time of its bytes, but at least `gap_s`."""
    resets: bool = False
    """Whether the machine of a crashed peer resets its connections, like TCP: linked peers are notified at once, and
    later senders by the answer. Otherwise a crash is silent, like a power failure."""
    connections: bool = False
    """Whether messages travel over connections, which are in order, and hold in a cut what was sent into it. Otherwise
    each message is a datagram, and lost in a cut."""

    @property
    def lossless(self) -> bool:
        return not self.loss and not self.burst_loss

    def takes_s(self, size_bytes: int) -> float:
        """Time that a peer needs to send a parcel of this size."""
        return max(self.gap_s, 8 * size_bytes / self.uplink_bits_per_s)


class Network:
    """Decides the fate of each message: `fates` returns the delays of its arriving copies, none for a lost message."""

    __slots__ = ("_bursts", "_cuts", "_high", "_low", "_random", "_sides", "in_turn", "lost", "weather")

    def __init__(self, weather: Weather, random: Random) -> None:
        self.weather = weather
        self.lost = 0
        self.in_turn = weather.takes_s(1) > 0
        """Whether a parcel waits for the earlier parcels of its sender."""
        self._low, self._high = weather.delay_s
        self._random = random
        self._bursts: dict[tuple[Id, Id], tuple[bool, float]] = {}
        self._sides: dict[Id, int] | None = None
        self._cuts: dict[tuple[Id, Id], float] = {}

    def cut(self, sender: Id, receiver: Id, until: float) -> None:
        """Lose everything in one direction of a pair until a time."""
        self._cuts[sender, receiver] = until

    def split(self, sides: dict[Id, int]) -> None:
        """Let only peers of the same side reach each other, until `heal`. Unnamed peers are on side 0."""
        self._sides = sides

    def heal(self) -> None:
        self._sides = None

    def delay(self, sender: Id, receiver: Id) -> float:
        mixed = sender ^ receiver  # equal in both directions
        share = ((mixed >> 64) ^ mixed & 0xFFFFFFFFFFFFFFFF) / 0x10000000000000000
        return min(self._high, self._low + (self._high - self._low) * share)  # rounding may exceed the range

    def is_cut(self, sender: Id, receiver: Id, now: float) -> bool:
        """Whether everything in this direction is lost now."""
        sides = self._sides
        if sides is not None and sides.get(sender, 0) != sides.get(receiver, 0):
            return True
        return bool(self._cuts) and self._cuts.get((sender, receiver), 0.0) > now

    def segment_delay(self, sender: Id, receiver: Id, again_s: float) -> float:
        """The delay of a segment of a connection, which is sent again after `again_s` if it is lost."""
        weather, delay = self.weather, self.delay(sender, receiver)
        if weather.jitter:
            delay *= 1.0 + weather.jitter * self._random.random()
        while weather.loss and self._random.random() < weather.loss:
            delay += again_s
            again_s *= 2
        return delay

    def fates(self, sender: Id, receiver: Id, now: float) -> tuple[float, ...]:
        weather = self.weather
        if (self._sides is not None or self._cuts) and self.is_cut(sender, receiver, now):
            self.lost += 1
            return ()
        if weather.loss and self._random.random() < weather.loss:
            self.lost += 1
            return ()
        if weather.burst_loss and self._in_burst(sender, receiver, now):
            self.lost += 1
            return ()
        delay = self.delay(sender, receiver)
        if weather.jitter:
            delay *= 1.0 + weather.jitter * self._random.random()
        if weather.duplication and self._random.random() < weather.duplication:
            return (delay, delay * (1.0 + self._random.random()))
        return (delay,)

    def _in_burst(self, sender: Id, receiver: Id, now: float) -> bool:
        """Gilbert's two-state chain in continuous time. Its state is drawn only when a message is sent."""
        share, mean_s = self.weather.burst_loss, self.weather.burst_s
        pair = (sender, receiver)
        bad = share
        known = self._bursts.get(pair)
        if known is not None:
            was_bad, at = known
            # The chain leaves a burst at the rate 1 / mean_s and enters one at share / (1 - share) / mean_s. Its last
            # state decays with the sum of both rates towards the share of bursts.
            memory = exp(-(now - at) / (mean_s * (1.0 - share)))
            bad = share + (float(was_bad) - share) * memory
        is_bad = self._random.random() < bad
        self._bursts[pair] = (is_bad, now)
        return is_bad
