"""Messages through trees: the first sends of a publisher and the forwarding by each receiver, planned by `dispatching`.

A part travels with the message, with the numbers that it bears for each peer of the part. A peer that cannot be sent to
is bypassed: the next of its part takes its place (`dispatching.plan.bypass`), at once, or when no link to it could be
opened. One that is silent gets the message last of its run. With QoS 1 and 2 whoever missed it for another reason is
sent it directly later, by its publisher.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ringmq.dispatching import direct
from ringmq.dispatching.algorithms import ALGORITHMS
from ringmq.dispatching.plan import Hop, bypass
from ringmq.overlay.core.ids import key_of
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.publication import Leaf, Publication, Relay, head_of, tail_of


class TreeRelay:
    """One per engine."""

    __slots__ = ("_state",)

    def __init__(self, state: MessagingContext) -> None:
        self._state = state

    def begin(self, publication: Publication, tail: bytes, leaves: list[Leaf], name: str, fanout: int) -> int:
        """The publisher's sends; how many. The leaves are sorted by id; the tree is turned by the topic."""
        me = self._state.me
        # An offset by topic spreads the work of forwarding, and keeps one path within a topic, which preserves the
        # order.
        hops = ALGORITHMS[name].first_hops(me.id, leaves, fanout, key_of(publication.topic))
        return self._send(hops, publication, tail, Relay(me, name, fanout, ()))

    def pass_on(self, publication: Publication) -> Peer:
        """A receiver's sends, of every copy that comes. Returns where the message is from."""
        relay = publication.relay
        assert relay is not None, "only messages that came through a tree are passed on"
        # A second copy may have a larger part (`dispatching.plan.bypass`), so duplicates are passed on too.
        if relay.part:
            # The name comes from another peer; the subscribers of the part must get the message even if it is unknown
            # here.
            planner = ALGORITHMS.get(relay.name, direct)
            hops = planner.next_hops(relay.part, relay.fanout)
            sent = self._send(hops, publication.onward(), tail_of(publication), relay)
            if publication.trace is not None:
                publication.trace.sends = sent
        return relay.origin

    def go_around(self, publication: Publication, relay: Relay) -> None:
        """It was sent from here and has not reached the peer that should pass it on: no link could be opened."""
        self._state.counters.bypassed += 1
        if relay.part:
            self._send((Hop(relay.part[0], relay.part[1:]),), publication, tail_of(publication), relay)

    def _by_those_who_live(self, hop: Hop[Leaf]) -> Hop[Leaf]:
        """The same run with the silent peers at its end, where no peer waits for them to forward. They may live."""
        doubts = self._state.overlay.doubts
        if not doubts(hop.to.peer):
            return hop
        run = (hop.to, *hop.part)
        live = [leaf for leaf in run if not doubts(leaf.peer)]
        if not live:
            return hop
        return Hop(live[0], (*live[1:], *[leaf for leaf in run if doubts(leaf.peer)]))

    def _send(self, hops: Iterable[Hop[Leaf]], publication: Publication, tail: bytes, relay: Relay) -> int:
        state, sent = self._state, 0
        for first in hops:
            hop: Hop[Leaf] | None = first
            while hop is not None:
                hop = self._by_those_who_live(hop)
                leaf = hop.to
                onward = Relay(relay.origin, relay.name, relay.fanout, hop.part)
                head = head_of(replace(publication, number=leaf.number, base=leaf.base, relay=onward))
                if state.overlay.send(leaf.peer, head + tail):
                    sent += 1
                    break
                state.counters.bypassed += 1
                hop = bypass(hop)
        state.counters.sent += sent
        return sent
