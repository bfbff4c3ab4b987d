"""The publisher: keeps the addresses of roots, and sends to them what its clients publish.

A topic's subscribers may be in the trees of the topic itself and of all its literal prefixes. A root says that it is
one, and whether anybody is there, for `trust_s`; the publisher asks again in time while the topic is in use. If there
is no answer, or a refusal, it asks the ring, and what the old root did not report as reached goes to the new one.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf
from typing import Final

from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.publisher import PendingPublication
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.engines.scribe.context import MOST_AT_ONCE, TreeContext
from ringmq.peer.engines.scribe.messages import Here, Where
from ringmq.peer.engines.scribe.multicast import Spread
from ringmq.peer.engines.scribe.send_window import Carrier
from ringmq.peer.messaging.partitions import is_wild, key_of_place, places_of
from ringmq.peer.messaging.publication import Publication

RENEWALS: Final = 3
"""In the time of trust."""


class Root:
    """The root of one place, as far as this publisher knows."""

    __slots__ = ("asking", "empty", "flying", "peer", "place", "queue", "until", "used_at")

    def __init__(self, place: str) -> None:
        self.place = place
        self.peer: Peer | None = None
        self.empty = False
        self.until = -inf
        """Until when that can be trusted."""
        self.asking = False
        self.used_at = 0.0
        self.queue: deque[PendingPublication] = deque()
        """What waits for the root to be known, in order."""
        self.flying: dict[int, PendingPublication] = {}
        """What the root has not reported as reached, in order."""

    @property
    def busy(self) -> bool:
        return bool(self.queue or self.flying)


class ScribePublisher:
    """One per core. Call `renew` RENEWALS times in `trust_s`."""

    __slots__ = ("_carrier", "_roots", "_spread", "_state")

    def __init__(self, state: TreeContext, carrier: Carrier, spread: Spread) -> None:
        self._state = state
        self._carrier = carrier
        self._spread = spread
        self._roots: dict[str, Root] = {}

    def __len__(self) -> int:
        """Places whose roots it keeps."""
        return len(self._roots)

    @property
    def topics(self) -> list[str]:
        """Those of the places that are topics."""
        return [place for place in self._roots if not is_wild(place)]

    @property
    def waiting(self) -> int:
        """Messages not yet reported as reached, once for each place."""
        return sum(len(root.queue) + len(root.flying) for root in self._roots.values())

    def stamp(self) -> int:
        return self._state.tick_clock(self._state.clock_us())

    def publish(self, publication: Publication, matched: bool, done: Done | None) -> None:
        state = self._state
        outgoing = PendingPublication(publication, matched, done, state.clock.now)
        if state.waiting_bytes + len(publication.body) > state.config.max_waiting_bytes:
            if publication.qos:
                state.counters.refused += 1
            else:
                state.counters.dropped += 1
            state.tracing.ends(state.me, publication, SCRIBE)
            _fail(outgoing)
            return
        places = places_of(publication.topic)
        outgoing.undecided = len(places)
        for place in places:
            self._to(place, outgoing)
        outgoing.got()

    def _decided(self, outgoing: PendingPublication) -> None:
        """It was sent to one root more, or will not be: at the last one it is known to how many."""
        outgoing.undecided -= 1
        if not outgoing.undecided:
            self._state.tracing.ends(self._state.me, outgoing.publication, SCRIBE)

    def _to(self, place: str, outgoing: PendingPublication) -> None:
        root = self._roots.get(place)
        if root is None:
            root = self._roots[place] = Root(place)
        root.used_at = self._state.clock.now
        outgoing.missing += 1
        if root.peer is not None and root.until > self._state.clock.now and not root.queue:
            self._send(root, outgoing)
            self._decided(outgoing)
            return
        self._state.waiting_bytes += len(outgoing.publication.body)
        root.queue.append(outgoing)
        self._resolve(root)

    def _send(self, root: Root, outgoing: PendingPublication) -> None:
        assert root.peer is not None, "the root must be known"
        publication, me = outgoing.publication, self._state.me
        if root.empty and not (publication.retain and publication.topic == root.place):
            outgoing.got()
            return
        if root.peer.id == me.id:
            self._send_here(root, outgoing)
            return
        parcel = self._carrier.pack(root.place, me, True, publication)
        if publication.trace is not None:
            publication.trace.sends += 1
        if not publication.qos:
            self._carrier.send_once([root.peer], parcel)
            outgoing.matched = outgoing.matched or not root.empty
            outgoing.got()
            return
        number = parcel.envelope.seq
        root.flying[number] = outgoing
        self._carrier.send(root.peer, parcel, partial(self._reached, root, number))

    def _send_here(self, root: Root, outgoing: PendingPublication) -> None:
        """This peer is the root itself, or was."""
        state, publication = self._state, outgoing.publication
        state.hops += 1
        number = state.hops
        root.flying[number] = outgoing
        then = partial(self._reached, root, number)
        if not self._spread.from_publisher(root.place, state.me, publication, then):
            self._forget(root)
        elif not publication.qos:
            then(True)

    def _reached(self, root: Root, number: int, matched: bool) -> None:
        outgoing = root.flying.pop(number, None)
        if outgoing is not None:
            outgoing.matched = outgoing.matched or matched
            outgoing.got()

    # Who the root is

    def _forget(self, root: Root) -> None:
        """What was believed of it is wrong. What it has not reported goes to whoever is found."""
        if root.peer is not None:
            self._carrier.withdraw(root.peer.id, root.place)
        root.peer, root.until = None, -inf
        self._resolve(root)

    def _resolve(self, root: Root) -> None:
        if not root.asking:
            root.asking = True
            self._ask(root, self._state.config.retry_s)

    def _ask(self, root: Root, wait_s: float) -> None:
        """Ask the ring, and again until there is an answer."""
        state = self._state
        if root.asking and self._roots.get(root.place) is root:
            state.tell_owner(key_of_place(root.place), Where((root.place,), state.clock.now))
            longer_s = min(2 * wait_s, state.config.slow_retry_s)
            state.after(wait_s, lambda: self._ask(root, longer_s))

    def here(self, sender: Peer, message: Here) -> None:
        self._state.hybrid_clock = max(self._state.hybrid_clock, message.clock)
        for item in message.items:
            root = self._roots.get(item.place)
            until = message.asked_at + self._state.trees.trust_s
            if root is None or until < root.until or until <= self._state.clock.now:
                continue
            root.until, root.empty, root.asking = until, item.empty, False
            if root.peer is None or root.peer.id != sender.id or root.peer.boot != sender.boot:
                self._turn_to(root, sender)
            self._drain(root)

    def _turn_to(self, root: Root, peer: Peer) -> None:
        if root.peer is not None:
            self._carrier.withdraw(root.peer.id, root.place)
        root.peer = peer
        flying, root.flying = root.flying, {}
        for outgoing in flying.values():
            self._state.counters.resent += 1
            self._send(root, outgoing)

    def _drain(self, root: Root) -> None:
        while root.queue and root.peer is not None:
            outgoing = root.queue.popleft()
            self._state.waiting_bytes -= len(outgoing.publication.body)
            self._send(root, outgoing)
            self._decided(outgoing)

    def gone(self, sender: Peer, places: tuple[str, ...]) -> None:
        """It is not the root of these."""
        for place in places:
            root = self._roots.get(place)
            if root is not None and root.peer is not None and root.peer.id == sender.id:
                self._forget(root)

    def lost(self, peer: Peer) -> None:
        """The ring suspects this peer: ask who is the root, but believe it still."""
        for root in list(self._roots.values()):
            if root.peer is not None and root.peer.id == peer.id:
                root.until = -inf
                self._resolve(root)

    # Time

    def renew(self) -> None:
        """Ask the roots in use whether they still are; forget the others, and what waits too long."""
        state, config = self._state, self._state.config
        batches: dict[Peer, list[str]] = {}
        for root in list(self._roots.values()):
            self._give_up(root)
            if root.used_at + config.idle_s < state.clock.now and not root.busy:
                del self._roots[root.place]
            elif root.peer is None or root.until <= state.clock.now:
                self._resolve(root)
            else:
                batches.setdefault(root.peer, []).append(root.place)
        for peer, places in batches.items():
            for start in range(0, len(places), MOST_AT_ONCE):
                state.tell(peer, Where(tuple(places[start : start + MOST_AT_ONCE]), state.clock.now))

    def _give_up(self, root: Root) -> None:
        before = self._state.clock.now - self._state.config.give_up_s
        while root.queue and root.queue[0].at < before:
            outgoing = root.queue.popleft()
            self._state.waiting_bytes -= len(outgoing.publication.body)
            self._state.counters.given_up += 1
            self._decided(outgoing)
            _fail(outgoing)
        late = [number for number, outgoing in root.flying.items() if outgoing.at < before]
        if late and root.peer is not None:
            self._carrier.withdraw(root.peer.id, root.place)
        for number in late:
            self._state.counters.given_up += 1
            _fail(root.flying.pop(number))
        if late and root.peer is not None:
            self._turn_to(root, root.peer)


def _fail(outgoing: PendingPublication) -> None:
    """Tell its client that it cannot be brought to everybody."""
    done, outgoing.done = outgoing.done, None
    if done is not None:
        done(Reason.QUOTA_EXCEEDED)
