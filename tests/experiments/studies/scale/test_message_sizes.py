"""Computed sizes equal the lengths of encoded messages."""

from __future__ import annotations

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.studies.scale.message_sizes import Wire
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.links.frames import Kind, frame
from ringmq.peer.engines.scribe.codec import wrap
from ringmq.peer.messaging.fast_path import FAST_HEAD, encode_fast
from ringmq.peer.messaging.publication import Leaf, Publication, Relay, Trace, encode

PEER = Peer(Id(5), "127.0.0.1", 20_000, 1 << 40)
BODY = FAST_HEAD + bytes(100)
GUIDED = Choice("guided", 5)


def wire(*, recorded: bool = False) -> Wire:
    return Wire(PEER, "topic-1", 100, GUIDED, recorded)


def test_size_of_a_direct_copy_equals_the_fast_path_message() -> None:
    payload = encode_fast(1, PEER.boot, b"topic-1", BODY)
    assert wire().plain == len(frame(Kind.PARCEL, payload))


@pytest.mark.parametrize("part", [0, 1, 15, 16, 300, 65_535, 65_536])
def test_size_of_a_copy_in_a_tree_includes_its_part_of_the_list(part: int) -> None:
    leaves = tuple([Leaf(Peer(Id(number << 90), "127.0.0.1", 31_000, 1 << 41), 0, 0) for number in range(part)])
    publication = Publication(PEER.boot, 1, 0, "topic-1", BODY, relay=Relay(PEER, "guided", 5, leaves), trace=Trace(7))
    assert wire(recorded=True).relayed(part) == len(frame(Kind.PARCEL, encode(publication)))


def test_sizes_of_scribe_copies_include_the_envelope() -> None:
    publication = Publication(PEER.boot, 9, 0, "topic-1", BODY)
    for up, size in ((True, wire().up), (False, wire().down)):
        envelope = Publication(PEER.boot, 3, 0, "topic-1", wrap(PEER, up, publication))
        assert size == len(frame(Kind.PARCEL, encode(envelope)))


def test_trace_adds_the_same_bytes_to_every_kind_of_copy() -> None:
    with_trace, without = wire(recorded=True), wire()
    more = [with_trace.plain - without.plain, with_trace.relayed(3) - without.relayed(3), with_trace.up - without.up]
    assert more == [9, 9, 9]
