"""Kept sessions on their way between two homes, in pieces: one is on its way at a time, and the next follows when the
other home has it on its disk.

The first pieces have what the new home needs before it serves the client. The messages that wait follow them, and the
last piece when the subscriptions are in force at the new home. Knows neither connections nor the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from ringmq.mqtt_front.sessions.moving_session import Carried, MovingSession, Origin
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.enrolling.cargo import PIECE_BYTES, Arriving, head_pieces, packed, unpacked_all
from ringmq.peer.engines.partitioned.enrolling.messages import (
    InForce,
    Moved,
    Part,
    Returned,
    Taken,
)
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.followers import ItemStreams
from ringmq.peer.replication.record import Number
from ringmq.peer.streams.stream_messages import Lane

SILENT_S: Final = 3.0
"""A home that was not heard for so long is not waited for: what has come to the new home is sent to the client."""
STUCK_S: Final = 60.0
"""A new home that has taken nothing for so long will not: the session stays where it is."""
LOOK_S: Final = 1.0
LINGER_S: Final = 1.0
"""How long a session goes on to take messages when its subscriptions are in force at the other home: more than a way
through the network, and a repetition of a message that was lost on it."""
AGAIN_S: Final = 5.0
"""When a session that no other home has taken is enrolled again."""


class Sessions(Protocol):
    """The sessions of this peer that are on their way."""

    def next_piece(self, client_id: str, most_bytes: int) -> list[Carried]:
        """Messages that wait, the oldest first. All earlier ones are on the disk of the other home."""

    def is_whole(self, client_id: str) -> bool:
        """Whether nothing of a session that leaves is still on its way here."""

    def let_go(self, client_id: str) -> None:
        """The subscriptions are in force at the other home."""

    def gone(self, client_id: str) -> None:
        """The other home has everything."""

    def keep(self, client_id: str) -> str | None:
        """The other home takes nothing: the session stays. Returns its user."""

    def arrive(self, client_id: str, carried: Iterable[Carried], last: bool) -> None:
        """Messages that waited at the other home. After the last one, what has come here is sent, too."""

    def over(self, client_id: str) -> None:
        """The other home has nothing more."""

    def comes(self, origin: Origin, topic: str) -> None:
        """A message of another peer is about to be delivered."""

    def came(self) -> None:
        """It has been delivered."""


class Outgoing:
    """A session that another home takes over."""

    __slots__ = ("arrived", "client_id", "head", "index", "item", "lingers", "number", "served", "since", "to", "until")

    def __init__(self, client_id: str, number: Number, to: Peer) -> None:
        self.client_id = client_id
        self.number = number
        self.to = to
        self.head: Iterator[Moved] = iter(())
        self.index = 0
        self.item: Moved | None = None
        """The piece on its way."""
        self.arrived = False
        """Whether the subscriptions are in force at the other home."""
        self.lingers = False
        """Whether the other home sends what has come there, while late publications may still come here."""
        self.until = 0.0
        self.served = False
        """Whether the other home has served the client: it has the session then."""
        self.since = 0.0
        """When the other home has taken something for the last time."""


class Incoming:
    """A session that comes from another home. `begun` is called with what this one needs to serve the client; None: the
    client is served already, and all that comes is queued for it."""

    __slots__ = ("arriving", "begun", "dropped", "giver", "held", "index", "number", "silent", "since")

    def __init__(self, number: Number, giver: Peer, begun: Callable[[MovingSession], None] | None) -> None:
        self.number = number
        self.giver = giver
        self.begun = begun
        self.index = 0
        self.arriving = Arriving()
        self.since = 0.0
        """When a piece came for the last time."""
        self.held: list[Moved] = []
        """Pieces that have come before the client is served."""
        self.dropped = False
        """Whether the session has ended here."""
        self.silent = False
        """Whether what has come here need not wait for the giver: it has nothing older, or is silent."""


class Moves:
    """One per engine."""

    __slots__ = ("_incoming", "_is_served", "_kept", "_looking", "_outgoing", "_state", "_streams", "sessions")

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemStreams,
        kept: Callable[[str, str | None], None],
        is_served: Callable[[str], bool],
    ) -> None:
        """`kept` is called with a session that stays here and its user, as the other home takes nothing. `is_served`
        says whether no connection of a client waits: what comes would have no session yet."""
        self._is_served = is_served
        self._state = state
        self._streams = streams
        self._kept = kept
        self._outgoing: dict[str, Outgoing] = {}
        self._incoming: dict[str, dict[Peer, Incoming]] = {}
        """By client id and the home that gives."""
        self._looking = False
        self.sessions: Sessions

    @property
    def leaving(self) -> int:
        return len(self._outgoing)

    @property
    def coming(self) -> int:
        return len(self._incoming)

    # Away

    def give(self, client_id: str, number: Number, to: Peer, moving: MovingSession) -> None:
        """A session leaves for another home, which has been told so."""
        self.close(client_id, ())
        outgoing = self._outgoing[client_id] = Outgoing(client_id, number, to)
        outgoing.head = head_pieces(moving, Moved(client_id, number, 0), self._state.clock.now)
        self._go_on(outgoing)
        self._look_later()

    def _go_on(self, outgoing: Outgoing) -> None:
        """Send the next piece, if there is one."""
        if outgoing.item is not None:
            return
        piece = next(outgoing.head, None) or self._next_of_queue(outgoing)
        if piece is None and outgoing.arrived and self.sessions.is_whole(outgoing.client_id):
            piece = self._last(outgoing)
        if piece is not None:
            self._send(outgoing, piece)

    def _last(self, outgoing: Outgoing) -> Moved | None:
        """The queue is empty, and the subscriptions are in force at the other home."""
        client_id, number = outgoing.client_id, outgoing.number
        if not outgoing.lingers:
            # Publications that were sent before their publishers knew the other home are still on their way.
            outgoing.lingers = True
            outgoing.until = self._state.clock.now + LINGER_S
            self._state.after(LINGER_S, partial(self._go_on_with, outgoing))
            return Moved(client_id, number, 0, Part.LAST)
        if self._state.clock.now < outgoing.until:
            return None
        self.sessions.let_go(client_id)
        # What came in this moment, and nothing after it.
        return self._next_of_queue(outgoing) or Moved(client_id, number, 0, Part.END)

    def _go_on_with(self, outgoing: Outgoing) -> None:
        if self._outgoing.get(outgoing.client_id) is outgoing:
            self._go_on(outgoing)

    def _next_of_queue(self, outgoing: Outgoing) -> Moved | None:
        now = self._state.clock.now
        piece = self.sessions.next_piece(outgoing.client_id, PIECE_BYTES)
        queued = tuple([packed(delivery, now, origin) for delivery, origin in piece])
        return Moved(outgoing.client_id, outgoing.number, 0, Part.QUEUE, queued=queued) if queued else None

    def _send(self, outgoing: Outgoing, piece: Moved) -> None:
        outgoing.index += 1
        outgoing.item = replace(piece, index=outgoing.index)
        outgoing.since = self._state.clock.now
        self._streams.send(outgoing.to, outgoing.item, lane=Lane.BULK)

    def taken(self, sender: Peer, message: Taken) -> None:
        """The other home has a piece on its disk."""
        outgoing = self._outgoing.get(message.client_id)
        item = None if outgoing is None else outgoing.item
        if outgoing is None or item is None or (item.number, item.index) != (message.number, message.index):
            return
        outgoing.item = None
        outgoing.since = self._state.clock.now
        outgoing.served |= item.part is not Part.HEAD
        if item.part is Part.END:
            del self._outgoing[outgoing.client_id]
            self.sessions.gone(outgoing.client_id)
        else:
            self._go_on(outgoing)

    def arrived(self, sender: Peer, message: InForce) -> None:
        """The subscriptions of a session are in force at its new home."""
        outgoing = self._outgoing.get(message.client_id)
        if outgoing is not None and outgoing.number == message.number:
            outgoing.arrived = True
            self._go_on(outgoing)

    def returned(self, sender: Peer, message: Returned) -> None:
        """The client has not been served at the other home."""
        outgoing = self._outgoing.get(message.client_id)
        if outgoing is not None and outgoing.number == message.number:
            self._keep(outgoing)

    def _keep(self, outgoing: Outgoing) -> None:
        del self._outgoing[outgoing.client_id]
        user = self.sessions.keep(outgoing.client_id)
        # Not at once: it may have to be offered to the same home again.
        self._state.after(AGAIN_S, partial(self._kept, outgoing.client_id, user))

    def keep_back(self, client_id: str) -> bool:
        """The client is served here again, and no other home gives its session. Returns whether it is the one here."""
        outgoing = self._outgoing.get(client_id)
        if outgoing is None:
            return True
        if outgoing.served:
            return False
        del self._outgoing[client_id]
        self.sessions.keep(client_id)
        return True

    def close(self, client_id: str, answering: Container[Peer]) -> None:
        """The client is about to be served here again. What has not left goes to the other home, if that answers: it
        gives the session, and knows what it has received twice. Otherwise it stays."""
        outgoing = self._outgoing.pop(client_id, None)
        if outgoing is None:
            return
        # What comes while a session lingers has come to the other home as well, nearly always.
        answers = outgoing.to in answering or outgoing.lingers
        if answers and not self._state.overlay.doubts(outgoing.to):
            self.sessions.let_go(client_id)
            while (piece := self._next_of_queue(outgoing)) is not None:
                self._send(outgoing, piece)
            self.sessions.gone(client_id)
        self._send(outgoing, Moved(client_id, outgoing.number, 0, Part.END))

    # Here

    def expect(
        self, client_id: str, number: Number, giver: Peer, begun: Callable[[MovingSession], None] | None
    ) -> None:
        """A home before gives a session; see `Incoming` for `begun`."""
        incoming = Incoming(number, giver, begun)
        incoming.since = self._state.clock.now
        self._incoming.setdefault(client_id, {})[giver] = incoming
        if begun is None:
            self._say_arrived(client_id, incoming)
        self._look_later()

    def refuse(self, client_id: str) -> None:
        """The client is not served here: the homes before keep the sessions that have not come."""
        for giver, incoming in list(self._incoming.get(client_id, {}).items()):
            if incoming.begun is not None or incoming.held:
                self._end(client_id, giver)
                self._streams.send(giver, Returned(client_id, incoming.number))

    def drop(self, client_id: str) -> None:
        """The session of a client has ended: what still comes of it has no receiver."""
        for incoming in self._incoming.get(client_id, {}).values():
            incoming.dropped = True

    def _end(self, client_id: str, giver: Peer) -> None:
        incomings = self._incoming[client_id]
        del incomings[giver]
        if not incomings:
            del self._incoming[client_id]
            self.sessions.over(client_id)

    def _nobody_has_more(self, client_id: str) -> bool:
        """Whether what has come here is next."""
        return all(incoming.silent for incoming in self._incoming[client_id].values())

    def go_on_without(self, client_id: str) -> None:
        """The client is served without a session that comes late: what comes of it is queued."""
        for incoming in list(self._incoming.get(client_id, {}).values()):
            if incoming.begun is not None:
                incoming.begun = None
                self._say_arrived(client_id, incoming)
                inflight: list[Carried] = [(delivery, None) for delivery in incoming.arriving.moving.inflight]
                self.sessions.arrive(client_id, _repeated(inflight), last=False)

    def in_force(self, client_id: str) -> None:
        """The subscriptions of a session that comes are in force here."""
        for incoming in self._incoming.get(client_id, {}).values():
            self._say_arrived(client_id, incoming)

    def _say_arrived(self, client_id: str, incoming: Incoming) -> None:
        self._streams.send(incoming.giver, InForce(client_id, incoming.number))

    def moved(self, sender: Peer, piece: Moved) -> None:
        """A piece of a session comes."""
        incoming, now = self._incoming.get(piece.client_id, {}).get(sender), self._state.clock.now
        if incoming is None or incoming.number != piece.number:
            if piece.part is not Part.END:
                self._streams.send(sender, Returned(piece.client_id, piece.number))
            return
        if piece.index <= incoming.index:
            if not incoming.held:
                self._say_taken(incoming, piece)
            return
        incoming.index, incoming.since = piece.index, now
        if incoming.begun is not None:
            self._begin(incoming, piece)
        elif self._is_served(piece.client_id):
            self._say_taken(incoming, piece)
            self._queue(incoming, piece)
        else:
            incoming.held.append(piece)

    def _begin(self, incoming: Incoming, piece: Moved) -> None:
        """A piece that is needed before the client can be served. The last one is taken when it is."""
        moving = incoming.arriving.add(piece, self._state.clock.now)
        if piece.part is Part.HEAD:
            self._say_taken(incoming, piece)
        elif incoming.begun is not None:
            begun, incoming.begun = incoming.begun, None
            # The messages in flight are in `moving`.
            incoming.held.append(replace(piece, inflight=()))
            begun(moving)

    def _say_taken(self, incoming: Incoming, piece: Moved) -> None:
        self._streams.send(incoming.giver, Taken(piece.client_id, piece.number, piece.index))

    def served(self, client_id: str) -> None:
        """A client that has waited is served: what has come of its session meanwhile is taken."""
        for incoming in list(self._incoming.get(client_id, {}).values()):
            held, incoming.held = incoming.held, []
            for piece in held:
                self._say_taken(incoming, piece)
                self._queue(incoming, piece)

    def _queue(self, incoming: Incoming, piece: Moved) -> None:
        """Queue the messages of a piece for a client that is served."""
        client_id, now = piece.client_id, self._state.clock.now
        carried = _repeated(unpacked_all(piece.inflight, now)) + unpacked_all(piece.queued, now)
        if incoming.dropped:
            carried = []
        incoming.silent |= piece.part in (Part.LAST, Part.END)
        self.sessions.arrive(client_id, carried, last=self._nobody_has_more(client_id))
        if piece.part is Part.END:
            self._end(client_id, incoming.giver)
        outgoing = self._outgoing.get(client_id)
        if outgoing is not None:
            # It has gone on to another home already.
            self._go_on(outgoing)

    # Time

    def _look_later(self) -> None:
        if not self._looking:
            self._looking = True
            self._state.after(LOOK_S, self._look)

    def _look(self) -> None:
        """Go on without homes that are silent."""
        now, doubts = self._state.clock.now, self._state.overlay.doubts
        for client_id, incomings in list(self._incoming.items()):
            for giver, incoming in list(incomings.items()):
                heard_at = max(incoming.since, self._streams.heard_at(giver))
                if heard_at + STUCK_S < now:
                    self._end(client_id, giver)
                incoming.silent |= incoming.begun is None and (doubts(giver) or heard_at + SILENT_S < now)
            if client_id in self._incoming and self._nobody_has_more(client_id):
                self.sessions.arrive(client_id, (), last=True)
        for outgoing in list(self._outgoing.values()):
            if outgoing.since + STUCK_S < now:
                self._keep(outgoing)
        self._looking = bool(self._incoming or self._outgoing)
        if self._looking:
            self._state.after(LOOK_S, self._look)

    def stream_lost(self, peer: Peer) -> None:
        """Pieces to a peer, and what was said to it, may be missing there. It leaves out pieces that it has."""
        for outgoing in list(self._outgoing.values()):
            if outgoing.to == peer and outgoing.item is not None:
                self._state.after(self._state.config.retry_s, partial(self._send_again, outgoing, outgoing.index))

    def _send_again(self, outgoing: Outgoing, index: int) -> None:
        item = outgoing.item
        if self._outgoing.get(outgoing.client_id) is outgoing and item is not None and item.index == index:
            self._streams.send(outgoing.to, item, lane=Lane.BULK)


def _repeated(carried: list[Carried]) -> list[Carried]:
    """Messages that were in flight elsewhere, to be sent as new ones. A client that has received a message with QoS 2
    needs no other copy of it."""
    wanted = [(delivery, origin) for delivery, origin in carried if not delivery.received]
    for delivery, _ in wanted:
        delivery.packet_id = 0
    return wanted
