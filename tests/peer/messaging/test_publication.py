"""Every message survives the way, and what is no message is refused in one way only."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.partitioned.messages import Here, Where
from ringmq.peer.messaging.messages import Control, Held
from ringmq.peer.messaging.publication import (
    Leaf,
    Publication,
    Relay,
    Trace,
    decode,
    encode,
    encode_control,
    head_of,
    tail_of,
)
from ringmq.peer.streams.stream_messages import Batch, BatchAck, Lane

PEER = Peer(Id(1 << 127), "10.0.0.1", 4883, 7)
count = st.integers(0, (1 << 63) - 1)
relays = st.builds(
    Relay,
    st.just(PEER),
    st.just("guided"),
    st.integers(1, 9),
    st.lists(st.builds(Leaf, st.just(PEER), count, count), max_size=3).map(tuple),
)


@given(
    st.integers(0, 2), st.text(min_size=1, max_size=9), st.binary(max_size=9), st.booleans(), st.booleans(),
    st.lists(st.text(max_size=5), max_size=2).map(tuple), st.none() | relays, count, st.booleans(),
)  # fmt: skip
def test_decoded_publication_equals_the_encoded_one(
    qos: int,
    topic: str,
    body: bytes,
    retain: bool,
    unshared: bool,
    shared: tuple[str, ...],
    relay: Relay | None,
    number: int,
    clears: bool,
) -> None:
    one = Publication(3, number, qos, topic, body, retain, number if retain else 0, unshared=unshared, shared=shared)
    one.relay, one.clears = relay, clears
    one.number = one.base = number if qos else 0
    one.trace = Trace(number, number % 256) if number % 2 else None
    assert decode(encode(one)) == one
    assert head_of(one) + tail_of(one) == encode(one)


@pytest.mark.parametrize(
    "message",
    [
        Held(7, 3, (5, 6)),
        Batch(Lane.BULK, 9, 1, 2, True, True, (b"\0", b"item"), (BatchAck(Lane.CONTROL, 9, 3, 4, (2,)),)),
        BatchAck(Lane.CONTROL, 9, 3, 4, (), True),
        Where(4095, PEER),
        Here(((0, 7), (4095, 4095))),
    ],
)
def test_decoded_control_message_equals_the_encoded_one(message: Control) -> None:
    assert decode(encode_control(message)) == message


@given(st.binary(max_size=80), st.sampled_from([b"", b"P", b"C", b"P\x3f\x00\x01"]))
def test_garbage_gives_only_the_protocol_error(garbage: bytes, start: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode(start + garbage)


def test_truncated_publication_is_refused() -> None:
    whole = encode(Publication(1, 2, 1, "topic", b"", True, 5, shared=("$share/g/f",)))
    for end in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode(whole[:end])


def test_a_trace_counts_links_and_no_further_than_it_can() -> None:
    one = Publication(1, 2, 0, "t", b"x", trace=Trace(5, 254, sends=3))
    assert one.onward().trace == Trace(5, 255)
    assert one.onward().onward().trace == Trace(5, 255)
    assert one.trace == Trace(5, 254, sends=3)
    plain = Publication(1, 2, 0, "t", b"x")
    assert plain.onward() is plain


@pytest.mark.parametrize(
    "one",
    [
        Publication(1, 2, 0, "t", b"x", trace=Trace(1 << 63)),
        Publication(1 << 63, 2, 0, "t", b"x", trace=Trace(1)),
        Publication(1, 1 << 63, 0, "t", b"x", trace=Trace(1)),
        Publication(1 << 63, 2, 1, "t", b"x", number=1, base=1),
        Publication(1, 1 << 63, 1, "t", b"x", number=1, base=1),
        Publication(1, 2, 1, "t", b"x", number=1 << 63, base=1),
        Publication(1, 2, 1, "t", b"x", number=1, base=(1 << 64) - 1),
        Publication(1, 2, 0, "t", b"x", retain=True, stamp=1 << 63),
    ],
)
def test_a_number_that_no_answer_and_no_record_has_room_for_is_refused(one: Publication) -> None:
    with pytest.raises(ProtocolError):
        decode(encode(one))
