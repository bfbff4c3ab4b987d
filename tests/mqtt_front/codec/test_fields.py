"""The primitive fields, by the tables of §1.5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.codec.fields import (
    MAX_FIELD_BYTES,
    MAX_VARINT,
    read_binary,
    read_string,
    read_string_pair,
    read_u8,
    read_u16,
    read_u32,
    read_varint,
    reason_of,
    text_of,
    utf8,
    write_binary,
    write_reason,
    write_string,
    write_string_pair,
    write_u8,
    write_u16,
    write_u32,
    write_varint,
)
from ringmq.mqtt_front.codec.reasons import DISCONNECT_REASONS, PUBREL_REASONS, Reason
from ringmq.mqtt_front.errors import EncodeError, MalformedPacketError, ProtocolBreachError

READERS = [read_u8, read_u16, read_u32, read_varint, read_binary, read_string, read_string_pair]


@pytest.mark.parametrize(
    ("value", "written"),
    [  # table 1-1 of 5.0, 2.4 of 3.1.1
        (0, "00"),
        (127, "7f"),
        (128, "80 01"),
        (16_383, "ff 7f"),
        (16_384, "80 80 01"),
        (2_097_151, "ff ff 7f"),
        (2_097_152, "80 80 80 01"),
        (268_435_455, "ff ff ff 7f"),
    ],
)
def test_varints_at_the_edges_of_their_sizes(value: int, written: str) -> None:
    """[MQTT-1.5.5-1], the writing half."""
    raw = bytes.fromhex(written)
    assert write_varint(value) == raw
    assert read_varint(raw, 0) == (value, len(raw))


@pytest.mark.parametrize("raw", ["80 00", "81 00", "80 80 00", "ff 80 00", "80 80 80 00"])
def test_a_varint_longer_than_needed_is_malformed(raw: str) -> None:
    """[MQTT-1.5.5-1], the reading half."""
    with pytest.raises(MalformedPacketError, match="shortest form"):
        read_varint(bytes.fromhex(raw), 0)


@pytest.mark.parametrize("raw", ["80 80 80 80 01", "ff ff ff ff", "ff ff ff ff 7f"])
def test_a_varint_of_more_than_four_bytes_is_malformed(raw: str) -> None:
    with pytest.raises(MalformedPacketError, match="four bytes"):
        read_varint(bytes.fromhex(raw), 0)


@given(st.integers(0, MAX_VARINT), st.binary(max_size=3), st.binary(max_size=3))
def test_varints_come_back_from_anywhere(value: int, before: bytes, after: bytes) -> None:
    raw = write_varint(value)
    assert read_varint(before + raw + after, len(before)) == (value, len(before) + len(raw))


@given(st.integers(0, 255), st.integers(0, 65_535), st.integers(0, (1 << 32) - 1), st.binary(max_size=3))
def test_integers_come_back_from_anywhere(one: int, two: int, four: int, before: bytes) -> None:
    at = len(before)
    assert read_u8(before + write_u8(one), at) == (one, at + 1)
    assert read_u16(before + write_u16(two), at) == (two, at + 2)
    assert read_u32(before + write_u32(four), at) == (four, at + 4)
    assert write_u16(0x0102) + write_u32(0x03040506) == bytes((1, 2, 3, 4, 5, 6))


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=50), st.binary(max_size=50))
def test_strings_and_binary_data_come_back(text: str, data: bytes) -> None:
    assert read_string(write_string(text), 0) == (text, 2 + len(text.encode()))
    assert read_binary(write_binary(data), 0) == (data, 2 + len(data))
    assert read_string_pair(write_string_pair((text, "x")), 0)[0] == (text, "x")


def test_a_string_as_in_the_specification() -> None:
    """Figure 1-1 and table 1-2 of §1.5.4: an A, and U+2A6D4, which takes four bytes."""
    assert write_string("A\U0002a6d4") == bytes.fromhex("00 05 41 f0 aa 9b 94")
    assert read_string(memoryview(bytes.fromhex("00 05 41 f0 aa 9b 94")), 0) == ("A\U0002a6d4", 7)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("ed a0 80", id="U+D800"),
        pytest.param("ed bf bf", id="U+DFFF"),
        pytest.param("ed a1 8c ed be b4", id="a pair of surrogates"),
        pytest.param("c0 80", id="U+0000 in two bytes"),
        pytest.param("c1 bf", id="an overlong DEL"),
        pytest.param("e0 80 af", id="an overlong slash"),
        pytest.param("f4 90 80 80", id="beyond U+10FFFF"),
        pytest.param("80", id="a continuation without a start"),
        pytest.param("c3", id="a start without a continuation"),
        pytest.param("61 ff", id="a byte UTF-8 does not have"),
    ],
)
def test_ill_formed_strings_are_malformed(raw: str) -> None:
    """[MQTT-1.5.4-1], 3.1.1 [MQTT-1.5.3-1], and both strings of a pair [MQTT-1.5.7-1]."""
    wrong, right = write_binary(bytes.fromhex(raw)), write_string("x")
    for field, read in ((wrong, read_string), (wrong + right, read_string_pair), (right + wrong, read_string_pair)):
        with pytest.raises(MalformedPacketError, match="UTF-8"):
            read(field, 0)


@pytest.mark.parametrize("text", ["\0", "a\0", "\0a", "a\0b"])
def test_the_null_character_is_malformed(text: str) -> None:
    """[MQTT-1.5.4-2], 3.1.1 [MQTT-1.5.3-2]."""
    with pytest.raises(MalformedPacketError, match=r"U\+0000"):
        read_string(write_string(text), 0)


def test_a_byte_order_mark_stays() -> None:
    """[MQTT-1.5.4-3], 3.1.1 [MQTT-1.5.3-3]."""
    assert read_string(bytes.fromhex("00 04 ef bb bf 61"), 0) == ("\ufeffa", 6)
    assert text_of(memoryview(bytes.fromhex("ef bb bf"))) == "\ufeff"


@pytest.mark.parametrize("code", [0x01, 0x1F, 0x7F, 0x9F, 0xFDD0, 0xFFFE, 0xFFFF, 0x1FFFE, 0x10FFFF])
def test_characters_that_only_should_not_be_sent_pass(code: int) -> None:
    assert read_string(write_string(chr(code)), 0)[0] == chr(code)


@pytest.mark.parametrize("read", READERS)
def test_a_field_that_ends_early_is_malformed(read: object) -> None:
    assert callable(read)
    whole = {read_u8: "00", read_u16: "0000", read_u32: "00000000", read_varint: "ffffff7f"}.get(read, "000161000162")  # type: ignore[call-overload]
    raw = bytes.fromhex(whole)[: 3 if read in (read_binary, read_string) else None]
    assert read(raw, 0)[1] == len(raw)
    for size in range(len(raw)):
        with pytest.raises(MalformedPacketError, match="ends within"):
            read(memoryview(raw)[:size], 0)


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (write_u8, 256),
        (write_u8, -1),
        (write_u16, 65_536),
        (write_u16, -1),
        (write_u32, 1 << 32),
        (write_varint, MAX_VARINT + 1),
        (write_varint, -1),
        (write_binary, bytes(MAX_FIELD_BYTES + 1)),
        (write_string, "ä" * (MAX_FIELD_BYTES // 2 + 1)),
        (write_string, "\ud800"),
        (utf8, "\udfff"),
    ],
)
def test_field_that_is_too_long_raises_encode_error(write: object, value: object) -> None:
    assert callable(write)
    with pytest.raises(EncodeError):
        write(value)


def test_the_longest_fields_fit() -> None:
    assert read_binary(write_binary(bytes(MAX_FIELD_BYTES)), 0) == (bytes(MAX_FIELD_BYTES), MAX_FIELD_BYTES + 2)
    assert len(read_string(write_string("a" * MAX_FIELD_BYTES), 0)[0]) == MAX_FIELD_BYTES


def test_a_reason_has_a_meaning_in_its_packet_or_is_a_breach() -> None:
    assert reason_of(0x92, PUBREL_REASONS) is Reason.PACKET_IDENTIFIER_NOT_FOUND
    assert write_reason(Reason.PACKET_IDENTIFIER_NOT_FOUND, PUBREL_REASONS) == b"\x92"
    for code in (0x92, 0x7F):
        with pytest.raises(ProtocolBreachError):
            reason_of(code, DISCONNECT_REASONS)
    with pytest.raises(EncodeError, match="PACKET_IDENTIFIER_NOT_FOUND"):
        write_reason(Reason.PACKET_IDENTIFIER_NOT_FOUND, DISCONNECT_REASONS)
