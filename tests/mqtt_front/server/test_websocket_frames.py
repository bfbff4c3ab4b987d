"""Frames: the examples of RFC 6455 §5.7, frames that a client must not send, and any chunking of any frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.server.websocket_frames import (
    FRAMES_A_CALL,
    MAX_CONTROL_BYTES,
    Close,
    CloseCode,
    FrameError,
    FrameReader,
    Opcode,
    Ping,
    close_frame,
    frame_head,
    masked_frame,
    pong_frame,
    unmask,
)

MASK = b"\x37\xfa\x21\x3d"
Event = bytes | Ping | Close


def frame(opcode: int, payload: bytes = b"", fin: bool = True, mask: bytes = MASK) -> bytes:
    """As a client sends it."""
    head = frame_head(Opcode.BINARY, len(payload))
    return bytes((opcode | (0x80 if fin else 0), head[1] | 0x80)) + head[2:] + mask + unmask(payload, mask)


def read(data: bytes, reader: FrameReader | None = None) -> list[Event]:
    """With the bytes between control frames joined, as only their sequence counts."""
    return joined(list((reader or FrameReader()).feed(data)))


def joined(events: list[Event]) -> list[Event]:
    found: list[Event] = []
    for event in events:
        if found and isinstance(event, bytes) and isinstance(found[-1], bytes):
            found[-1] += event
        else:
            found.append(event)
    return found


def fault(data: bytes) -> CloseCode:
    with pytest.raises(FrameError) as caught:
        read(data)
    return caught.value.code


def test_the_example_of_the_specification() -> None:
    """§5.7: "Hello", masked; here in a binary frame."""
    assert read(bytes.fromhex("82 85 37 fa 21 3d 7f 9f 4d 51 58")) == [b"Hello"]
    assert read(bytes.fromhex("89 85 37 fa 21 3d 7f 9f 4d 51 58")) == [Ping(b"Hello")]
    assert frame_head(Opcode.BINARY, 256) == bytes.fromhex("82 7e 01 00")
    assert frame_head(Opcode.BINARY, 65536) == bytes.fromhex("82 7f 00 00 00 00 00 01 00 00")
    assert pong_frame(b"Hello") == bytes.fromhex("8a 05") + b"Hello"


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 125, 126, 127, 65535, 65536, 100_001])
def test_lengths(size: int) -> None:
    payload = bytes(number % 251 for number in range(size))
    assert read(frame(2, payload)) == ([payload] if size else [])
    head = frame_head(Opcode.BINARY, size)
    assert len(head) == (2 if size < 126 else 4 if size < 65536 else 10)


def test_payload_is_passed_on_before_its_frame_is_complete() -> None:
    """So a frame of any length takes no memory."""
    reader = FrameReader()
    whole = frame(2, b"x" * 1000)
    assert read(whole[:508], reader) == [b"x" * 500]
    assert read(whole[508:], reader) == [b"x" * 500]
    assert read(b"\x82\xff" + (1 << 62).to_bytes(8, "big") + MASK + b"abc") == [unmask(b"abc", MASK)]


def test_fragments_with_control_frames_between_them() -> None:
    """§5.4, and packets that lie across frames [MQTT-6.0.0-2]."""
    data = frame(2, b"ab", fin=False) + frame(9, b"?") + frame(0, b"cd", fin=False) + frame(10) + frame(0, b"ef")
    assert read(data + frame(2, b"gh")) == [b"ab", Ping(b"?"), b"cdefgh"]


def test_pongs_say_nothing() -> None:
    assert read(frame(10, b"unasked")) == []


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", None),
        (b"\x03\xe8", 1000),
        (b"\x03\xe9going away", 1001),
        (b"\x0f\xa0", 4000),
        ("\x03é".encode("latin-1") + "é".encode(), 1001),
    ],
)
def test_a_close(payload: bytes, code: int | None) -> None:
    assert read(frame(8, payload) + frame(2, b"too late") + b"garbage") == [Close(code)]


def test_nothing_counts_after_a_close() -> None:
    reader = FrameReader()
    read(frame(8), reader)
    assert read(b"\xff\xff\xff", reader) == []


@pytest.mark.parametrize(
    ("code", "data"),
    [
        (1003, frame(1, b"text")),
        (1003, frame(1, b"te", fin=False)),
        (1002, b"\x82\x05Hello"),
        (1002, b"\x89\x00"),
        (1002, b"\xc2\x81" + MASK + b"x"),
        (1002, b"\xa2\x81" + MASK + b"x"),
        (1002, b"\x92\x81" + MASK + b"x"),
        *[(1002, bytes((0x80 | opcode, 0x80)) + MASK) for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)],
        (1002, frame(0, b"of nothing")),
        (1002, frame(0, b"of nothing", fin=False)),
        (1002, frame(2, b"a", fin=False) + frame(2, b"b")),
        (1002, frame(2, b"a") + frame(0, b"b")),
        (1002, frame(9, b"ping", fin=False)),
        (1002, frame(9, b"x" * (MAX_CONTROL_BYTES + 1))),
        (1002, b"\x82\xfe\x00\x7d"),
        (1002, b"\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff"),
        (1002, b"\x82\xff\x80\x00\x00\x00\x00\x01\x00\x00"),
        (1002, frame(8, b"\x03")),
        *[(1002, frame(8, wrong.to_bytes(2, "big"))) for wrong in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535)],
        (1007, frame(8, b"\x03\xe8\xff")),
    ],
)
def test_invalid_frames_are_refused(code: int, data: bytes) -> None:
    assert fault(data) == code


def test_contents_before_a_fault_are_yielded() -> None:
    feed = FrameReader().feed(frame(2, b"right") + frame(1, b"wrong"))
    assert next(feed) == b"right"
    with pytest.raises(FrameError):
        next(feed)


@pytest.mark.parametrize(
    ("code", "expected"), [(None, b"\x88\x00"), (1000, b"\x88\x02\x03\xe8"), (4999, b"\x88\x02\x13\x87")]
)
def test_close_frames(code: int | None, expected: bytes) -> None:
    assert close_frame(code) == expected


def events_of(data: bytes, sizes: list[int]) -> tuple[list[Event], CloseCode | None]:
    """What comes out of `data` in pieces of these sizes, and the fault at the end."""
    reader, found, at = FrameReader(), list[Event](), 0
    try:
        for size in [*sizes, len(data)]:
            for event in reader.feed(data[at : at + size]):
                found.append(event)
            at += size
    except FrameError as error:
        return joined(found), error.code
    return joined(found), None


frames = st.builds(
    frame,
    st.sampled_from([0, 0, 2, 2, 2, 8, 9, 10]),
    st.binary(max_size=140),
    st.sampled_from([True, True, True, False]),
    st.binary(min_size=4, max_size=4),
)
chunks = st.lists(st.integers(0, 60), max_size=40)


def test_byte_by_byte() -> None:
    data = frame(2, b"ab" * 100, fin=False) + frame(9, b"there?") + frame(0, b"c") + frame(8, b"\x03\xe8bye")
    expected = [b"ab" * 100, Ping(b"there?"), b"c", Close(1000)]
    assert events_of(data, [1] * len(data)) == (expected, None)


@given(st.lists(frames, max_size=8).map(b"".join), chunks)
def test_any_chunking_gives_the_same(data: bytes, sizes: list[int]) -> None:
    assert events_of(data, sizes) == events_of(data, [])


@given(st.binary(max_size=300), chunks)
def test_garbage_gives_only_its_error(data: bytes, sizes: list[int]) -> None:
    assert events_of(data, sizes) == events_of(data, [])


@given(st.lists(st.binary(max_size=300), max_size=6), chunks)
def test_good_frames_give_their_payloads(payloads: list[bytes], sizes: list[int]) -> None:
    data = b"".join(frame(2, payload) for payload in payloads)
    whole = b"".join(payloads)
    assert events_of(data, sizes) == ([whole] if whole else [], None)


@given(st.binary(max_size=3000), st.binary(min_size=4, max_size=4))
def test_masks(payload: bytes, mask: bytes) -> None:
    assert unmask(payload, mask) == bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


@pytest.mark.parametrize("one", [frame(Opcode.PING), frame(Opcode.BINARY), frame(Opcode.BINARY, b"x")])
def test_call_parses_a_bounded_number_of_frames(one: bytes) -> None:
    reader, end = FrameReader(), frame(Opcode.PING, b"end")
    first = list(reader.feed(one * (2 * FRAMES_A_CALL) + end))
    assert reader.full
    assert len(first) <= FRAMES_A_CALL
    second = list(reader.feed(b""))
    assert reader.full
    assert list(reader.feed(b""))[-1] == Ping(b"end")
    assert not reader.full
    assert abs(len(second) - len(first)) <= 1


def test_a_client_reads_the_frames_of_a_server() -> None:
    large = bytes(70_000)
    stream = frame_head(Opcode.BINARY, 2) + b"ab" + pong_frame(b"x") + frame_head(Opcode.BINARY, len(large)) + large
    stream += bytes((Opcode.PING | 0x80, 1)) + b"p" + close_frame(1000)
    for size in (1, 3, len(stream)):
        reader, events = FrameReader(of_server=True), list[Event]()
        for at in range(0, len(stream), size):
            events += reader.feed(stream[at : at + size])
        assert joined(events) == [b"ab" + large, Ping(b"p"), Close(1000)]


def test_a_client_refuses_masked_frames() -> None:
    with pytest.raises(FrameError, match="must not be masked"):
        list(FrameReader(of_server=True).feed(frame(Opcode.BINARY, b"a")))


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_frames_of_a_client_are_read_by_a_server(size: int) -> None:
    payload = bytes(number % 251 for number in range(size))
    assert b"".join([event for event in read(masked_frame(Opcode.BINARY, payload, MASK)) if event]) == payload
    assert masked_frame(Opcode.BINARY, payload, MASK) == frame(Opcode.BINARY, payload)
