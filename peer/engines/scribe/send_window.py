"""Envelopes on their way to other peers, until all below them have the message.

QoS 0 is sent once. QoS 1 and 2 go through the send windows, hop by hop, until the next peer holds them; they are kept
until that peer reports that its whole subtree has them, or is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.codec import wrap
from ringmq.peer.engines.scribe.context import TreeContext
from ringmq.peer.engines.scribe.messages import Reached
from ringmq.peer.messaging.publication import Publication, encode, tail_of
from ringmq.peer.messaging.send_window import SendWindows, nobody_else

LOOKS: Final = 4
"""Checks for overdue parcels within the time after which a parcel is overdue."""

Then = Callable[[bool], None]
"""Called when all peers have a message, with whether a filter matched anywhere."""


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

    def hold(self, held: bool, now: float | None = None) -> int:
        """Its peer holds it, or it is being sent again. Returns the change of the bytes that are waiting here."""
        if now is not None:
            self.at = now
        if self.held is held:
            return 0
        self.held = held
        return len(self.parcel.tail) if held else -len(self.parcel.tail)


class Carrier:
    """One per engine. Call `look` LOOKS times in `overdue_s`."""

    __slots__ = ("_awaited", "_state", "send_windows")

    def __init__(self, state: TreeContext) -> None:
        self._state = state
        self._awaited: dict[int, dict[int, Awaited]] = {}
        self.send_windows = SendWindows(state, nobody_else)

    def __len__(self) -> int:
        """Parcels that are not reported as reached."""
        return sum(map(len, self._awaited.values()))

    def pack(self, place: str, origin: Peer, up: bool, publication: Publication) -> Parcel:
        state = self._state
        body = wrap(origin, up, publication.onward())
        return Parcel(Publication(state.me.boot, state.next_hop(), publication.qos, place, body))

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
        # While the parcel is not held, the send windows count its bytes.
        self._state.add_waiting(awaited.hold(False, self._state.clock.now))
        self.send_windows.push(
            awaited.peer, awaited.parcel.envelope, awaited.parcel.tail, lambda _: self._held(awaited)
        )

    def _held(self, awaited: Awaited) -> None:
        # A send window that is given up calls this too: bytes of a parcel removed here would be counted for ever.
        if self._awaited.get(awaited.peer.id, {}).get(awaited.parcel.envelope.seq) is awaited:
            self._state.add_waiting(awaited.hold(True))

    def reached(self, sender: Peer, message: Reached) -> None:
        # Envelopes are numbered from 1 in each boot: a report to an earlier boot may name others.
        if message.boot != self._state.me.boot:
            return
        for item in message.items:
            awaited = self._remove(sender.id, item.number)
            if awaited is not None:
                awaited.then(item.matched)

    def drop(self, peer_id: int, place: str) -> None:
        """Give up a peer in this tree, as if it had reported that no filter below it matches."""
        for awaited in self._of(peer_id, place):
            self._state.counters.given_up += 1
            awaited.then(False)

    def withdraw(self, peer_id: int, place: str) -> None:
        """Like `drop`, but without calling anybody."""
        self._of(peer_id, place)

    def _of(self, peer_id: int, place: str) -> list[Awaited]:
        found = [awaited for awaited in self._awaited.get(peer_id, {}).values() if awaited.parcel.place == place]
        for awaited in found:
            self._remove(peer_id, awaited.parcel.envelope.seq)
        # Nothing else is awaited from this peer: its send window would go on with useless retries.
        if found and peer_id not in self._awaited:
            self.send_windows.give_up(peer_id)
        return found

    def _remove(self, peer_id: int, number: int) -> Awaited | None:
        of_peer = self._awaited.get(peer_id, {})
        awaited = of_peer.pop(number, None)
        if awaited is not None:
            self._state.add_waiting(awaited.hold(False))
            if not of_peer:
                del self._awaited[peer_id]
        return awaited

    def look(self) -> None:
        """Send overdue parcels again: the report got lost, or the peer has restarted."""
        before = self._state.clock.now - self._state.trees.overdue_s
        for of_peer in list(self._awaited.values()):
            # The send window itself repeats parcels that are not held.
            for awaited in [awaited for awaited in of_peer.values() if awaited.held and awaited.at <= before]:
                self._state.counters.overdue += 1
                self._push(awaited)
