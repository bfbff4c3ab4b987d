"""The publisher of Scribe: caches the addresses of roots, and sends the publications of its clients to them.

A topic's subscribers may be in the trees of the topic itself and of all its literal prefixes. The answer of a root, and
whether its tree is empty, is valid for `trust_s`; while the topic is in use the publisher asks again in time. Without
an answer, or after a refusal, it asks the ring, and sends the publications that the old root did not report to the new
one.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf
from typing import Final

from ringmq.mqtt_front.cluster import Done
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.engines.scribe.context import MOST_AT_ONCE, TreeContext
from ringmq.peer.engines.scribe.messages import RootQuery, RootReply
from ringmq.peer.engines.scribe.multicast import Spread
from ringmq.peer.engines.scribe.places import is_wild, key_of_place, places_of
from ringmq.peer.engines.scribe.send_window import Carrier
from ringmq.peer.messaging.pending import PendingPublication
from ringmq.peer.messaging.publication import Publication

RENEWALS: Final = 3
"""Renewals of trust within `trust_s`."""


class Root:
    """The root of one place, as far as this publisher knows, and the publications to it."""

    __slots__ = ("asking", "empty", "in_flight", "peer", "place", "queue", "until", "used_at")

    def __init__(self, place: str, now: float) -> None:
        self.place = place
        self.peer: Peer | None = None
        self.empty = False
        """Whether nobody is in its tree."""
        self.until = -inf
        """Peer and emptiness can be trusted until then."""
        self.asking = False
        self.used_at = now
        self.queue: deque[PendingPublication] = deque()
        """Publications that wait until the root is known, in order."""
        self.in_flight: dict[int, PendingPublication] = {}
        """Publications that the root has not reported as reached, in order."""

    @property
    def busy(self) -> bool:
        return bool(self.queue or self.in_flight)

    def is_at(self, peer: Peer) -> bool:
        return self.peer is not None and self.peer.id == peer.id

    def known(self, now: float) -> bool:
        return self.peer is not None and self.until > now

    def ask(self) -> bool:
        """Its peer must be found: whether that had not begun yet."""
        begins, self.asking = not self.asking, True
        return begins

    def doubt(self) -> None:
        """It may be dead: it must confirm that it is the root."""
        self.until = -inf

    def forget(self) -> None:
        """Another peer is the root, which is not known yet."""
        self.peer, self.until = None, -inf

    def found(self, until: float, empty: bool, now: float) -> bool:
        """A peer says that it is the root: whether that is news."""
        # Answers may overtake each other, also answers of two roots: the answer to the latest question counts.
        if until < self.until or until <= now:
            return False
        self.until, self.empty, self.asking = until, empty, False
        return True

    def turn_to(self, peer: Peer) -> list[PendingPublication]:
        """This peer is the root now: returns the publications that its predecessor has not reported."""
        self.peer = peer
        unreported = list(self.in_flight.values())
        self.in_flight = {}
        return unreported

    def take(self, now: float) -> bool:
        """A publication to it begins: whether it can be sent, as its peer is known and none waits before."""
        self.used_at = now
        return self.known(now) and not self.queue

    def hold(self, outgoing: PendingPublication) -> None:
        self.queue.append(outgoing)

    def release(self) -> PendingPublication:
        """The publication that has waited longest; it is not waiting any more."""
        return self.queue.popleft()

    def launch(self, number: int, outgoing: PendingPublication) -> None:
        self.in_flight[number] = outgoing

    def reached(self, number: int) -> PendingPublication | None:
        """It has reported a publication, or is not waited for any more."""
        return self.in_flight.pop(number, None)

    def late(self, before: float) -> list[PendingPublication]:
        """Remove the publications in flight that are older than this."""
        numbers = [number for number, outgoing in self.in_flight.items() if outgoing.at < before]
        return [self.in_flight.pop(number) for number in numbers]


class ScribePublisher:
    """One per engine. Call `renew` RENEWALS times in `trust_s`."""

    __slots__ = ("_carrier", "_roots", "_spread", "_state")

    def __init__(self, state: TreeContext, carrier: Carrier, spread: Spread) -> None:
        self._state = state
        self._carrier = carrier
        self._spread = spread
        self._roots: dict[str, Root] = {}

    def __len__(self) -> int:
        """Places whose roots are known or being looked for."""
        return len(self._roots)

    @property
    def topics(self) -> list[str]:
        """The topics among the places."""
        return [place for place in self._roots if not is_wild(place)]

    @property
    def waiting(self) -> int:
        """Messages not yet reported as reached, once for each place."""
        return sum(len(root.queue) + len(root.in_flight) for root in self._roots.values())

    def publish(self, publication: Publication, matched: bool, done: Done | None) -> None:
        state = self._state
        outgoing = PendingPublication(publication, matched, done, state.clock.now)
        if state.waiting_bytes + len(publication.body) > state.config.max_waiting_bytes:
            if publication.qos:
                state.counters.refused += 1
            else:
                state.counters.dropped += 1
            state.tracing.ends(state.me, publication, SCRIBE)
            outgoing.fail()
            return
        places = places_of(publication.topic)
        outgoing.begin_deciding(len(places))
        for place in places:
            self._to(place, outgoing)
        outgoing.got()

    def _decided(self, outgoing: PendingPublication) -> None:
        """It was sent to one more root, or will not be."""
        if outgoing.decided():
            self._state.tracing.ends(self._state.me, outgoing.publication, SCRIBE)

    def _to(self, place: str, outgoing: PendingPublication) -> None:
        root = self._roots.get(place)
        if root is None:
            root = self._roots[place] = Root(place, self._state.clock.now)
        outgoing.expect(1)
        if root.take(self._state.clock.now):
            self._send(root, outgoing)
            self._decided(outgoing)
            return
        self._state.add_waiting(len(outgoing.publication.body))
        root.hold(outgoing)
        self._resolve(root)

    def _send(self, root: Root, outgoing: PendingPublication) -> None:
        assert root.peer is not None, "the root must be known"
        publication, me = outgoing.publication, self._state.me
        # The root of its topic keeps a retained message, even if its tree is empty.
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
            # QoS 0 has no report, so the last answer of the root decides whether a filter matches.
            outgoing.got(matched=not root.empty)
            return
        number = parcel.envelope.seq
        root.launch(number, outgoing)
        self._carrier.send(root.peer, parcel, partial(self._reached, root, number))

    def _send_here(self, root: Root, outgoing: PendingPublication) -> None:
        """This peer is the root itself, or was."""
        state, publication = self._state, outgoing.publication
        # `then` may still be called when another peer is the root: its number must not be the number of an envelope.
        number = state.next_hop()
        # `from_publisher` itself may call `then`: the message must be in flight before.
        root.launch(number, outgoing)
        then = partial(self._reached, root, number)
        if not self._spread.from_publisher(root.place, state.me, publication, then):
            self._forget(root)
        elif not publication.qos:
            then(True)

    def _reached(self, root: Root, number: int, matched: bool) -> None:
        outgoing = root.reached(number)
        if outgoing is not None:
            outgoing.got(matched)

    def _forget(self, root: Root) -> None:
        """The publications that it has not reported go to the root that is found."""
        if root.peer is not None:
            self._carrier.withdraw(root.peer.id, root.place)
        root.forget()
        self._resolve(root)

    def _resolve(self, root: Root) -> None:
        if root.ask():
            self._ask(root, self._state.config.retry_s)

    def _ask(self, root: Root, wait_s: float) -> None:
        """Ask the ring, and again until there is an answer."""
        state = self._state
        if root.asking and self._roots.get(root.place) is root:
            state.tell_owner(key_of_place(root.place), RootQuery((root.place,), state.clock.now))
            longer_s = min(2 * wait_s, state.config.slow_retry_s)
            state.after(wait_s, lambda: self._ask(root, longer_s))

    def here(self, sender: Peer, message: RootReply) -> None:
        self._state.observe(message.clock)
        for item in message.items:
            root = self._roots.get(item.place)
            # Trust counts from the question, and the root's `void_s` from its later answer. So the publisher's trust
            # ends first, without a common clock.
            until = message.asked_at + self._state.trees.trust_s
            if root is None or not root.found(until, item.empty, self._state.clock.now):
                continue
            # A root that has restarted has forgotten the messages in flight: they do not wait until they are overdue.
            if root.peer is None or root.peer.id != sender.id or root.peer.boot != sender.boot:
                self._turn_to(root, sender)
            # The queue follows the messages in flight, which were published before: the order of the publisher stays.
            self._drain(root)

    def _turn_to(self, root: Root, peer: Peer) -> None:
        if root.peer is not None:
            self._carrier.withdraw(root.peer.id, root.place)
        for outgoing in root.turn_to(peer):
            self._state.counters.resent += 1
            self._send(root, outgoing)

    def _drain(self, root: Root) -> None:
        while root.queue and root.peer is not None:
            outgoing = root.release()
            self._state.add_waiting(-len(outgoing.publication.body))
            self._send(root, outgoing)
            self._decided(outgoing)

    def gone(self, sender: Peer, places: tuple[str, ...]) -> None:
        """A peer is not the root of these places."""
        for place in places:
            root = self._roots.get(place)
            if root is not None and root.is_at(sender):
                self._forget(root)

    def lost(self, peer: Peer) -> None:
        """The ring suspects a peer: look for the root of its places, but keep sending to it until another is found."""
        for root in list(self._roots.values()):
            # Messages in flight are not withdrawn: if the suspicion is wrong, none is sent twice.
            if root.is_at(peer):
                root.doubt()
                self._resolve(root)

    def renew(self) -> None:
        """Ask the roots in use whether they still are roots; forget the others, and messages that wait too long."""
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
                state.tell(peer, RootQuery(tuple(places[start : start + MOST_AT_ONCE]), state.clock.now))

    def _give_up(self, root: Root) -> None:
        before = self._state.clock.now - self._state.config.give_up_s
        while root.queue and root.queue[0].at < before:
            outgoing = root.release()
            self._state.add_waiting(-len(outgoing.publication.body))
            self._state.counters.given_up += 1
            self._decided(outgoing)
            outgoing.fail()
        late = root.late(before)
        if late and root.peer is not None:
            self._carrier.withdraw(root.peer.id, root.place)
        for outgoing in late:
            self._state.counters.given_up += 1
            outgoing.fail()
        # `withdraw` has removed the younger publications too: they are sent again.
        if late and root.peer is not None:
            self._turn_to(root, root.peer)
