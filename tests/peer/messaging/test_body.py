"""The front's message inside a publication."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.message import Message, WillMessage
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.messaging.body import NO_PROPERTIES, aged, decode_body, encode_body, payload_bytes, remaining_of

TOKEN = bytes(range(16))


@given(st.binary(max_size=9), st.binary(max_size=9), st.integers(0, 2), st.none() | st.integers(0, 1 << 32 - 1))
def test_body_keeps_the_message_and_its_remaining_time(
    payload: bytes, properties: bytes, qos: int, expiry_s: int | None
) -> None:
    expires_at = None if expiry_s is None else 100.0 + expiry_s
    message = Message("t", payload, qos, True, properties, expires_at, "client")
    got = decode_body("t", encode_body(message, 100.0), None, True, 500.0)
    assert (got.payload, got.properties, got.qos, got.retain) == (payload, properties, qos, True)
    assert got.expires_at == (None if expiry_s is None else 500.0 + expiry_s)
    assert got.origin == "", "who published it is nobody's business elsewhere"
    assert decode_body("t", encode_body(message, 0.0), 0, False, 0.0).qos == 0


@given(st.binary(max_size=9), st.binary(max_size=9), st.integers(1, 2), st.none() | st.integers(0, 1 << 32 - 1))
def test_body_of_a_will_keeps_its_token(payload: bytes, properties: bytes, qos: int, expiry_s: int | None) -> None:
    expires_at = None if expiry_s is None else 100.0 + expiry_s
    will = WillMessage("t", payload, qos, True, properties, expires_at, "client", TOKEN)
    body = encode_body(will, 100.0)
    assert payload_bytes(body) == len(payload)
    assert remaining_of(body) == expiry_s
    got = decode_body("t", body, None, True, 500.0)
    assert isinstance(got, WillMessage)
    assert (got.payload, got.properties, got.qos, got.retain, got.token) == (payload, properties, qos, True, TOKEN)
    assert got.expires_at == (None if expiry_s is None else 500.0 + expiry_s)
    with pytest.raises(ProtocolError):
        decode_body("t", body[: len(body) - len(payload) - 1], None, True, 500.0)


def test_body_without_properties_begins_with_a_constant_head() -> None:
    assert encode_body(Message("t", b"x"), 0.0) == NO_PROPERTIES + b"x"


@pytest.mark.parametrize("body", [b"", b"\0" * 9, b"\3" + b"\0" * 9, b"\0\0\0\0\0\0\0\0\0\5"])
def test_garbage_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_body("t", body, None, False, 0.0)


@given(st.binary(max_size=9), st.binary(max_size=9), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1))
def test_aged_body_has_the_new_remaining_time(
    payload: bytes, properties: bytes, expiry_s: int, remaining_s: int
) -> None:
    body = encode_body(Message("t", payload, 1, True, properties, 100.0 + expiry_s), 100.0)
    assert remaining_of(body) == expiry_s
    older = aged(body, remaining_s)
    assert older == encode_body(Message("t", payload, 1, True, properties, 100.0 + remaining_s), 100.0)


@pytest.mark.parametrize("body", [b"", b"\0\1\0", NO_PROPERTIES])
def test_body_without_an_expiry_has_no_remaining_time(body: bytes) -> None:
    assert remaining_of(body) is None


@pytest.mark.parametrize(("body", "size"), [(NO_PROPERTIES + b"abc", 3), (b"", 0), (b"abc", 0), (b"\xff" * 12, 0)])
def test_payload_bytes_counts_the_payload_alone(body: bytes, size: int) -> None:
    assert payload_bytes(body) == size


def test_payload_bytes_leaves_properties_out() -> None:
    assert payload_bytes(encode_body(Message("a", b"12345", 1, False, b"\x01\x00"), 0.0)) == 5
