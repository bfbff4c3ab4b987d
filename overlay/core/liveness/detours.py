"""Detours around broken pairs: two peers that do not hear each other, though a third peer hears both.

A network may be cut between two peers alone: by a firewall rule, a wrong route, a bad port of a switch. Neither of them
is dead, so the ring keeps both, and whatever one of them must say to the other would wait for as long as the cut lasts.
So each sends through a helper meanwhile (`Relay`), whatever the message. The pair is tried again every `reunion_s`, and
a `Pong` that comes directly ends the detour: other messages prove one direction only.

Owns the detours of this peer, and the peers that it passes messages on for. Decides about no death.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from msgspec.structs import replace

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import MAX_RELAYS, Peer, Ping, PingRequest, Pong, Relay

HELPERS: Final = 3
"""Peers asked for an indirect probe (memberlist's default)."""
MAX_DETOURS: Final = 64
"""Two leaf sets. A peer that hears fewer others is cut off, and its part of the ring goes on by itself."""
QUIET: Final = 12
"""A detour by which nothing has come for this many times `reunion_s` ends. If it is needed, it is found again."""
MAX_SERVED: Final = 256
"""Peers that messages are passed on to. Beyond it, the one that was asked for longest ago is forgotten."""
SOON: Final = 8
"""A direct answer that takes longer than this part of `probe_s` makes a search ask helpers. It is still waited for: it
comes before theirs, unless the pair is broken."""
LATE: Final = 2.0
"""If the time for that is longer by this factor, this peer was held up itself, and the answer may wait to be read."""
PING: Final = Ping()
PONG: Final = Pong()


class Search:
    """The search for a way to one peer."""

    __slots__ = ("began_at", "helpers", "peer")

    def __init__(self, peer: Peer, now: float) -> None:
        self.peer = peer
        self.began_at = now
        self.helpers: frozenset[Id] = frozenset()
        """The peers that were asked whether they hear it; empty while it is pinged directly."""


class Detours:
    """One per ring core; part of its failure detector."""

    __slots__ = ("_near", "_searches", "_served", "_state", "_targets", "_whole_at", "concerned")

    def __init__(self, state: RingContext, near: Callable[[Peer], Iterable[Peer]]) -> None:
        """`near` gives the members of the leaf set, those nearest to a peer first."""
        self._state = state
        self._near = near
        self._targets: dict[Id, tuple[Peer, float]] = {}
        """The peers that are reached on a detour, and when something came from there last; `RingContext.detours` has
        the ways."""
        self._whole_at: dict[Id, float] = {}
        """When pairs were found whole again, lately."""
        self._searches: dict[Id, Search] = {}
        self.concerned: dict[Id, float] = {}
        """The peers with a search or a detour, and when they were pinged directly because of a message from there."""
        self._served: dict[Id, Peer] = {}
        """The next hop to each peer that messages are passed on to."""

    def __len__(self) -> int:
        return len(self._targets)

    def search(self, peer: Peer) -> None:
        """Nothing comes from a peer that should answer: find out whether a third peer hears it. It may also be busy, or
        dead; then nothing follows from this."""
        if peer.id in self._searches or len(self._searches) >= MAX_DETOURS or peer.id == self._state.me.id:
            return
        search = self._searches[peer.id] = Search(peer, self._state.now)
        self._concern(peer.id)
        self._state.post_directly(peer, PING)
        self._state.timers.at(self._state.now + self._state.timing.probe_s / SOON, self._unanswered, search)

    def _unanswered(self, now: float, subject: object) -> None:
        assert isinstance(subject, Search)
        # The timer queue cannot cancel: the search may be over, or be another one.
        if self._searches.get(subject.peer.id) is not subject:
            return
        if now - subject.began_at <= LATE * self._state.timing.probe_s / SOON:
            self._ask_helpers(subject)
        else:
            self._end_search(subject.peer.id)

    def _ask_helpers(self, search: Search) -> None:
        state = self._state
        # Not those that are reached on a detour themselves.
        helpers = [peer for peer in self._near(search.peer) if peer.id not in self.concerned][:HELPERS]
        search.helpers = frozenset([peer.id for peer in helpers])
        for helper in helpers:
            state.post(helper, PingRequest(search.peer))
        state.timers.at(state.now + state.timing.verdict_s, self._give_up, search)

    def _give_up(self, now: float, subject: object) -> None:
        assert isinstance(subject, Search)
        if self._searches.get(subject.peer.id) is subject:
            self._end_search(subject.peer.id)

    def answered(self, helper: Peer, target: Peer) -> None:
        """A peer that was asked for an indirect probe hears the target."""
        search = self._searches.get(target.id)
        if search is not None and helper.id in search.helpers:
            self.begin(target, helper)

    def begin(self, target: Peer, via: Peer) -> None:
        """Send everything for a peer through another one, until it answers directly."""
        if target.id == via.id or target.id == self._state.me.id:
            return
        self._end_search(target.id)
        new = target.id not in self._targets
        if new and len(self._targets) >= MAX_DETOURS:
            return
        self._targets[target.id] = target, self._state.now
        self._state.detours[target.id] = via
        self._concern(target.id)
        if new:
            self._state.counters.detours += 1
            self.helper_lost(target)
            # The other side answers on the same way from then on. It may not know yet that it is not heard.
            self._state.post(target, PING)

    def _concern(self, peer_id: Id) -> None:
        self.concerned.setdefault(peer_id, self._state.now)

    def _end_search(self, peer_id: Id) -> None:
        self._searches.pop(peer_id, None)
        if peer_id not in self._targets:
            self.concerned.pop(peer_id, None)

    def heard(self, peer: Peer) -> None:
        """A message came directly from a peer that is `concerned`: one direction is not broken."""
        self._end_search(peer.id)
        if peer.id in self._targets and self.concerned[peer.id] + self._state.timing.probe_s <= self._state.now:
            self.concerned[peer.id] = self._state.now
            self._state.post_directly(peer, PING)

    def came(self, origin: Peer, via: Peer) -> None:
        """A message of a peer came through a helper: answers must take the same way."""
        if self._whole_at.get(origin.id, -inf) + self._state.timing.probe_s > self._state.now:
            # The pair is whole again, and the other side has not found it yet.
            self._state.post_directly(origin, PONG)
        else:
            self.begin(origin, via)

    def answered_directly(self, peer: Peer) -> None:
        """A `Pong` came directly: neither direction is broken."""
        if peer.id in self._targets:
            self._whole_at[peer.id] = self._state.now
            self.end(peer.id)

    def end(self, peer_id: Id) -> None:
        """The pair is whole again, or the peer is dead."""
        if self._targets.pop(peer_id, None) is not None:
            del self._state.detours[peer_id]
            if peer_id not in self._searches:
                del self.concerned[peer_id]

    def helper_lost(self, helper: Peer) -> None:
        """A peer is not reached any more: what was sent through it needs another way."""
        for target_id in [target_id for target_id, via in self._state.detours.items() if via.id == helper.id]:
            target, _ = self._targets[target_id]
            self.end(target_id)
            if target_id not in self._searches and len(self._searches) < MAX_DETOURS:
                search = self._searches[target_id] = Search(target, self._state.now)
                self._concern(target_id)
                self._ask_helpers(search)

    def try_directly(self) -> None:
        """Call it now and then: the answer ends a detour."""
        self._whole_at.clear()
        before = self._state.now - QUIET * self._state.timing.reunion_s
        for target, heard_at in list(self._targets.values()):
            if heard_at < before:
                self.end(target.id)
            else:
                self._state.post_directly(target, PING)

    # For others

    def serve(self, asker: Peer, target: Peer) -> None:
        """This peer was asked whether it hears a peer, and does: it may be asked to pass messages on, both ways."""
        for peer in (asker, target):
            self._lead(peer.id, peer)

    def _lead(self, target_id: Id, hop: Peer) -> None:
        self._served.pop(target_id, None)
        self._served[target_id] = hop
        if len(self._served) > MAX_SERVED:
            del self._served[next(iter(self._served))]

    def pass_on(self, sender: Peer, relay: Relay) -> None:
        """Pass a message on to its target, if somebody has asked for a way to it: no member can have this peer connect
        to whatever address it names."""
        state = self._state
        hop = self._served.get(relay.target.id)
        if hop is None or relay.relays >= MAX_RELAYS or not (relay.relays or relay.origin.id == sender.id):
            state.counters.unrelayed += 1
            return
        state.counters.relayed += 1
        if relay.relays:
            # The answer goes back to the helper before this one.
            self._lead(relay.origin.id, sender)
        onward = replace(relay, relays=relay.relays + 1)
        state.post_directly(state.detours.get(hop.id, hop), onward)
