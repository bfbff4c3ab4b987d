"""Interns peers, names and numbers of records, to save memory: each record is decoded with objects of its own.

A coordinator of many places has few subscriber peers, each in a thousand records.
"""

from __future__ import annotations

from typing import Final

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Record

MAX_PEERS: Final = 4096
"""Peers remembered. Beyond, all are forgotten, and later records share new objects."""


class Sharing:
    """One per core."""

    __slots__ = ("_peers",)

    def __init__(self) -> None:
        self._peers: dict[Id, Peer] = {}

    def of(self, record: Record, place: str) -> Record:
        """An equal record of this place that takes less memory."""
        name = place if record.name == place else record.name
        peer, number = record.peer, record.number
        if peer is not None:
            peer = self._same(peer)
            # Entries are numbered by (boot, count): each entry of a peer repeats the boot, a time in ms and thus an
            # object of 32 bytes.
            if number[0] == peer.boot:
                number = (peer.boot, number[1])
        return Record(record.kind, name, peer, number, record.gone, record.confirmed, record.body)

    def _same(self, peer: Peer) -> Peer:
        known = self._peers.get(peer.id)
        if known == peer:
            return known
        if len(self._peers) >= MAX_PEERS:
            self._peers.clear()
        self._peers[peer.id] = peer
        return peer
