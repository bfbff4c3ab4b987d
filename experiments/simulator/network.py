"""The simulated network: how long a message takes, and whether it arrives at all, by seed and nothing else."""

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
"""One-way delay between two peers, from and to, for each timing preset; the papers' testbeds emulate 1 to 10 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What the network does to messages. The default is perfect but for its delays."""

    delay_s: tuple[float, float] = DELAYS_S["lan"]
    """Each pair of peers has one delay out of this range, the same in both directions."""
    jitter: float = 0.0
    """Up to this share of its delay is added to each message by itself, which lets them overtake each other."""
    loss: float = 0.0
    """The share of messages lost, each by itself."""
    burst_loss: float = 0.0
    """The share of time in which one direction of a pair loses everything."""
    burst_s: float = 2.0
    """The mean length of such a time."""
    duplication: float = 0.0
    """The share of messages that arrive twice."""
    gap_s: float = 0.0
    """The parcels of one peer leave one after the other, each so long after the one before: the sender's work."""
    uplink_bits_per_s: float = inf
    """What a peer can send. A parcel takes as long as its bytes, if that is more than `gap_s`."""
    resets: bool = False
    """Whether the machine of a crashed peer answers for it, as TCP does: who sends to it is told, and who was linked
    to it at once. Otherwise a crash is silent, as when the power fails."""

    @property
    def lossless(self) -> bool:
        return not self.loss and not self.burst_loss

    def takes_s(self, size_bytes: int) -> float:
        """How long a peer is busy with sending so much."""
        return max(self.gap_s, 8 * size_bytes / self.uplink_bits_per_s)


class Network:
    """Decides the fate of each message: `fates` gives the delays after which copies of it arrive."""

    __slots__ = ("_bursts", "_high", "_low", "_random", "_sides", "in_turn", "lost", "weather")

    def __init__(self, weather: Weather, random: Random) -> None:
        self.weather = weather
        self.lost = 0
        self.in_turn = weather.takes_s(1) > 0
        """Whether the parcels of a peer have to wait for each other."""
        self._low, self._high = weather.delay_s
        self._random = random
        self._bursts: dict[tuple[Id, Id], tuple[bool, float]] = {}
        self._sides: dict[Id, int] | None = None

    def split(self, sides: dict[Id, int]) -> None:
        """From now on only peers of the same side reach each other; one that is not named is on side 0."""
        self._sides = sides

    def heal(self) -> None:
        self._sides = None

    def delay(self, one: Id, other: Id) -> float:
        mixed = one ^ other
        share = ((mixed >> 64) ^ mixed & 0xFFFFFFFFFFFFFFFF) / 0x10000000000000000
        return min(self._high, self._low + (self._high - self._low) * share)  # the sum may be rounded up

    def fates(self, sender: Id, receiver: Id, now: float) -> tuple[float, ...]:
        weather = self.weather
        sides = self._sides
        if sides is not None and sides.get(sender, 0) != sides.get(receiver, 0):
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
        """Gilbert's two-state chain in continuous time, advanced only when a message looks at it."""
        share, mean_s = self.weather.burst_loss, self.weather.burst_s
        pair = (sender, receiver)
        bad = share
        known = self._bursts.get(pair)
        if known is not None:
            was_bad, at = known
            memory = exp(-(now - at) / (mean_s * (1.0 - share)))
            bad = share + (float(was_bad) - share) * memory
        is_bad = self._random.random() < bad
        self._bursts[pair] = (is_bad, now)
        return is_bad
