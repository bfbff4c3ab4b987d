"""All that this peer holds, by place, and who is nearest to each of their keys.

Owns the watching of keys: a key is watched while any place of it is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from overlay.ids import Id
from overlay.messages import Peer
from peer.pubsub.holding import Holding
from peer.pubsub.state import State

SPARE: Final = 2
"""So many more than the shadows are asked for what they hold: shadows of a moment ago, pushed out by newcomers."""


class Holdings:
    """A table of holdings. `review` is called when others are nearest to the key of one."""

    __slots__ = ("_by_key", "_places", "_state", "look", "review")

    def __init__(self, state: State) -> None:
        self._state = state
        self._places: dict[str, Holding] = {}
        self._by_key: dict[Id, dict[str, Holding]] = {}
        self.review: Callable[[Holding], None] = lambda holding: None
        self.look: Callable[[Holding], None] = lambda holding: None

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Holding]:
        return iter(list(self._places.values()))

    def get(self, place: str) -> Holding | None:
        return self._places.get(place)

    def open(self, place: str) -> Holding:
        """What is held of a place; from now on something is."""
        holding = self._places.get(place)
        if holding is not None:
            return holding
        holding = self._places[place] = Holding(place, self._state.me.id)
        at_key = self._by_key.get(holding.key)
        if at_key is None:
            at_key = self._by_key[holding.key] = {}
            holding.owners = self._state.overlay.watch(holding.key, self._state.config.shadows + 1 + SPARE)
        else:
            holding.owners = next(iter(at_key.values())).owners
        at_key[place] = holding
        self.look_soon(holding, self._state.config.look_s)
        return holding

    def close(self, holding: Holding) -> None:
        """Hold it no longer."""
        del self._places[holding.place]
        at_key = self._by_key[holding.key]
        del at_key[holding.place]
        if not at_key:
            del self._by_key[holding.key]
            self._state.overlay.unwatch(holding.key)

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        for holding in self._of_key(key):
            holding.owners = owners
            self.review(holding)

    def _of_key(self, key: Id) -> Iterable[Holding]:
        return list(self._by_key.get(key, {}).values())

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
        """Look at it after a while; there is one such look ahead at any time."""
        if not holding.looking:
            holding.looking = True
            self._state.after(delay_s, lambda: self._look(holding))

    def _look(self, holding: Holding) -> None:
        holding.looking = False
        if self._places.get(holding.place) is holding:
            self.look(holding)
