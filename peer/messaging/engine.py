"""The contract between a dissemination engine and the rest of a peer: its calls, and the objects it is given.

An engine finds the subscribers of a topic on other peers and delivers to them. `EngineAdapter` and the simulator drive
every engine through `Engine` alone, so a further engine needs no change there. Nothing in here has state.

Calls are plain: an engine has no socket, task, clock or random number. Its owner sets the clock before each call, calls
`tick` when `timers.next_at` has come, and calls `acknowledge` after `owing` was called and all journals have committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.iteration import Clock
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timers import TimerQueue
from ringmq.peer.messaging.publication import Publication, Trace
from ringmq.peer.messaging.tracing import Tracing


class Overlay(Protocol):
    """The ring, as an engine sees it."""

    @property
    def me(self) -> Peer: ...
    @property
    def active(self) -> bool: ...
    @property
    def leaves(self) -> Sequence[Peer]:
        """The leaf set: the nearest peers of both sides, without this peer."""

    @property
    def sees_all(self) -> bool:
        """Whether the leaf set has all other peers of the ring."""

    def send(self, peer: Peer, payload: bytes) -> bool:
        """Send once to a peer whose address is known. False: nothing was queued."""

    def route(self, key: Id, payload: bytes) -> bool:
        """Send to the owner of a key. False: try later."""

    # The link to a paused peer stays open and takes everything, so a tree asks this before it relies on the peer.
    def doubts(self, peer: Peer) -> bool:
        """Whether a peer is silent or dead as far as this peer knows. `send` may still accept payloads for it."""

    # The network may be cut between two peers alone. The ring would find it later: it waits for TCP.
    def find_way(self, peer: Peer) -> None:
        """A peer leaves messages without an answer, and sends nothing else: go around, if another peer hears it."""

    def owner(self, key: Id) -> Peer | None:
        """The owner of a key, which may be this peer. None: the leaf set leaves a doubt."""

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        """The peers nearest to a key; from now on `owners_changed` is called when they change."""

    def unwatch(self, key: Id) -> None: ...

    # The owners of 100,000 keys may change at once, and `owners_changed` is then called for some keys at a time. A
    # request for one of the others needs the present owners: with the earlier owners, a peer that was left alone sent
    # its own requests to itself for ever.
    def news(self, key: Id) -> tuple[Peer, ...] | None:
        """Owners of a watched key for which `owners_changed` is due; that call is cancelled. None: nothing is due."""


class LocalClients(Protocol):
    """The MQTT clients of this peer: receivers of messages from other peers."""

    def deliver(self, publication: Publication) -> int:
        """Deliver to unshared subscriptions if `plain` is set, and to one member of each group in `shared`. Returns
        the number of receivers."""

    def deliver_fast(self, topic: bytes, body: bytes) -> bool | None:
        """Deliver a message of the fast path: whether a client here wants it. None: these clients need the general
        path, and nothing was done."""

    def retained(self, topic: str, body: bytes) -> None:
        """Set the retained message of a topic for later subscribers; an empty body removes it."""


class Disk(Protocol):
    """Storage for the records that this peer keeps for others. A record is safe after the next commit, which the shell
    makes."""

    @property
    def pending(self) -> bool:
        """Whether there is something to commit."""

    def keep(self, topic: str, record: Any) -> None:
        """Store the retained message of a topic, or its removal."""

    def leave(self, topic: str) -> None:
        """Remove the retained message of a topic. A tombstone stays."""

    def keep_entry(self, record: Any) -> None:
        """Store a lasting entry: of a home that is there, or away."""

    def leave_entry(self, record: Any) -> None:
        """Remove a lasting entry, without a trace."""

    def forget(self, age_s: float) -> None:
        """Remove tombstones of retained messages that are at least this old."""


class NoDisk:
    """The storage of a peer that keeps everything in memory."""

    pending = False

    def keep(self, topic: str, record: Any) -> None: ...
    def leave(self, topic: str) -> None: ...
    def keep_entry(self, record: Any) -> None: ...
    def leave_entry(self, record: Any) -> None: ...
    def forget(self, age_s: float) -> None: ...


NO_DISK: Final = NoDisk()


class Counted(Protocol):
    """Counters of an engine; each only grows."""

    came: int
    sent: int
    dropped: int
    not_retained: int
    refused_filters: int

    def as_dict(self) -> dict[str, int]: ...


class EngineLoad(NamedTuple):
    """Sizes for a sample of a peer; cheap to read, whatever the number of topics."""

    topics: int
    """Topics that are published to from here, without the topic of the peer's own log."""
    publishing: int
    """The same with it."""
    filters: int
    waiting_bytes: int
    """Bytes of messages that wait for routes, for room or for an acknowledgement."""
    unacknowledged: int
    """Messages with QoS 1 and 2 that another peer has not acknowledged."""


class Engine(Protocol):
    """One per peer."""

    clients: LocalClients
    """Set it before any other call."""

    @property
    def kind(self) -> str:
        """Its name in a status, and the prefix of its counters."""

    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> TimerQueue: ...
    @property
    def tracing(self) -> Tracing: ...
    @property
    def counters(self) -> Counted: ...

    def serves(self, topic_filter: str) -> bool:
        """Whether clients can subscribe to a filter."""

    def publish(
        self,
        topic: str,
        body: bytes,
        qos: int,
        matched: bool = False,
        retain: bool = False,
        clears: bool = False,
        done: Done | None = None,
        trace: Trace | None = None,
    ) -> int:
        """Send a message to all subscribers on other peers, and to one member of each shared filter anywhere.

        `matched` says whether a client here has it already. `done` is called once: with QoS 1 and 2 when all receivers
        hold the message, with QoS 0 when it is sent. With a `trace` every peer that receives the message records it.
        Returns its sequence number.
        """

    def publish_fast(self, topic: str, body: bytes) -> bool:
        """The same for a message of the fast path (`fast_path.py`). False: nothing was done, call `publish`."""

    def subscribe(self, topic_filter: str, done: Done, lasting: bool = False, restored: bool = False) -> None:
        """Clients here want a filter. `done` is called when it is in force, or refused. A refused filter is tried again
        from time to time until `unsubscribe` is called. `lasting`: a session that outlives this process has it with QoS
        1 or 2; the call is repeated when that changes. `restored`: a session of an earlier process has it."""

    def unsubscribe(self, topic_filter: str) -> None: ...
    def is_refused(self, topic_filter: str) -> bool:
        """Whether a filter is not in force, as there was no room for it."""

    def deliver(self, origin: Peer, payload: bytes) -> None:
        """A payload was routed here. The origin is what the payload says, and nobody has checked that."""

    def receive(self, sender: Peer, payload: bytes) -> None:
        """A payload of another peer, over its link."""

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        """A routed payload passes through this peer. False: the engine has taken it off its way."""

    # Without this call, every message in a tree would dial a dead peer again and be lost to all peers below it, until
    # the lease of the dead peer has run out.
    def unsent(self, payload: bytes) -> None:
        """A payload that `Overlay.send` had accepted could not be sent."""

    def link_lost(self, peer: Peer) -> None:
        """The link to a peer broke, or the ring suspects the peer."""

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None: ...
    def leaves_changed(self) -> None: ...
    def activity_changed(self, active: bool) -> None: ...

    @property
    def owes(self) -> bool:
        """Whether other peers wait for an acknowledgement, or the disk for a commit."""

    def acknowledge(self) -> None:
        """All journals have committed: send the acknowledgements."""

    # A death may make 100,000 calls due at once. A peer that did all in one call would itself be taken for dead.
    def tick(self) -> None:
        """Do what is due by now. If much is due, some of it remains, and the next deadline stays in the past."""

    def status(self, now: float, counted: Mapping[str, int]) -> dict[str, Any]:
        """A JSON-able snapshot. `counted` has further counters, of the shell."""

    def topic_status(self, topic: str, towards: Callable[[Id], Peer | None]) -> dict[str, Any] | None:
        """A JSON-able description of one topic. `towards` gives the next hop to a key, None if this peer is the
        nearest. None: the topic is invalid, or the engine knows nothing about single topics."""

    def load(self, own_topic: str) -> EngineLoad: ...

    def partitions(self) -> tuple[int, int]:
        """Numbers of partitions with records, or of trees, that this peer coordinates, and that it has copies of.
        Visits all of them."""
