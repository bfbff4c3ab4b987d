"""Both paths use one format, and the fast one accepts nothing but messages without any option."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ringmq.mqtt_front.message import Message
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.fast_path import FAST_HEAD, decode_fast, encode_fast
from ringmq.peer.messaging.messages import Held
from ringmq.peer.messaging.publication import Publication, Trace, encode, encode_control

count = st.integers(0, (1 << 63) - 1)


@given(st.text(max_size=9), st.binary(max_size=9), count, count)
def test_fast_encoding_gives_the_bytes_of_the_general_one(topic: str, body: bytes, boot: int, seq: int) -> None:
    payload = encode_fast(seq, boot, topic.encode(), body)
    assert payload == encode(Publication(boot, seq, 0, topic, body))
    assert decode_fast(payload) == (boot, seq, topic.encode(), body)


def test_a_publication_with_any_option_needs_the_general_path() -> None:
    plain = Publication(1, 2, 0, "topic", b"x")
    for name, value in (
        ("qos", 1),
        ("retain", True),
        ("unshared", False),
        ("shared", ("$share/g/a",)),
        ("clears", True),
    ):
        assert decode_fast(encode(replace(plain, **{name: value}))) is None
    assert decode_fast(encode(plain)[:24]) is None, "it ends in its topic"
    assert decode_fast(encode(plain)[:9]) is None
    assert decode_fast(encode_control(Held(7, 3, ()))) is None
    assert decode_fast(b"") is None


def test_a_recorded_message_needs_the_general_path() -> None:
    publication = Publication(1, 2, 0, "t", b"x")
    assert decode_fast(encode(publication)) is not None
    publication.trace = Trace(1)
    assert decode_fast(encode(publication)) is None


def test_the_head_is_that_of_a_body_without_properties() -> None:
    assert encode_body(Message("t", b"payload"), 0.0) == FAST_HEAD + b"payload"
