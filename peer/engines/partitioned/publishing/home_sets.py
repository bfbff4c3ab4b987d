"""Sets of peers, interned: most filters of a ring are wanted by one of few sets of homes.

A set is a sorted tuple of slots, and a slot stands for a peer. A route is thus one small number. Knows no filters.
"""

from __future__ import annotations

from typing import Final

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer

Slots = tuple[int, ...]
"""Peers as indices into `HomeSets.peers`, in ascending order."""
NONE: Final[Slots] = ()


class HomeSets:
    """One per table of routes. A set lives as long as a route counts it, a peer as long as a set has it."""

    __slots__ = (
        "_counts",
        "_emptied",
        "_free_sets",
        "_free_slots",
        "_numbers",
        "_slots",
        "_uses",
        "peers",
        "sets",
        "version",
    )

    def __init__(self) -> None:
        self.sets: list[Slots] = []
        """Each set by its number."""
        self.peers: list[Peer] = []
        """Each peer by its slot. A free slot has its last peer."""
        self.version = 0
        """Changes when a slot stands for another peer than before, or for a peer that has restarted."""
        self._numbers: dict[Slots, int] = {}
        self._counts: list[int] = []
        """Routes with each set."""
        self._free_sets: list[int] = []
        self._slots: dict[Id, int] = {}
        self._uses: list[int] = []
        """Sets with each peer."""
        self._free_slots: list[int] = []
        self._emptied: dict[int, bool] = {}
        """Slots that no set has now, and whether the last route of their peer expired."""

    def __contains__(self, peer_id: Id) -> bool:
        slot = self._slots.get(peer_id)
        return slot is not None and self._uses[slot] > 0

    def known(self, peer_id: Id) -> int | None:
        """The slot of a peer."""
        return self._slots.get(peer_id)

    def slot_of(self, peer: Peer) -> int:
        """The slot of a peer that a route is about to name."""
        slot = self._slots.get(peer.id)
        if slot is None:
            if self._free_slots:
                slot = self._free_slots.pop()
                self.peers[slot] = peer
            else:
                slot = len(self.peers)
                self.peers.append(peer)
                self._uses.append(0)
            self._slots[peer.id] = slot
            # Only a set that takes it in will end this: a slot without a use is free at the next `settle`.
            self._emptied[slot] = False
        elif peer.boot > self.peers[slot].boot:
            # A restart changes the boot of a peer, and perhaps its address: both are in plans. A coordinator that is
            # behind may still name the earlier boot, whose process is gone.
            self.peers[slot] = peer
            self.version += 1
        return slot

    def take(self, slots: Slots, routes: int = 1) -> int:
        """The number of a set that further routes have from now on."""
        number = self._numbers.get(slots)
        if number is None:
            if self._free_sets:
                number = self._free_sets.pop()
                self.sets[number] = slots
                self._counts[number] = 0
            else:
                number = len(self.sets)
                self.sets.append(slots)
                self._counts.append(0)
            self._numbers[slots] = number
            for slot in slots:
                self._uses[slot] += 1
        self._counts[number] += routes
        return number

    def leave(self, number: int, expired: bool = False) -> None:
        """A route has this set no more."""
        self._counts[number] -= 1
        if self._counts[number]:
            return
        slots = self.sets[number]
        del self._numbers[slots]
        self.sets[number] = NONE
        self._free_sets.append(number)
        for slot in slots:
            self._uses[slot] -= 1
            if not self._uses[slot]:
                self._emptied[slot] = expired

    def settle(self) -> list[tuple[Id, bool]]:
        """Forget peers without a route, and return them, each with whether its last route expired.

        Call it after all changes of a message: a list that begins again leaves its peers for a moment.
        """
        left: list[tuple[Id, bool]] = []
        for slot, expired in self._emptied.items():
            if not self._uses[slot]:
                peer_id = self.peers[slot].id
                del self._slots[peer_id]
                self._free_slots.append(slot)
                self.version += 1
                left.append((peer_id, expired))
        self._emptied.clear()
        return left
