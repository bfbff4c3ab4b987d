"""Shared state of the parts of a ring core: the own peer, the known peers, the outbox, the timers and the counters."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ringmq.overlay.core.codec import wrap
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.leaf_set import HALF, LeafSet
from ringmq.overlay.core.messages import Message, Peer
from ringmq.overlay.core.routing import RoutingTable
from ringmq.overlay.core.timers import TimerQueue
from ringmq.overlay.core.timing import Timing


@dataclass(slots=True)
class Counters:
    """Events here since the start; each counter only grows."""

    delivered: int = 0
    """Routed messages handed to the application here."""
    forwarded: int = 0
    """Routed messages sent to a next hop."""
    duplicates: int = 0
    """Routed messages that came a second time and were not delivered again."""
    rerouted: int = 0
    """Hops tried again through another peer, because the first did not acknowledge."""
    resent: int = 0
    """Messages routed from here sent again, as no receipt came."""
    undeliverable: int = 0
    """Messages routed from here given up."""
    looped: int = 0
    """Messages dropped after MAX_HOPS hops."""
    overflowed: int = 0
    """Messages dropped because a bounded table was full."""
    suspicions: int = 0
    """Suspicions begun: peers that did not answer when they should have."""
    refuted: int = 0
    """Suspicions that the suspect ended by answering."""
    deaths: int = 0
    """Peers declared dead, here or by others."""
    accusations: int = 0
    """Times that others declared this peer dead."""
    pauses: int = 0
    """Times that this peer found itself stopped for longer than fence_s."""
    joins_granted: int = 0
    """Gaps granted to joining peers."""
    detours: int = 0
    """Detours begun: peers that this one does not hear, though a third peer does."""
    relayed: int = 0
    """Messages passed on for two other peers that do not hear each other."""
    unrelayed: int = 0
    """Messages for others that were not passed on, as nobody had asked for a way, or that could not be read."""

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


class RingContext:
    """One per core. The parts read all of it.

    Each field has one writer: `Ring` sets `now`, the membership `active`, `version`, `leaves` and `table`, and
    `Detours` its own. All parts add to counters, timers and outbox.
    """

    __slots__ = (
        "active", "counters", "detours", "leaves", "me", "now", "outbox", "seq", "table", "timers", "timing",
        "version",
    )  # fmt: skip

    def __init__(self, me: Peer, timing: Timing, half: int = HALF) -> None:
        self.me = me
        self.timing = timing
        self.leaves = LeafSet(me.id, half)
        self.table = RoutingTable(me.id)
        self.timers = TimerQueue()
        self.outbox: list[tuple[Peer, Message]] = []
        self.counters = Counters()
        self.detours: dict[Id, Peer] = {}
        """The peers through which others are reached that do not hear this one."""
        self.active = False
        """Whether this peer serves keys: its whole leaf set knows it."""
        self.now = 0.0
        self.seq = 0
        """The number of the message routed last from here."""
        self.version = 0
        """Grows with every change of the leaf set or of `active`."""

    def set_active(self, active: bool) -> None:
        """Begin or stop serving keys. That changes the answers about ownership, so `version` grows too."""
        # The simulator checks its invariants again only after a new version.
        self.active = active
        self.version += 1

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def post(self, peer: Peer, message: Message) -> None:
        """Send to a peer, on a detour if there is one."""
        if self.detours:
            via = self.detours.get(peer.id)
            if via is not None:
                self.outbox.append((via, wrap(self.me, peer, message)))
                return
        self.outbox.append((peer, message))

    def post_directly(self, peer: Peer, message: Message) -> None:
        self.outbox.append((peer, message))
