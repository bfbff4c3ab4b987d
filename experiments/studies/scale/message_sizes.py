"""Bytes on a link for one publication, including the header of the frame, by the codec of the peers.

Each kind of message is encoded once. The part that grows with the number of subscribers is computed; a test compares
the result with the codec.
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
"""MessagePack needs 1 byte for the length of an array of up to SHORT_ARRAY elements, 3 up to LONG_ARRAY, 5 beyond."""


class Wire:
    """Message sizes for one payload with QoS 0 to one topic, among peers with addresses as long as that of `peer`."""

    __slots__ = ("_leaf", "_part", "down", "plain", "up")

    def __init__(self, peer: Peer, topic: str, payload_bytes: int, choice: Choice, recorded: bool) -> None:
        """A recorded publication carries a trace."""
        trace = Trace(0) if recorded else None
        body = FAST_HEAD + bytes(payload_bytes)
        publication = Publication(peer.boot, 1, 0, topic, body, trace=trace)
        self.plain = _framed(publication)
        """Size of a copy that goes directly to a subscriber."""
        self._part = _framed(replace(publication, relay=Relay(peer, choice.name, choice.fanout, ())))
        self._leaf = _framed(replace(publication, relay=Relay(peer, choice.name, choice.fanout, (Leaf(peer, 0, 0),))))
        self._leaf -= self._part
        self.up, self.down = (
            _framed(Publication(peer.boot, 1, 0, topic, wrap(peer, up, publication))) for up in (True, False)
        )
        """Sizes of a copy to the root of a Scribe tree, and of a copy from the root."""

    def relayed(self, part: int) -> int:
        """Size of a copy in a tree whose receiver must serve `part` further subscribers."""
        head = 0 if part <= SHORT_ARRAY else 2 if part <= LONG_ARRAY else 4
        return self._part + head + part * self._leaf


def _framed(publication: Publication) -> int:
    return HEADER_BYTES + len(encode(publication))
