"""The geometry of the circle, against text and plain arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.ids import (
    BASE,
    DIGITS,
    MASK,
    SPACE,
    Id,
    clockwise,
    digit,
    key_of,
    nearness,
    shared_digits,
)
from tests.overlay.core.distances import distance

points = st.one_of(st.integers(0, MASK), st.integers(0, 3), st.integers(MASK - 3, MASK)).map(Id)
HALFWAY = SPACE >> 1


@given(points)
def test_an_id_survives_bytes_and_text(number: Id) -> None:
    assert Id.unpack(number.packed()) == number
    assert Id.parse(number.hex()) == number
    assert type(Id.unpack(number.packed())) is type(Id.parse(number.hex())) is Id
    assert number.short() == number.hex()[:8]
    assert repr(number) == f"Id({number.hex()})"
    assert (len(number.packed()), len(number.hex())) == (16, DIGITS)


@pytest.mark.parametrize("raw", [b"", b"x" * 15, b"x" * 17])
def test_other_lengths_are_no_id(raw: bytes) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Id.unpack(raw)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1" * 31,
        "1" * 33,
        "g" * 32,
    ],
)
def test_other_text_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        Id.parse(text)


@pytest.mark.parametrize("prefix", ["-", "+", "0x", " ", "1_", "\u0661"], ids=ascii)
def test_parse_accepts_digits_only_unlike_int(prefix: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        Id.parse(prefix.ljust(DIGITS, "1"))


def test_keys_are_the_same_everywhere() -> None:
    # hash128 of MurmurHash3 x64, as mmh3 5 computes it; another value would move every topic.
    assert key_of("a/b").hex() == "95c00dd704073c9434b7c6e255accf3b"
    assert key_of("a/b") == key_of(b"a/b") != key_of("a/c")
    assert key_of("ä") == key_of("ä".encode())
    assert 0 <= key_of("") <= MASK


@pytest.mark.parametrize(
    ("start", "end", "way", "shorter"),
    [
        (0, 0, 0, 0),
        (0, 1, 1, 1),
        (1, 0, MASK, 1),
        (MASK, 0, 1, 1),
        (MASK, 1, 2, 2),
        (0, HALFWAY, HALFWAY, HALFWAY),
        (HALFWAY, 0, HALFWAY, HALFWAY),
        (0, HALFWAY + 1, HALFWAY + 1, HALFWAY - 1),
        (10, HALFWAY + 9, HALFWAY - 1, HALFWAY - 1),
    ],
)
def test_ways_around(start: int, end: int, way: int, shorter: int) -> None:
    assert clockwise(start, end) == way
    assert distance(start, end) == distance(end, start) == shorter


@given(points, points, points)
def test_one_of_two_ids_is_nearer_to_each_key(key: Id, left: Id, right: Id) -> None:
    first, second = nearness(key, left), nearness(key, right)
    assert first[0] == distance(key, left)
    assert (first == second) == (left == right)
    if distance(key, left) != distance(key, right):
        assert (first < second) == (distance(key, left) < distance(key, right))


@given(points, st.integers(1, HALFWAY - 1))
def test_of_two_equally_far_the_counterclockwise_is_nearer(key: Id, away: int) -> None:
    above, below = (key + away) & MASK, (key - away) & MASK
    assert distance(key, above) == distance(key, below) == away
    assert nearness(key, below) < nearness(key, above)


@given(points, points, st.integers(0, 127))
def test_shared_digits_are_those_of_the_text(left: Id, random: Id, bits: int) -> None:
    right = Id(left ^ random >> bits)
    length = next((place for place in range(DIGITS) if left.hex()[place] != right.hex()[place]), DIGITS)
    assert shared_digits(left, right) == shared_digits(right, left) == length


@given(points)
def test_digits_are_those_of_the_text(number: Id) -> None:
    assert [digit(number, row) for row in range(DIGITS)] == [int(letter, BASE) for letter in number.hex()]
