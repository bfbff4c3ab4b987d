"""The errors of the baseline: one root, below that of all of `peer`."""

from __future__ import annotations

from ringmq.peer.errors import PeerError


class ScribeError(PeerError):
    """The root of everything that `peer.engines.scribe` raises on purpose."""


class SharedFilterError(ScribeError):
    """A shared filter was subscribed to: ask `serves` before, and tell the client so."""
