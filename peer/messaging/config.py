"""The periods and bounds of publish and subscribe that a ring may set, with their trade-offs; presets for networks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ringmq.dispatching.algorithms import Choice, algorithm

MAX_SHADOWS: Final = 8
"""The most copies: with the spare owners that a new coordinator asks, the leaf set still knows all of them for sure."""

DIRECT: Final = Choice("direct")


@dataclass(frozen=True, slots=True, kw_only=True)
class PubSubConfig:
    """Times in seconds. All peers of a ring must use the same times, as both sides of a lease count them."""

    dispatch: Choice = DIRECT
    """How messages reach their subscribers, unless a rule says otherwise. A tree spares the publisher sends and costs
    hops."""
    rules: tuple[tuple[str, Choice], ...] = ()
    """The same for topics that match an MQTT filter. The first match counts."""
    shadows: int = 2
    """Copies of each partition beside the coordinator's. Acknowledged subscriptions survive as many deaths at once."""
    hash_seed: int = 0
    """Seed of the hash of names. All peers of a ring must have the same."""
    lease_s: float = 3.0
    """How long a publisher may trust the routes of a coordinator. It is the bound on staleness: a publisher that fell
    silent delays a SUBACK by at most `void_s`. Longer saves renewals, 3 / lease_s a second for each coordinator."""
    entry_s: float = 15.0
    """How long the entries of a silent subscriber peer last; QoS 1 and 2 to it are retried for this time. Above the
    longest pause that a peer should survive without loss."""
    grace_s: float = 6.0
    """How long a peer that no route leads to any more is still sent what it has not acknowledged, unless its lease ran
    out. It may hold it and not have said so; or a coordinator that has just begun has not heard of it yet. Two
    renewals."""
    ask_s: float = 0.1
    """The first wait for the answer to a routed question, whose route may have led to a peer that has just died;
    doubled each time up to `slow_retry_s`. When a coordinator dies, new subscribers and publishers wait for little
    else."""
    retry_s: float = 0.3
    """The same for a message to a known peer. Above the longest round trip."""
    slow_retry_s: float = 2.0
    doubt_s: float = 0.1
    """How long a peer may leave a request unanswered before it is checked whether it answers at all. A check costs two
    messages. Above the usual round trip."""
    silent_s: float = 0.25
    """How long a peer may leave such a check unanswered before the others go on without it: it is taken out of step as
    a shadow, and succeeded as a coordinator. With `doubt_s` it bounds the wait for one silent peer. Above the longest
    round trip, and above the pauses of a healthy process, or partitions change hands for nothing."""
    steady_s: float = 2.0
    """How long a peer that was silent must answer before it is relied upon again; twice as long each time that it falls
    silent again soon after."""
    give_up_s: float = 60.0
    """A message is neither retried for longer, nor held for longer without routes, whatever the leases say."""
    look_s: float = 1.0
    """The first wait before other peers are reminded of partitions that they should take over, and before the ring is
    looked at again after a refusal."""
    idle_look_s: float = 30.0
    """The longest time between such reminders."""
    tomb_s: float = 60.0
    """How long a tombstone is kept, so that a copy that missed the removal does not bring the record back."""
    cleared_s: float = 86_400.0
    """How long the tombstone of a retained message is kept. A peer that was away for longer may bring the message back
    from its disk."""
    max_cleared: int = 100_000
    """The most tombstones of retained messages, at 50 bytes each; the oldest are forgotten first."""
    idle_s: float = 60.0
    """A topic without publications for this time is forgotten by its publisher, with the partitions that only it
    needed."""
    window: int = 256
    """Unacknowledged messages with QoS 1 or 2 on their way to one peer; those beyond wait here."""
    max_waiting_bytes: int = 64 << 20
    """Bytes of messages here that wait for routes, for a window or for an acknowledgement. Beyond, QoS 0 is dropped,
    and QoS 1 and 2 are refused; both are counted."""
    max_stashed: int = 256
    """Requests that wait at a new coordinator while it collects the records of a partition; beyond, they are referred
    elsewhere, and repeated."""
    max_ahead: int = 512
    """Messages of one publisher that are kept because an earlier one is missing."""
    max_orders: int = 65_536
    """Topics of all publishers for which the last QoS 0 message is remembered; the oldest are forgotten first."""

    def __post_init__(self) -> None:
        if not 0 <= self.shadows <= MAX_SHADOWS:
            raise ValueError(f"shadows must be 0 to {MAX_SHADOWS}, got {self.shadows}")
        for choice in (self.dispatch, *(choice for _, choice in self.rules)):
            algorithm(choice.name)
        if not 0 < self.lease_s <= self.entry_s:
            raise ValueError(f"lease_s must be more than 0 and at most entry_s, got {self.lease_s}")
        # Otherwise leases run out while a successor is still being found.
        if not 0 < self.doubt_s + self.silent_s <= self.lease_s / 3:
            raise ValueError(
                f"doubt_s + silent_s must be more than 0 and at most a third of lease_s ({self.lease_s / 3:g}),"
                f" got {self.doubt_s + self.silent_s:g}"
            )

    @property
    def void_s(self) -> float:
        """How long a coordinator waits for a publisher: its lease, and a tenth more, as clocks drift."""
        return 1.1 * self.lease_s


LAN: Final = PubSubConfig()
LOCAL: Final = LAN
WAN: Final = replace(
    LAN, lease_s=15.0, entry_s=60.0, grace_s=24.0, ask_s=0.5, retry_s=1.0, slow_retry_s=6.0, look_s=3.0,
    doubt_s=0.3, silent_s=0.6, steady_s=10.0,
)  # fmt: skip
PRESETS: Final[dict[str, PubSubConfig]] = {"local": LOCAL, "lan": LAN, "wan": WAN}
