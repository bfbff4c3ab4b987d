"""How many bytes a link carries for one publication, by the codec of the peers, the frame's header among them.

Each kind of message is encoded once. What grows with the number of subscribers is computed, and a test encodes it.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ringmq.dispatching.algorithms import Choice
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.links.frames import HEADER_BYTES
from ringmq.peer.engines.scribe.codec import wrap
from ringmq.peer.messaging.fast_path import FAST_HEAD
from ringmq.peer.messaging.publication import Leaf, Publication, Relay, Trace, encode

SHORT_ARRAY: Final = 15
LONG_ARRAY: Final = 0xFFFF
"""MessagePack writes the length of an array in 1 byte up to the first, in 3 up to the second, in 5 beyond."""


class Wire:
    """Of one payload with QoS 0 to one topic, among peers whose addresses are all as long as that of `peer`."""

    __slots__ = ("_leaf", "_part", "down", "plain", "up")

    def __init__(self, peer: Peer, topic: str, payload_bytes: int, choice: Choice, recorded: bool) -> None:
        """A recorded publication bears a trace."""
        trace = Trace(0) if recorded else None
        body = FAST_HEAD + bytes(payload_bytes)
        one = Publication(peer.boot, 1, 0, topic, body, trace=trace)
        self.plain = _framed(one)
        """Straight to a subscriber."""
        self._part = _framed(replace(one, relay=Relay(peer, choice.name, choice.fanout, ())))
        self._leaf = _framed(replace(one, relay=Relay(peer, choice.name, choice.fanout, (Leaf(peer, 0, 0),))))
        self._leaf -= self._part
        self.up, self.down = (_framed(Publication(peer.boot, 1, 0, topic, wrap(peer, up, one))) for up in (True, False))
        """To the root of a tree of Scribe, and from it."""

    def relayed(self, part: int) -> int:
        """To one that passes it on to so many."""
        head = 0 if part <= SHORT_ARRAY else 2 if part <= LONG_ARRAY else 4
        return self._part + head + part * self._leaf


def _framed(publication: Publication) -> int:
    return HEADER_BYTES + len(encode(publication))
