"""What this peer does with what the ring hands it. It only counts: the roles of `peer.pubsub` are to take its place.

Plain calls from the ring core, no I/O. Knows nothing of processes or settings.
"""

from __future__ import annotations

from collections.abc import Callable

from overlay.ids import Id
from overlay.messages import Peer


class CountingApplication:
    """The overlay's `Application`: takes everything, keeps the numbers, tells one listener when the peer is active."""

    def __init__(self, on_activity: Callable[[bool], None]) -> None:
        self.delivered = 0
        self.forwarded = 0
        self.received = 0
        self.undelivered = 0
        self._on_activity = on_activity

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None:
        self.delivered += 1

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        self.forwarded += 1
        return True

    def receive(self, sender: Peer, payload: bytes) -> None:
        self.received += 1

    def undeliverable(self, key: Id, payload: bytes) -> None:
        self.undelivered += 1

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        """Nothing here watches keys."""

    def activity_changed(self, active: bool) -> None:
        self._on_activity(active)
