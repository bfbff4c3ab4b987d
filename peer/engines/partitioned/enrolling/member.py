"""The body of the record of a client id: what its coordinator and its shadows know beside the home and the number."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.overlay.core.codec import Codec
from ringmq.overlay.core.messages import Count, Peer
from ringmq.peer.engines.partitioned.enrolling.messages import (
    MOST_FORMER,
)


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A client id in the hands of a home."""

    token: Count
    """Of the connection, by its home."""
    user: str | None = None
    kept: bool = False
    """Whether the session outlives the connection."""
    former: Annotated[tuple[Peer, ...], Meta(max_length=MOST_FORMER)] = ()
    """The homes before, the last one first, until they have given up the client: a successor of the coordinator must
    name them to a home that asks again."""


_codec: Final = Codec[Member](Member)
encode_member: Final = _codec.encode
decode_member: Final = _codec.decode
