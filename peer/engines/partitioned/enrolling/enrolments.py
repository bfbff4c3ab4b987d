"""The client ids of the clients here, enrolled in the registry of the ring: the home's side.

A client that connects with an id of its own is served once the registry names this peer as its home, and the homes
before have ended their connections. Both waits are bounded: an edge site that is cut off goes on serving its clients,
and the registry names one home as soon as it can be asked. Knows neither connections nor records.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Final, Protocol

from ringmq.mqtt_front.cluster import Enrolment, Settled, Standing
from ringmq.mqtt_front.sessions.moving_session import MovingSession
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.directory import Directory
from ringmq.peer.engines.partitioned.enrolling.messages import (
    Enrol,
    Enrolled,
    Returned,
    Superseded,
    Verdict,
    Yield,
    Yielded,
)
from ringmq.peer.engines.partitioned.enrolling.moves import Moves
from ringmq.peer.engines.partitioned.messages import (
    Elsewhere,
)
from ringmq.peer.engines.partitioned.names import NameHash
from ringmq.peer.messaging.context import TURN_S, MessagingContext
from ringmq.peer.replication.followers import ItemStreams
from ringmq.peer.replication.record import Number
from ringmq.peer.replication.space import partitions_in

YIELD_S: Final = 1.0
"""How long the home before may take to end its connection: it may be paused, or dead and not found so yet."""
MOST_AT_ONCE: Final = 1000
"""Enrolments that are sent again in one iteration, when the coordinators of many change together."""
NONE: Final[Number] = (0, 0)


class Clients(Protocol):
    """The connections and sessions of this peer."""

    def oust(self, client_id: str, standing: Standing) -> None:
        """The client id is another home's, or another user's, from now on: its connection must end."""

    def give_up(self, client_id: str, user: str | None, clean: bool) -> MovingSession | None:
        """The same, as the client connects elsewhere with this user name. `clean`: it wants no session from before.
        Returns its kept session otherwise, which is leaving from now on."""


class NoClientIds:
    """The clients of a peer that enrols none."""

    def oust(self, client_id: str, standing: Standing) -> None: ...
    def give_up(self, client_id: str, user: str | None, clean: bool) -> MovingSession | None:
        return None


class Own:
    """A client id of this peer."""

    __slots__ = (
        "answered", "clean", "client_id", "former", "given", "here", "kept", "moving", "number", "overruled", "place",
        "restored", "settled", "since", "token", "user",
    )  # fmt: skip

    def __init__(self, enrolment: Enrolment, token: int, place: Place) -> None:
        self.client_id = enrolment.client_id
        self.user = enrolment.user
        self.kept = enrolment.kept
        self.clean = enrolment.clean
        self.restored = enrolment.restored
        self.token = token
        self.place = place
        self.number = NONE
        """Given by the coordinator; NONE until it has answered."""
        self.overruled = NONE
        """The number of a later enrolment elsewhere that was heard of before the answer."""
        self.former: dict[Peer, None] = {}
        """Homes that are asked to give up the client, and have not answered."""
        self.answered: set[Peer] = set()
        """Those that have."""
        self.here = False
        """Whether this peer was a home before, too: a session that is still leaving has not left."""
        self.given = False
        """Whether a home before gives a session."""
        self.moving: MovingSession | None = None
        """What has come of it, once the client can be served."""
        self.since = 0.0
        """When the connection began to wait."""
        self.settled: Settled | None = None
        """Called once it is known where the client stands, or cannot be known in time."""


class Place:
    """A partition with client ids of this peer."""

    __slots__ = ("_refused", "coordinator", "index", "owns")

    def __init__(self, index: int) -> None:
        self.index = index
        self.coordinator: Peer | None = None
        """Who was sent the enrolments of the partition."""
        self.owns: dict[str, Own] = {}
        self._refused: tuple[Peer, float] | None = None

    def refuse(self, peer: Peer, until: float) -> None:
        """A peer does not coordinate the partition: it may own it and not have it yet."""
        self.coordinator = None
        self._refused = peer, until

    def refuses(self, peer: Peer, now: float) -> bool:
        """Whether a peer is not asked again now."""
        return self._refused is not None and self._refused[0] == peer and now < self._refused[1]


class Enrolments:
    """One per engine."""

    __slots__ = (
        "_changed", "_directory", "_doubting", "_names", "_owns", "_places", "_queue", "_sending", "_state", "_streams",
        "_tokens", "_waiting", "clients", "moves",
    )  # fmt: skip

    def __init__(self, state: MessagingContext, streams: ItemStreams, directory: Directory) -> None:
        self._state = state
        self._streams = streams
        self._directory = directory
        self._names = NameHash(state.config.hash_seed)
        self._owns: dict[str, Own] = {}
        self._places: dict[int, Place] = {}
        self._tokens = 0
        self._queue: dict[str, None] = {}
        """Client ids that are to be sent again."""
        self._waiting: dict[str, Own] = {}
        """Those whose connections wait for the coordinator."""
        self._sending = self._changed = self._doubting = False
        self.clients: Clients = NoClientIds()
        """Set it before anything happens."""
        self.moves = Moves(state, streams, self._restore, self._is_served)

    def __len__(self) -> int:
        return len(self._owns)

    def __contains__(self, client_id: str) -> bool:
        return client_id in self._owns

    @property
    def unanswered(self) -> int:
        """Client ids without an answer of their coordinator. Visits all."""
        return sum(own.number == NONE for own in self._owns.values())

    # Connections here

    def enrol(self, enrolment: Enrolment, settled: Settled) -> None:
        """A client connects. `settled` is called once, at the latest after `within_s` and the time for the home before
        to end its connection."""
        own = self._owns.get(enrolment.client_id)
        if own is not None and own.number != NONE and not own.former:
            # Any other home would have had it from this one.
            if (own.user, own.kept) != (enrolment.user, enrolment.kept):
                own.user, own.kept, own.token = enrolment.user, enrolment.kept, self._next_token()
                self._send(own, NONE)
            if enrolment.clean:
                self.moves.drop(own.client_id)
            settled(Standing.CURRENT)
            return
        if own is None or own.restored or own.user != enrolment.user or (enrolment.clean and not own.clean):
            if own is not None:
                self.moves.refuse(own.client_id)
                self._drop(own)
            own = self._add(enrolment)
            self._begin(own)
        # Otherwise an earlier connection has asked, and has ended before the answer.
        own.settled, own.clean, own.kept = settled, enrolment.clean, enrolment.kept
        if not enrolment.restored:
            own.since = self._state.clock.now
            self._waiting[own.client_id] = own
            self._state.after(enrolment.within_s, partial(self._be_late, own))
            self._doubt_later()

    def discharge(self, client_id: str) -> None:
        """This peer has neither a connection nor a session of this client any more."""
        own = self._owns.get(client_id)
        if own is None:
            return
        # The home before may still have a session: the registry names it again if no client was served here.
        served = own.settled is None
        self.moves.refuse(client_id)
        self.moves.drop(client_id)
        self._drop(own)
        coordinator = own.place.coordinator
        if coordinator is not None:
            number = own.number if served else NONE
            self._streams.send(coordinator, Enrol(client_id, own.token, own.user, number, gone=True))

    def _add(self, enrolment: Enrolment) -> Own:
        index = self._names.partition_of(enrolment.client_id)
        place = self._places.get(index)
        if place is None:
            place = self._places[index] = Place(index)
        own = Own(enrolment, self._next_token(), place)
        self._owns[own.client_id] = place.owns[own.client_id] = own
        return own

    def _next_token(self) -> int:
        self._tokens += 1
        return self._tokens

    def _drop(self, own: Own) -> None:
        """Forget a client id. The connection that waits is not called any more."""
        del self._owns[own.client_id]
        del own.place.owns[own.client_id]
        if not own.place.owns:
            del self._places[own.place.index]
        own.settled = None
        self._waiting.pop(own.client_id, None)

    def _begin(self, own: Own) -> None:
        place = own.place
        coordinator = self._directory.coordinator(place.index)
        # Otherwise the directory asks, and `coordinators_changed` is called.
        if coordinator is None or place.refuses(coordinator, self._state.clock.now):
            return
        if place.coordinator != coordinator:
            self._move(place, coordinator)
        self._send(own, own.number)

    def _send(self, own: Own, number: Number, alone: bool = False) -> None:
        coordinator = own.place.coordinator
        if coordinator is not None:
            item = Enrol(own.client_id, own.token, own.user, number, own.kept, own.restored, alone=alone)
            self._streams.send(coordinator, item)

    def _settle(self, own: Own, standing: Standing) -> bool:
        """Returns whether a connection has waited for this."""
        settled, own.settled = own.settled, None
        moving, own.moving = own.moving, None
        self._waiting.pop(own.client_id, None)
        if settled is not None:
            settled(standing, moving)
            if self._owns.get(own.client_id) is own:
                self.moves.served(own.client_id)
        return settled is not None

    def _is_served(self, client_id: str) -> bool:
        own = self._owns.get(client_id)
        return own is None or own.settled is None

    def _be_late(self, own: Own) -> None:
        """The registry could not be asked in time: the client is served, and it is asked on."""
        if own.settled is not None and own.number == NONE:
            self._state.counters.late_enrolments += 1
            self._settle(own, Standing.CURRENT)

    def _doubt_later(self) -> None:
        if not self._doubting:
            self._doubting = True
            self._state.after(self._state.config.doubt_s, self._doubt)

    def _doubt(self) -> None:
        """Coordinators that leave a connection waiting may be silent."""
        self._doubting = bool(self._waiting)
        if not self._doubting:
            return
        before = self._state.clock.now - self._state.config.doubt_s / 2
        silent: dict[Peer | None, list[int]] = {}
        for own in islice(self._waiting.values(), MOST_AT_ONCE):
            if own.since <= before:
                silent.setdefault(own.place.coordinator, []).append(own.place.index)
        for partitions in silent.values():
            # Its two neighbours divide what a coordinator has.
            self._directory.doubt(min(partitions))
            self._directory.doubt(max(partitions))
        self._state.after(self._state.config.doubt_s, self._doubt)

    # Answers

    def enrolled(self, sender: Peer, message: Enrolled) -> None:
        """The registry names this peer, or refuses to."""
        own = self._owns.get(message.client_id)
        if own is None or own.token != message.token:
            return
        if message.verdict is Verdict.FULL:
            # As a ring without a registry would: it has counted what it refused.
            self._settle(own, Standing.CURRENT)
            self._drop(own)
        elif message.verdict is not Verdict.GRANTED:
            superseded = message.verdict is Verdict.SUPERSEDED
            self._lose(own, Standing.SUPERSEDED if superseded else Standing.FOREIGN)
            if superseded:
                self._hand_over(own, message)
        elif message.number < own.overruled:
            self._lose(own, Standing.SUPERSEDED)
        elif own.number == NONE or message.number > own.number:
            self._take(own, message)

    def _take(self, own: Own, message: Enrolled) -> None:
        own.number, own.restored = message.number, False
        self._waiting.pop(own.client_id, None)
        for former in message.former:
            if former.id == self._state.me.id:
                own.here = True
                continue
            self._streams.send(former, Yield(own.client_id, own.number, own.user, own.clean))
            # Nobody waits for one that is silent or dead. It may answer later.
            if not self._state.overlay.doubts(former):
                own.former[former] = None
        if own.former:
            self._state.after(YIELD_S, partial(self._give_up_waiting, own, own.number))
        elif message.former:
            self._go_in(own)
        else:
            self._settle(own, Standing.CURRENT)

    def _go_in(self, own: Own) -> None:
        """The homes before have answered, or are silent: the client may be served."""
        # The next home need not ask those before this one.
        self._send(own, own.number, alone=True)
        if own.here and own.moving is None and self.moves.keep_back(own.client_id):
            self._settle(own, Standing.CURRENT)
        else:
            self.moves.close(own.client_id, own.answered)
            self._settle(own, Standing.STALE)

    def _give_up_waiting(self, own: Own, number: Number) -> None:
        """A home before has not answered: it is silent, and its client as well."""
        if own.former and own.number == number and self._owns.get(own.client_id) is own:
            own.former.clear()
            self._go_in(own)
            self.moves.go_on_without(own.client_id)

    def yielded(self, sender: Peer, message: Yielded) -> None:
        """A home before has ended its connection, and may give the session."""
        own = self._owns.get(message.client_id)
        if own is None or own.number != message.number:
            if message.moving:
                self._streams.send(sender, Returned(message.client_id, message.number))
        elif message.moving:
            # The client is served without a session that comes late, or in addition to another.
            first = sender in own.former and not own.given
            own.given |= first
            begun = partial(self._has_come, own, sender) if first else None
            self.moves.expect(own.client_id, own.number, sender, begun)
            if not first:
                self._has_answered(own, sender)
        else:
            self._has_answered(own, sender)

    def _has_come(self, own: Own, sender: Peer, moving: MovingSession) -> None:
        own.moving = moving
        self._has_answered(own, sender)

    def _has_answered(self, own: Own, sender: Peer) -> None:
        if sender in own.former:
            del own.former[sender]
            own.answered.add(sender)
            if not own.former:
                self._go_in(own)

    def _hand_over(self, own: Own, message: Enrolled) -> None:
        """Another home has the client of a restored session: give it what waits here."""
        moving = self.clients.give_up(own.client_id, own.user, False)
        if moving is not None and message.former:
            self._give(own.client_id, message.number, message.former[0], moving)

    def _give(self, client_id: str, number: Number, to: Peer, moving: MovingSession) -> None:
        self._streams.send(to, Yielded(client_id, number, moving=True))
        self.moves.give(client_id, number, to, moving)

    def _restore(self, client_id: str, user: str | None) -> None:
        """A session that was leaving stays here, as the other home takes nothing."""
        if client_id not in self._owns:
            self.enrol(Enrolment(client_id, user, clean=False, kept=True, restored=True), _nobody_waits)

    def _lose(self, own: Own, standing: Standing) -> None:
        """The client id is not this peer's."""
        self.moves.refuse(own.client_id)
        if not self._settle(own, standing):
            self.clients.oust(own.client_id, standing)
        if self._owns.get(own.client_id) is own:
            self._drop(own)

    # Connections elsewhere

    def superseded(self, sender: Peer, message: Superseded) -> None:
        """A client has connected at another home, as the registry says."""
        own = self._owns.get(message.client_id)
        if own is None or own.number > message.number:
            return
        if own.number == NONE:
            own.overruled = max(own.overruled, message.number)
        else:
            self._lose(own, Standing.SUPERSEDED)

    def give_up(self, sender: Peer, message: Yield) -> None:
        """A client of this peer connects at another home, which waits for the end of the connection here."""
        own = self._owns.get(message.client_id)
        if own is not None and own.number == NONE:
            own.overruled = max(own.overruled, message.number)
        elif own is None or own.number < message.number:
            if own is not None:
                self.moves.refuse(own.client_id)
                self._settle(own, Standing.SUPERSEDED)
                if self._owns.get(own.client_id) is own:
                    self._drop(own)
            # Its connection may have ended before, or was closed as the registry said so; its session may be here, or
            # on its way to a home that has not served the client.
            self.moves.keep_back(message.client_id)
            moving = self.clients.give_up(message.client_id, message.user, message.clean)
            if moving is not None:
                self._give(message.client_id, message.number, sender, moving)
                return
        # Otherwise the client has come back here since.
        self._streams.send(sender, Yielded(message.client_id, message.number))

    # The coordinators

    def coordinators_changed(self) -> None:
        """Some partition may have another coordinator. Several of these calls in one iteration cost one look."""
        if not self._changed and self._places:
            self._changed = True
            self._state.join_later()

    def flush(self) -> None:
        """The end of an iteration."""
        if not self._changed:
            return
        self._changed = False
        self._directory.review()
        now = self._state.clock.now
        for place in self._places.values():
            peer = self._directory.peek(place.index)
            if peer is None:
                # This asks for it, and `coordinators_changed` follows.
                self._directory.coordinator(place.index)
            elif peer != place.coordinator and not place.refuses(peer, now):
                self._move(place, peer)

    def _move(self, place: Place, coordinator: Peer) -> None:
        """Another peer coordinates a partition: it may have begun without copies."""
        place.coordinator = coordinator
        self._repeat(place.owns)

    def _repeat(self, client_ids: Iterable[str]) -> None:
        """Send enrolments again, some in each of many iterations."""
        self._queue.update(dict.fromkeys(client_ids))
        if self._queue and not self._sending:
            self._sending = True
            self._state.after(0.0, self._send_queued)

    def _send_queued(self) -> None:
        sent = 0
        while self._queue and sent < MOST_AT_ONCE:
            own = self._owns.get(self._queue.popitem()[0])
            if own is not None:
                self._send(own, own.number)
                sent += 1
        self._sending = bool(self._queue)
        if self._sending:
            self._state.after(TURN_S, self._send_queued)

    def repeat_all(self) -> None:
        """Call it every `REPEAT_S`."""
        self._repeat(self._owns)

    def repeat_unanswered(self) -> None:
        """An answer may have been lost with its stream."""
        self._repeat([own.client_id for own in self._owns.values() if own.number == NONE])

    def elsewhere(self, sender: Peer, message: Elsewhere) -> None:
        """A peer does not coordinate these partitions."""
        now, referred = self._state.clock.now, False
        for partition in partitions_in(message.runs):
            place = self._places.get(partition)
            if place is not None and place.coordinator == sender:
                place.refuse(sender, now + self._state.config.retry_s)
                referred = True
        if referred:
            self._state.after(self._state.config.retry_s, self.coordinators_changed)

    def stream_lost(self, peer: Peer) -> None:
        """Requests to a peer may be missing there."""
        lost = [place for place in self._places.values() if place.coordinator == peer]
        if lost:
            # Not at once: a peer that has started again is lost with each item.
            self._state.after(self._state.config.retry_s, partial(self._begin_again, lost))
        self.moves.stream_lost(peer)

    def _begin_again(self, places: list[Place]) -> None:
        for place in places:
            self._repeat(place.owns)


def _nobody_waits(standing: Standing, moving: MovingSession | None = None) -> None:
    """When the client comes, the ring is asked again if another peer had it since."""
