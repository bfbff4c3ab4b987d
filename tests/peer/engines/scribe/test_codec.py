"""Messages of the trees and envelopes as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.scribe.codec import Way, decode, encode_tree, is_tree, unwrap, wrap
from ringmq.peer.engines.scribe.messages import Beat, Branch, Join, RootCopy, RootQuery, TreeMessage
from ringmq.peer.messaging.messages import Held
from ringmq.peer.messaging.publication import Publication, encode_control
from tests.peer.engines.scribe.alone import peer_at

A = peer_at(7)


@pytest.mark.parametrize(
    "message",
    [
        Join("a/#", A, True),
        Beat((Branch("a", (A.id,)),)),
        RootCopy("a", None, None),
        RootCopy("a", (A,), None),
        RootQuery(("a",), 1.5),
    ],
)
def test_messages_come_back(message: TreeMessage) -> None:
    payload = encode_tree(message)
    assert is_tree(payload)
    assert decode(payload) == message


def test_other_payloads_are_read_too() -> None:
    held = Held(1, 2, ())
    assert decode(encode_control(held)) == held
    assert not is_tree(encode_control(held))


@given(st.binary(max_size=50), st.text(max_size=20), st.booleans(), st.integers(0, 2))
def test_envelopes_come_back(body: bytes, topic: str, up: bool, qos: int) -> None:
    publication = Publication(3, 9, qos, topic, body, retain=up, stamp=5 if up else 0)
    way, inner = unwrap(wrap(A, up, publication))
    assert way == Way(A, up)
    assert inner == publication


@given(st.binary(max_size=60))
def test_garbage_gives_the_one_error(body: bytes) -> None:
    for read in (unwrap, lambda body: decode(b"S" + body)):
        try:
            read(body)
        except ProtocolError:
            continue


def test_an_envelope_needs_a_publication() -> None:
    with pytest.raises(ProtocolError, match="without a publication"):
        unwrap(b"\0\0" + encode_control(Held(1, 2, ())))
    with pytest.raises(ProtocolError, match="ends early"):
        unwrap(b"\0")
