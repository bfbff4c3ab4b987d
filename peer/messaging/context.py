"""State shared by the parts of an engine: identity, ring, clock, timers, messages waiting for the end of an iteration.

Owns the counters. Knows no part of an engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

from ringmq.mqtt_front.iteration import Clock, StillClock
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timers import TimerQueue
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.engine import NO_DISK, Disk, LocalClients, Overlay
from ringmq.peer.messaging.messages import Control
from ringmq.peer.messaging.publication import Publication, encode_control, put_together
from ringmq.peer.messaging.tracing import Tracing
from ringmq.peer.replication.record import SharedRecord

TURN_S: Final = 0.001
"""The pause between two turns of a long work. A timer without a pause would be due in the same iteration."""
ANSWER_WEIGHT: Final = 0.1
"""Weight of the last answer in the smoothed time of answers."""
PATIENCE: Final = 3.0
MOST_PATIENCE: Final = 5.0
"""Bounds of the first wait for an answer: this factor of the smoothed time, and at most this factor of `ask_s`."""


Brought = Callable[[str, bool, Id | None, Publication | None], None]
"""Called with a topic, whether a filter here matches it, and, unless it came by the fast path, with the publisher and
the publication."""
FAR_US: Final = 100 * 366 * 86_400 * 1_000_000
"""How far stamps of others may be ahead of the wall clock here: a century. A peer without a clock of its own starts in
1970, and must believe the others. One stamp near 2^63 would leave no room for later ones, and no message could be
retained any more."""


@dataclass(slots=True)
class Counters:
    """Counters since the start; each only grows."""

    published: int = 0
    came: int = 0
    """Publications of other peers, also dropped ones."""
    sent: int = 0
    """Publications sent to other peers, counted for each peer."""
    received: int = 0
    """Messages of other peers delivered to the clients here."""
    duplicates: int = 0
    """Messages that came a second time, or were overtaken, and were not delivered."""
    unwanted: int = 0
    """Messages that match no filter here."""
    dropped: int = 0
    """QoS 0 to other peers with full links, and QoS 0 that waited too long for routes."""
    refused: int = 0
    """QoS 1 and 2 refused because `max_waiting_bytes` was reached."""
    bypassed: int = 0
    """Sends in a tree to peers with full links; the next peer of the tree took their place."""
    resent: int = 0
    """QoS 1 and 2 sent again because no acknowledgement came."""
    given_up: int = 0
    """QoS 1 and 2 to a peer that are not retried any more: its lease ran out, or it never acknowledged."""
    passed_on: int = 0
    """QoS 1 and 2 for a shared filter that went to another peer with members of it, as the first was given up."""
    silent_peers: int = 0
    """Peers that answered nothing for a while, and that this peer went on without."""
    silent_publishers: int = 0
    """Subscriptions that came into force without the answer of a publisher, whose lease had expired."""
    leases_lost: int = 0
    """Filters of this peer that their coordinator had dropped because they were not renewed."""
    expired: int = 0
    """Entries of other peers dropped here because they were not renewed."""
    forgotten_away: int = 0
    """Lasting entries forgotten here because their peers had been away for too long."""
    reigns: int = 0
    """Partitions that this peer became the coordinator of."""
    superseded: int = 0
    """Epochs ended because another peer had a higher one."""
    handed_over: int = 0
    """Partitions forgotten after their owners had taken them over."""
    unreadable: int = 0
    """Payloads that could not be decoded, or were routed although their kind is not."""
    not_retained: int = 0
    """Retained messages refused, as their partition is full."""
    not_stored: int = 0
    """Retained messages given up before their coordinator had them; their publishers were notified."""
    false_records: int = 0
    """Records of other peers that were dropped: of another partition, with an invalid name, without their home, or from
    a distant future."""
    far_stamps: int = 0
    """Clocks of other peers that are more than a century ahead, and were not followed."""
    false_boots: int = 0
    """Messages that name a boot which their peer cannot have."""
    refused_filters: int = 0
    """Refusals of filters of clients here, as their partition is full; those that are tried again count again."""
    widened: int = 0
    """Wide filters that this peer registered in place of many filters below one parent."""
    narrowed: int = 0
    """Wide filters that were taken back, were refused, or were lost with their coordinator."""
    late_enrolments: int = 0
    """Clients that were served before the registry of client ids had answered."""
    postponed: int = 0
    """Times that the roles of this peer asked each other for so long that the others had to go first."""

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


class MessagingContext:
    """One per engine."""

    __slots__ = (
        "answer_s",
        "brought",
        "clients",
        "clock",
        "clock_us",
        "config",
        "counters",
        "disk",
        "hybrid_clock",
        "local",
        "overlay",
        "owing",
        "posts",
        "promised",
        "seq",
        "timers",
        "tracing",
        "unjoined",
        "waiting_bytes",
    )  # fmt: skip

    def __init__(
        self,
        overlay: Overlay,
        clients: LocalClients,
        config: PubSubConfig,
        disk: Disk = NO_DISK,
        clock: Clock | None = None,
        owing: Callable[[], None] | None = None,
        clock_us: Callable[[], int] | None = None,
    ) -> None:
        self.overlay = overlay
        self.clients = clients
        self.config = config
        self.counters = Counters()
        self.timers = TimerQueue()
        self.tracing = Tracing()
        self.clock: Clock = clock or StillClock()
        self.owing: Callable[[], None] = owing or _nothing
        """Called when acknowledgements become due; calling it more than once does no harm."""
        self.clock_us: Callable[[], int] = clock_us or self._own_us
        """The wall clock in microseconds, for the order of retained messages."""
        self.brought: Brought | None = None
        """Called with each publication that came for clients here, while somebody measures what filters bring."""
        self.seq = 0
        """The number of the last message published here."""
        self.hybrid_clock = 0
        """The highest stamp of a retained message seen so far: a hybrid logical clock (Kulkarni et al. 2014)."""
        self.waiting_bytes = 0
        self.local: deque[tuple[Peer, Control]] = deque()
        """Messages that the roles of this peer send to each other."""
        self.disk = disk
        self.answer_s = 0.0
        """Smoothed time of recent answers."""
        self.promised: list[Callable[[], None]] = []
        """Calls that wait for a commit."""
        self.unjoined = False
        """Whether roles have something to join into items at the end of this iteration."""
        self.posts: dict[Peer, list[bytes]] = {}
        """Messages that wait for the end of the iteration."""

    @property
    def me(self) -> Peer:
        return self.overlay.me

    def find_way(self, peer: Peer) -> None:
        """A peer leaves messages without an answer, and sends nothing else."""
        self.overlay.find_way(peer)

    def send(self, peer: Peer, message: Control) -> None:
        """Send a message at the end of the iteration, in one payload with the others for that peer."""
        if peer.id == self.overlay.me.id:
            # Handled after the present call: no role must change its state within a call of another role.
            self.local.append((self.overlay.me, message))
        else:
            if not self.posts:
                self.owing()
            self.posts.setdefault(peer, []).append(encode_control(message))

    def join_later(self) -> None:
        """A role has something to join into items at the end of this iteration."""
        self.unjoined = True
        self.owing()

    def flush(self) -> None:
        """Send the messages of this iteration. If a link is full they are lost; every request is repeated."""
        posts, self.posts = self.posts, {}
        for peer, messages in posts.items():
            for payload in put_together(messages):
                self.overlay.send(peer, payload)

    def keep(self, topic: str, record: SharedRecord) -> None:
        """Store a record, to be committed at the end of the iteration."""
        self.disk.keep(topic, record)
        self.owing()

    def leave(self, topic: str) -> None:
        self.disk.leave(topic)
        self.owing()

    def keep_entry(self, record: SharedRecord) -> None:
        """Store a lasting entry, to be committed at the end of the iteration."""
        self.disk.keep_entry(record)
        self.owing()

    def leave_entry(self, record: SharedRecord) -> None:
        self.disk.leave_entry(record)
        self.owing()

    def forget(self, age_s: float) -> None:
        self.disk.forget(age_s)
        self.owing()

    def when_safe(self, call: Callable[[], None]) -> None:
        """Make a call after the next commit, if one is pending, or now."""
        if self.disk.pending:
            self.owing()
            self.promised.append(call)
        else:
            call()

    def keep_promises(self) -> None:
        """The disk has committed."""
        promises, self.promised = self.promised, []
        for call in promises:
            call()

    def route(self, key: Id, message: Control) -> None:
        """Send a message to the owner of a key: directly if the leaf set leaves no doubt about it, else by routing."""
        owner = self.overlay.owner(key)
        if owner is None:
            self.overlay.route(key, encode_control(message))
        else:
            self.send(owner, message)

    def answered(self, after_s: float) -> None:
        """A question that was asked once was answered after this time."""
        self.answer_s += ANSWER_WEIGHT * (after_s - self.answer_s)

    @property
    def ask_s(self) -> float:
        """The first wait for an answer. It grows with the time of answers: peers that are late only get later when
        every question is repeated."""
        ask_s = self.config.ask_s
        return min(max(ask_s, PATIENCE * self.answer_s), MOST_PATIENCE * ask_s)

    def after(self, delay_s: float, then: Callable[[], None]) -> None:
        self.timers.at(self.clock.now + delay_s, _call, then)

    def every(self, period_s: float, then: Callable[[], None]) -> None:
        """Make a call periodically, from now on."""

        def again() -> None:
            # The timer is armed before the call, so that an exception in it does not end the period.
            self.after(period_s, again)
            then()

        self.after(period_s, again)

    def add_waiting(self, change: int) -> None:
        """Count bytes of messages that wait here from now on, or do so no more if negative."""
        self.waiting_bytes += change

    def stamp(self) -> int:
        """The stamp of a retained message: later than all that this peer has seen, whatever its wall clock says."""
        self.hybrid_clock = max(self.hybrid_clock + 1, self.clock_us())
        return self.hybrid_clock

    def observe(self, stamp: int) -> None:
        """Another peer has given this stamp."""
        if stamp > self.hybrid_clock:
            if self.is_far(stamp):
                self.counters.far_stamps += 1
            else:
                self.hybrid_clock = stamp

    def is_far(self, stamp: int) -> bool:
        """Whether a stamp is from a future that no clock can be in. It must not be believed."""
        return stamp > self.clock_us() + FAR_US

    def is_far_boot(self, boot: int) -> bool:
        """The same for the boot of a peer, which is a time in ms."""
        return boot > (self.clock_us() + FAR_US) // 1000

    def _own_us(self) -> int:
        # A simulated world has no wall clock; all its peers share this one.
        return int(self.clock.now * 1e6)


def _nothing() -> None:
    """The default for engines that acknowledge by themselves at the end of each call."""


def _call(_: float, then: object) -> None:
    assert callable(then)
    then()
