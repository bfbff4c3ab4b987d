"""The fast path: format of a message that needs no decision at its publisher's peer, nor at its receivers.

Most messages have QoS 0, no properties, no retain flag and no trace, and their subscribers are known. Such a message
goes from the publisher's socket to the subscribers' sockets without a `Publication` or a `Message` being built. Each
step asks one question, and a No takes the general path, which accepts every message:

| step | function | question |
|---|---|---|
| front | `EngineAdapter.plain_published` | the front's own fast path brought it; is it not recorded? |
| publisher | `Publisher.publish_fast` | is the plan of the topic fast, and can it be trusted? |
| receiver | `decode_fast` | the flags are FAST |
| receiver's clients | `LocalClients.deliver_fast` | the body begins with FAST_HEAD, and their front has a fast path |

Both paths share links, sequence numbers and `ReceiveWindows`, so a message of one path never overtakes one of the
other.
"""

from __future__ import annotations

import struct
from typing import Final

from ringmq.peer.messaging.body import NO_PROPERTIES

HEAD: Final = struct.Struct(">BBHQQ")
"""The fixed header of every publication: kind, flags, length of the topic, boot and sequence."""
PUBLICATION: Final = b"P"
"""The first byte of every publication."""
UNSHARED: Final = 0x08
"""The flag of a message for subscriptions that are not shared."""
FAST: Final = UNSHARED
"""All flags of a message of the fast path: with QoS 0, without any option."""

FAST_HEAD: Final = NO_PROPERTIES
"""The beginning of a body of the fast path, before the payload."""


def encode_fast(seq: int, boot: int, topic: bytes, body: bytes) -> bytes:
    """The same bytes as `publication.encode` gives."""
    return b"".join((HEAD.pack(PUBLICATION[0], FAST, len(topic), boot, seq), topic, body))


def decode_fast(payload: bytes) -> tuple[int, int, bytes, bytes] | None:
    """Boot, sequence, topic and body; None if the payload needs the general path."""
    if len(payload) < HEAD.size or payload[0] != PUBLICATION[0] or payload[1] != FAST:
        return None
    _, _, size, boot, seq = HEAD.unpack_from(payload)
    start = HEAD.size + size
    # A truncated payload is left to the general path, which counts it as unreadable.
    if start > len(payload):
        return None
    return boot, seq, payload[HEAD.size : start], payload[start:]
