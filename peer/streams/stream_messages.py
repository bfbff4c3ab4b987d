"""The messages of streams between two peers: batches of items, and their acknowledgements."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from ringmq.overlay.core.messages import Count

MAX_ITEMS = 1 << 16
"""Items of one batch; the size of a frame is the tighter bound."""


class Lane(IntEnum):
    """Items of one lane are in order. Between lanes there is no order, so that no transfer delays a SUBACK."""

    CONTROL = 0
    LOG = 1
    BULK = 2


class BatchAck(msgspec.Struct, frozen=True, array_like=True, tag=23, gc=False):
    """The sender has processed and committed all batches of this stream and lane up to `seq`.

    `owed`: batches up to `seq` whose effect is not complete yet; another acknowledgement follows. `unknown`: the sender
    knows nothing of this stream, and needs all of it. `boot`: of the peer that began the stream, as numbers of streams
    begin again with each start of a process.
    """

    lane: Lane
    boot: Count
    stream: Count
    seq: Count
    owed: Annotated[tuple[Count, ...], Meta(max_length=MAX_ITEMS)] = ()
    unknown: bool = False


class Batch(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """Items of one stream and lane. A peer begins a stream with a higher number when it has closed its last stream.

    `urgent`: somebody waits for the acknowledgement; otherwise it may ride on a later message. `patient`: nobody waits
    for it before the next message in any case. `boot`: of the receiver,
    so that it does not process them after its next start. `known`: the receiver has acknowledged a batch of this
    stream; otherwise a gap is a loss, not a receiver that has forgotten the stream.
    """

    lane: Lane
    boot: Count
    stream: Count
    seq: Count
    urgent: bool
    known: bool
    items: Annotated[tuple[bytes, ...], Meta(max_length=MAX_ITEMS)]
    acks: Annotated[tuple[BatchAck, ...], Meta(max_length=8)] = ()
    patient: bool = False
