"""Frames: any chunking gives the same ones, garbage only the protocol error."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.errors import ProtocolError
from ringmq.overlay.links.frames import HEADER_BYTES, FrameReader, Kind, frame, header

LIMIT = 1000
frames = st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=LIMIT - 1)), max_size=8)


def chunks_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    stops = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:stop] for start, stop in itertools.pairwise(stops)]


@given(frames, st.lists(st.integers(min_value=0), max_size=12))
def test_any_chunking_gives_the_same_frames(sent: list[tuple[Kind, bytes]], cuts: list[int]) -> None:
    stream = b"".join(frame(kind, body) for kind, body in sent)
    reader = FrameReader(LIMIT)
    assert [got for chunk in chunks_of(stream, cuts) for got in reader.feed(chunk)] == sent
    assert reader.buffered_bytes == 0


@given(frames)
def test_byte_by_byte(sent: list[tuple[Kind, bytes]]) -> None:
    stream = b"".join(header(kind, len(body)) + body for kind, body in sent)
    reader = FrameReader(LIMIT)
    assert [got for byte in stream for got in reader.feed(bytes([byte]))] == sent


@pytest.mark.parametrize("size", [0, LIMIT + 1, 0xFFFFFFFF])
def test_a_length_is_judged_before_anything_is_buffered(size: int) -> None:
    reader = FrameReader(LIMIT)
    with pytest.raises(ProtocolError, match=f"a frame must have .* bytes, got {size}$"):
        list(reader.feed(size.to_bytes(4, "big")))
    assert reader.buffered_bytes == 0


def test_frames_before_a_broken_frame_are_returned() -> None:
    stream = frame(Kind.PARCEL, b"one") + frame(Kind.HELLO) + b"\0\0\0\0"
    given_before = FrameReader(LIMIT).feed(stream)
    got = [next(given_before), next(given_before)]
    with pytest.raises(ProtocolError):
        next(given_before)
    assert got == [(Kind.PARCEL, b"one"), (Kind.HELLO, b"")]


def test_a_broken_reader_stays_broken() -> None:
    reader = FrameReader(LIMIT)
    with pytest.raises(ProtocolError, match="unknown frame kind 99"):
        list(reader.feed(b"\0\0\0\1\x63"))
    with pytest.raises(ProtocolError, match="broken already"):
        list(reader.feed(frame(Kind.PARCEL, b"fine")))


def test_the_limit_can_change_between_two_frames_of_one_chunk() -> None:
    reader = FrameReader(10)
    got = []
    for kind, _ in reader.feed(frame(Kind.HELLO, b"short") + frame(Kind.PARCEL, bytes(500))):
        got.append(kind)
        reader.max_frame_bytes = LIMIT
    assert got == [Kind.HELLO, Kind.PARCEL]


def test_at_most_one_frame_is_buffered() -> None:
    reader = FrameReader(LIMIT)
    dice = random.Random(1)
    stream = b"".join(frame(Kind.PARCEL, dice.randbytes(dice.randrange(LIMIT))) for _ in range(200))
    while stream:
        cut = dice.randrange(1, 3000)
        list(reader.feed(stream[:cut]))
        stream = stream[cut:]
        assert reader.buffered_bytes < LIMIT + HEADER_BYTES


def test_hundred_thousand_random_strings_give_nothing_but_protocol_errors() -> None:
    dice = random.Random(2)
    broken = 0
    for _ in range(100_000):
        reader = FrameReader(LIMIT)
        try:
            for _ in range(3):
                # mostly small lengths, so that frames are found in the garbage
                start = b"\0\0" if dice.random() < 0.7 else b""
                list(reader.feed(start + dice.randbytes(dice.randrange(12))))
        except ProtocolError:
            broken += 1
    assert 10_000 < broken < 100_000
