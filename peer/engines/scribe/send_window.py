"""Envelopes on their way to other peers, until all below them have the message.

QoS 0 is sent once. QoS 1 and 2 go through the outlets, hop by hop, until the next peer holds them; and then they are
kept until that peer says that its whole subtree has them, or is not waited for any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.codec import wrap
from ringmq.peer.engines.scribe.context import TreeContext
from ringmq.peer.engines.scribe.messages import Reached
from ringmq.peer.messaging.publication import Publication, encode, tail_of
from ringmq.peer.messaging.send_window import SendWindows

LOOKS: Final = 4
"""For what is overdue, in the time after which something is."""

Then = Callable[[bool], None]
"""Told that all have a message, and whether anybody wanted it."""


class Parcel:
    """One publication in one tree, encoded once for all its receivers."""

    __slots__ = ("envelope", "tail")

    def __init__(self, envelope: Publication) -> None:
        self.envelope = envelope
        self.tail = tail_of(envelope)

    @property
    def place(self) -> str:
        return self.envelope.topic


class Awaited:
    """A parcel that a peer has not reported as reached."""

    __slots__ = ("at", "held", "parcel", "peer", "then")

    def __init__(self, peer: Peer, parcel: Parcel, then: Then) -> None:
        self.peer = peer
        self.parcel = parcel
        self.then = then
        self.at = 0.0
        self.held = False


class Carrier:
    """One per core. Call `look` LOOKS times in `overdue_s`."""

    __slots__ = ("_awaited", "_state", "send_windows")

    def __init__(self, state: TreeContext) -> None:
        self._state = state
        self._awaited: dict[int, dict[int, Awaited]] = {}
        self.send_windows = SendWindows(state)

    def __len__(self) -> int:
        """Parcels that are not reported as reached."""
        return sum(map(len, self._awaited.values()))

    def pack(self, place: str, origin: Peer, up: bool, publication: Publication) -> Parcel:
        state = self._state
        state.hops += 1
        body = wrap(origin, up, publication.onward())
        return Parcel(Publication(state.me.boot, state.hops, publication.qos, place, body))

    def send_once(self, peers: list[Peer], parcel: Parcel) -> None:
        """QoS 0."""
        payload, counters = encode(parcel.envelope), self._state.counters
        for peer in peers:
            if self._state.overlay.send(peer, payload):
                counters.sent += 1
            else:
                counters.dropped += 1

    def send(self, peer: Peer, parcel: Parcel, then: Then) -> None:
        """QoS 1 and 2. `then` is called once, unless the parcel is withdrawn."""
        awaited = Awaited(peer, parcel, then)
        self._awaited.setdefault(peer.id, {})[parcel.envelope.seq] = awaited
        self._push(awaited)

    def _push(self, awaited: Awaited) -> None:
        self._count(awaited, False)
        awaited.at = self._state.clock.now
        self.send_windows.push(awaited.peer, awaited.parcel.envelope, awaited.parcel.tail, lambda: self._held(awaited))

    def _held(self, awaited: Awaited) -> None:
        if self._awaited.get(awaited.peer.id, {}).get(awaited.parcel.envelope.seq) is awaited:
            self._count(awaited, True)

    def _count(self, awaited: Awaited, held: bool) -> None:
        """The outlets count the bytes of what is not held, this part those of what is."""
        if awaited.held is not held:
            awaited.held = held
            self._state.waiting_bytes += len(awaited.parcel.tail) if held else -len(awaited.parcel.tail)

    def reached(self, sender: Peer, message: Reached) -> None:
        if message.boot != self._state.me.boot:
            return
        for item in message.items:
            awaited = self._remove(sender.id, item.number)
            if awaited is not None:
                awaited.then(item.matched)

    def drop(self, point: int, place: str) -> None:
        """This peer is not waited for any more, in this tree; as if it had said that nobody below it wants anything."""
        for awaited in self._of(point, place):
            self._state.counters.given_up += 1
            awaited.then(False)

    def withdraw(self, point: int, place: str) -> None:
        """As `drop`, but nobody is told."""
        self._of(point, place)

    def _of(self, point: int, place: str) -> list[Awaited]:
        found = [one for one in self._awaited.get(point, {}).values() if one.parcel.place == place]
        for one in found:
            self._remove(point, one.parcel.envelope.seq)
        if found and point not in self._awaited:
            self.send_windows.give_up(point)
        return found

    def _remove(self, point: int, number: int) -> Awaited | None:
        of_peer = self._awaited.get(point, {})
        awaited = of_peer.pop(number, None)
        if awaited is not None:
            self._count(awaited, False)
            if not of_peer:
                del self._awaited[point]
        return awaited

    def look(self) -> None:
        """Send again what is overdue: the report got lost, or the peer is not what it was."""
        before = self._state.clock.now - self._state.trees.overdue_s
        for of_peer in list(self._awaited.values()):
            for awaited in [one for one in of_peer.values() if one.held and one.at <= before]:
                self._state.counters.overdue += 1
                self._push(awaited)
