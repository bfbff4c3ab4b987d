"""The errors of Scribe: one root class, below that of `peer`."""

from __future__ import annotations

from ringmq.peer.errors import PeerError


class ScribeError(PeerError):
    """The root of everything that `peer.engines.scribe` raises on purpose."""


class SharedFilterError(ScribeError):
    """A shared filter was subscribed to: ask `serves` before, and refuse it."""
