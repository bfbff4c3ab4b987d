"""All that this peer holds, by place, and who is nearest to each of their keys.

Owns the watching of keys: a key is watched while any place of it is held. What comes back from the disk rests until its
turn has come, or somebody asks for its place: then it is held like what any peer holds that was away. In the same way
those places are gone through whose owners have changed, which may be all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from math import inf
from typing import Final

from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Kind, Record
from ringmq.peer.messaging.context import State
from ringmq.peer.replication.replica import Holding

SPARE: Final = 2
"""So many more than the shadows are asked for what they hold: shadows of a moment ago, pushed out by newcomers."""
REVIEWED_AT_ONCE: Final = 800
REVIEW_S: Final = 0.1
"""So many places are reviewed in so much time, which takes half of it. A peer that goes through 100,000 in one turn
would not be heard meanwhile, and taken for dead."""
LASTING: Final = (Kind.RETAINED, Kind.NOTE)
"""What is kept on the disk. All else is renewed by those whom it is about."""


class Holdings:
    """A table of holdings. `review` is called when others are nearest to the key of one."""

    __slots__ = (
        "_by_key", "_due", "_left", "_places", "_refilled_at", "_rested_at", "_resting", "_state", "_waiting", "look",
        "review",
    )  # fmt: skip

    def __init__(self, state: State) -> None:
        self._state = state
        self._places: dict[str, Holding] = {}
        self._by_key: dict[Id, tuple[Holding, ...]] = {}
        self._resting: dict[str, list[Record]] = {}
        self._rested_at = 0.0
        self._due: dict[Holding, None] = {}
        """To be reviewed."""
        self._left = 0
        self._refilled_at = -inf
        self._waiting = False
        self.review: Callable[[Holding], None] = lambda holding: None
        self.look: Callable[[Holding], None] = lambda holding: None

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Holding]:
        return iter(list(self._places.values()))

    def get(self, place: str) -> Holding | None:
        holding = self._places.get(place)
        if holding is None and place in self._resting:
            return self.open(place)
        if holding is not None:
            self._catch_up(holding)
        return holding

    def _catch_up(self, holding: Holding) -> None:
        """What is asked for now does not wait for its turn: others go by the owners of today, and so must this peer."""
        self._ask_for_news(holding.key)
        if holding in self._due:
            del self._due[holding]
            self.review(holding)

    def _ask_for_news(self, key: Id) -> None:
        owners = self._state.overlay.news(key)
        if owners is not None:
            self._belongs_to(key, owners)
            self._review_later()

    def open(self, place: str) -> Holding:
        """What is held of a place; from now on something is."""
        holding = self._places.get(place)
        if holding is not None:
            return holding
        holding = self._places[place] = Holding(place, self._state.me.id)
        at_key = self._by_key.get(holding.key, ())
        if at_key:
            self._ask_for_news(holding.key)
            holding.owners = at_key[0].owners
        else:
            holding.owners = self._state.overlay.watch(holding.key, self._state.config.shadows + 1 + SPARE)
        self._by_key[holding.key] = (*at_key, holding)
        for record in self._resting.pop(place, ()):
            holding.take(record, self._rested_at, self._state.config)
        self.look_soon(holding, self._state.config.look_s)
        return holding

    # What was on the disk

    @property
    def resting(self) -> int:
        """Places that wait for their turn to come back."""
        return len(self._resting)

    def restore(self, records: dict[str, list[Record]]) -> None:
        """What was held of each place, as of now. Before anything happens."""
        self._resting = records
        self._rested_at = self._state.clock.now
        stamps = [record.number[0] for kept in records.values() for record in kept if record.kind is Kind.RETAINED]
        self._state.hybrid_clock = max(self._state.hybrid_clock, *stamps, 0)

    def rests(self, place: str) -> bool:
        return place in self._resting

    def rest(self, record: Record) -> None:
        """A retained message of this peer alone, which the ring has not seen. Before anything happens."""
        self._resting[record.name] = [record]
        self._state.keep(record.name, record)

    def wake(self) -> bool:
        """Bring some of it back; whether there is more."""
        for place in list(islice(reversed(self._resting), self._state.config.restored_at_once)):
            self.review(self.open(place))
        return bool(self._resting)

    def close(self, holding: Holding) -> None:
        """Hold it no longer."""
        if any(record.kind in LASTING and not record.gone for record in holding.book):
            self._state.leave(holding.place)
        del self._places[holding.place]
        self._due.pop(holding, None)
        at_key = tuple([other for other in self._by_key.pop(holding.key) if other is not holding])
        if at_key:
            self._by_key[holding.key] = at_key
        else:
            self._state.overlay.unwatch(holding.key)

    def sweep(self) -> None:
        """Keep no room for many that were left. To be called now and then."""
        self._places = slimmed(self._places)
        self._by_key = slimmed(self._by_key)
        self._due = slimmed(self._due)
        self._resting = slimmed(self._resting)

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self._belongs_to(key, owners)
        self._review_some()

    def _belongs_to(self, key: Id, owners: tuple[Peer, ...]) -> None:
        for holding in self._by_key.get(key, ()):
            holding.owners = owners
            holding.doubts = 0
            self._due[holding] = None

    def review_all(self) -> None:
        self._due.update(dict.fromkeys(self._places.values()))
        self._review_some()

    def _review_some(self) -> None:
        """Those that there is time for now, and the others later."""
        state = self._state
        if self._refilled_at + REVIEW_S <= state.clock.now:
            self._left, self._refilled_at = REVIEWED_AT_ONCE, state.clock.now
        while self._due and self._left:
            self._left -= 1
            holding, _ = self._due.popitem()
            self.review(holding)
        self._review_later()

    def _review_later(self) -> None:
        if self._due and not self._waiting:
            self._waiting = True
            self._state.after(max(0.0, self._refilled_at + REVIEW_S - self._state.clock.now), self._go_on)

    def _go_on(self) -> None:
        self._waiting = False
        self._review_some()

    def first(self, holding: Holding) -> bool:
        """Whether this peer is to coordinate the place."""
        state = self._state
        return state.overlay.active and bool(holding.owners) and holding.owners[0].id == state.me.id

    def shadows(self, holding: Holding) -> tuple[Peer, ...]:
        """Who is to hold copies while this peer coordinates."""
        return holding.owners[1 : self._state.config.shadows + 1]

    def belongs(self, holding: Holding) -> bool:
        """Whether this peer is to hold it at all."""
        me = self._state.me.id
        return any(peer.id == me for peer in holding.owners[: self._state.config.shadows + 1])

    def look_soon(self, holding: Holding, delay_s: float) -> None:
        """Look at it after a while, unless a look is ahead that comes sooner. Infinite: nothing is to be looked for."""
        holding.look_at = min(holding.look_at, self._state.clock.now + delay_s)
        self._plan(holding)

    def _plan(self, holding: Holding) -> None:
        """One that was planned before and comes in time will do: it plans the rest."""
        if holding.look_at < inf and not any(at <= holding.look_at for at in holding.looks):
            holding.looks += (holding.look_at,)
            self._state.agenda.at(holding.look_at, self._look, holding)

    def _look(self, now: float, subject: object) -> None:
        assert isinstance(subject, Holding)
        holding = subject
        holding.looks = tuple([at for at in holding.looks if at > now])
        if self._places.get(holding.place) is not holding:
            return
        if holding.look_at > now:
            self._plan(holding)
        else:
            holding.look_at = inf
            self._catch_up(holding)
            self.look(holding)
