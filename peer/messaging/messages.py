"""Control messages between peers, whatever their engine: acknowledgements of publications, and what engines send.

Items inside the streams of the partitioned engine are in `engines/partitioned/messages.py`, messages of trees in
`engines/scribe/messages.py`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.overlay.core.messages import Count
from ringmq.peer.engines.partitioned.messages import Alive, Check, Here, Silent, Where
from ringmq.peer.replication.record import Name
from ringmq.peer.streams.stream_messages import Batch, BatchAck

MAX_ITEMS: Final = 1 << 20
"""Items of one list; the size of a frame is the tighter bound."""

Names = Annotated[tuple[Name, ...], Meta(max_length=MAX_ITEMS)]


class Unserved(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message for these groups, which have no client at the receiver any more."""

    number: Count
    groups: Names


# Tags are on the wire, and those of the others stand with their classes. Numbers below 20 belonged
# to the engine before the partitions: they are not used again.
class Held(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """The sender has received every message of the publisher's `boot` up to `up_to`, and those in
    `beyond`. Other peers must serve the groups in `unserved`."""

    boot: Count
    up_to: Count
    beyond: Annotated[tuple[Count, ...], Meta(max_length=MAX_ITEMS)]
    unserved: Annotated[tuple[Unserved, ...], Meta(max_length=MAX_ITEMS)] = ()


Control = Held | Batch | BatchAck | Where | Here | Silent | Check | Alive
