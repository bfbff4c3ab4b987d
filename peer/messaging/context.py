"""What the roles of one peer share: who it is, the ring below, the time, what is due, and what it counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

from ringmq.mqtt_front.iteration import Clock, StillClock
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timers import TimerQueue
from ringmq.peer.engines.coordinated.messages import Control, Record
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.engine import NO_DISK, Disk, LocalClients, Overlay
from ringmq.peer.messaging.publication import encode_control, put_together
from ringmq.peer.messaging.tracing import Tracing

ANSWER_WEIGHT: Final = 0.1
"""Of the last answer, among those that tell how long answers take."""
PATIENCE: Final = 3.0
MOST_PATIENCE: Final = 5.0
"""Times the usual time of an answer, and times `ask_s`: so long is waited at first, at most."""


@dataclass(slots=True)
class Counters:
    """What happened here since the start; each only grows."""

    published: int = 0
    came: int = 0
    """Publications of other peers, whatever became of them."""
    sent: int = 0
    """Publications sent to other peers, once for each."""
    received: int = 0
    """Messages of other peers given to the clients here."""
    duplicates: int = 0
    """Messages that came a second time, or after one they should have come before, and were not given out."""
    unwanted: int = 0
    """Messages that no filter here asked for."""
    dropped: int = 0
    """QoS 0 to other peers that found no room, and QoS 0 that waited too long for a list."""
    refused: int = 0
    """QoS 1 and 2 refused for want of room."""
    bypassed: int = 0
    """Sends in a tree that found no room; the next in the tree took the place."""
    resent: int = 0
    """QoS 1 and 2 sent again for want of an acknowledgement."""
    given_up: int = 0
    """QoS 1 and 2 to a peer that are not retried any more: its lease ran out, or it never acknowledged."""
    passed_on: int = 0
    """QoS 1 and 2 for a shared filter that went to another peer with members of it, as the first was given up."""
    silent_publishers: int = 0
    """Subscriptions that came into force without the word of a publisher, whose lease was void by then."""
    leases_lost: int = 0
    """Filters of ours that the coordinator had dropped, because it did not hear from us."""
    expired: int = 0
    """Entries of others dropped here because they were not renewed."""
    reigns: int = 0
    """Places that this peer became the coordinator of."""
    superseded: int = 0
    """Reigns ended by hearing of a higher one."""
    handed_over: int = 0
    """Places forgotten after others had taken all of it."""
    unreadable: int = 0
    """Payloads that could not be decoded."""
    not_retained: int = 0
    """Retained messages given up before their coordinator had them."""

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


class MessagingContext:
    """One per core."""

    __slots__ = (
        "answer_s",
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
        """Called when peers begin to be owed something; more than once does no harm."""
        self.clock_us: Callable[[], int] = clock_us or self._own_us
        """The wall clock in microseconds, for the order of retained messages."""
        self.seq = 0
        """The number of the last message published here."""
        self.hybrid_clock = 0
        """The highest stamp of a retained message seen so far: a hybrid logical clock (Kulkarni et al. 2014)."""
        self.waiting_bytes = 0
        self.local: deque[tuple[Peer, Control]] = deque()
        """Messages that the roles of this peer send to each other."""
        self.disk = disk
        self.answer_s = 0.0
        """How long answers take, of late."""
        self.promised: list[tuple[Peer, Control]] = []
        """Messages that wait for the disk."""
        self.posts: dict[Peer, list[bytes]] = {}
        """Messages that wait for the end of the iteration."""

    @property
    def me(self) -> Peer:
        return self.overlay.me

    def send(self, peer: Peer, message: Control) -> None:
        """With all others for that peer, at the end of the turn."""
        if peer.id == self.overlay.me.id:
            self.local.append((self.overlay.me, message))
        else:
            if not self.posts:
                self.owing()
            self.posts.setdefault(peer, []).append(encode_control(message))

    def flush(self) -> None:
        """The turn has ended. What finds no room is said again in time, like what gets lost."""
        posts, self.posts = self.posts, {}
        for peer, messages in posts.items():
            for payload in put_together(messages):
                self.overlay.send(peer, payload)

    def keep(self, place: str, record: Record) -> None:
        """As `Disk.keep`, to be committed with what else this iteration changes."""
        self.disk.keep(place, record)
        self.owing()

    def leave(self, place: str) -> None:
        self.disk.leave(place)
        self.owing()

    def forget(self, age_s: float) -> None:
        self.disk.forget(age_s)
        self.owing()

    def promise(self, peer: Peer, message: Control) -> None:
        """As `send`, of what says that something is safe here: not before the disk has all that it was told."""
        if self.disk.pending:
            self.owing()
            self.promised.append((peer, message))
        else:
            self.send(peer, message)

    def keep_promises(self) -> None:
        """The disk has it all."""
        promises, self.promised = self.promised, []
        for peer, message in promises:
            self.send(peer, message)

    def route(self, key: Id, message: Control) -> None:
        """To the owner of a key: straight, if there is no doubt who that is, or by way of the ring."""
        owner = self.overlay.owner(key)
        if owner is None:
            self.overlay.route(key, encode_control(message))
        else:
            self.send(owner, message)

    def answered(self, after_s: float) -> None:
        """A question was answered, which had been asked once."""
        self.answer_s += ANSWER_WEIGHT * (after_s - self.answer_s)

    @property
    def ask_s(self) -> float:
        """The first wait for an answer: longer while answers take long, as peers that are late are not quicker when all
        is asked twice."""
        ask_s = self.config.ask_s
        return min(max(ask_s, PATIENCE * self.answer_s), MOST_PATIENCE * ask_s)

    def ask(self, known: Peer | None, key: Id, message: Control) -> None:
        """To the coordinator if it is known, otherwise to whoever owns the key."""
        if known is None:
            self.route(key, message)
        else:
            self.send(known, message)

    def after(self, delay_s: float, then: Callable[[], None]) -> None:
        self.timers.at(self.clock.now + delay_s, _call, then)

    def every(self, period_s: float, then: Callable[[], None]) -> None:
        """From now on."""

        def again() -> None:
            self.after(period_s, again)
            then()

        self.after(period_s, again)

    def stamp(self) -> int:
        """The stamp of a retained message: later than all that this peer has seen, whatever its wall clock says."""
        self.hybrid_clock = max(self.hybrid_clock + 1, self.clock_us())
        return self.hybrid_clock

    def observe(self, stamp: int) -> None:
        """Another peer has given this stamp."""
        if stamp > self.hybrid_clock:
            self.hybrid_clock = stamp

    def _own_us(self) -> int:
        # Without a wall clock (a simulated world) all peers share one clock.
        return int(self.clock.now * 1e6)


def _nothing() -> None:
    """Nobody else acknowledges: the core does, at the end of each call."""


def _call(_: float, then: object) -> None:
    assert callable(then)
    then()
