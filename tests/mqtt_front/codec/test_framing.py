"""Cutting a stream into packets: whatever the chunks, the packets are the same, and so is where it goes wrong."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringmq.mqtt_front.codec.fields import write_varint
from ringmq.mqtt_front.codec.framing import MAX_HEADER_BYTES, PacketReader, ends_whole
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import FrontError, MalformedPacketError, PacketError

firsts = st.integers(0, 255)
sizes = st.one_of(st.integers(0, 5), st.integers(120, 140), st.integers(16_380, 16_390))
packets = st.tuples(firsts, sizes.map(lambda size: bytes(range(256)) * (size // 256) + bytes(size % 256)))


def written(first: int, body: bytes) -> bytes:
    return bytes((first,)) + write_varint(len(body)) + body


def chunks(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


def read(reader: PacketReader, parts: list[bytes]) -> tuple[list[tuple[int, bytes]], Reason | None]:
    """All packets, and how it ended."""
    found: list[tuple[int, bytes]] = []
    try:
        for part in parts:
            for first, body in reader.feed(part):
                found.append((first, bytes(body)))  # what came before an error counts
    except PacketError as error:
        return found, error.reason
    return found, None


@given(st.lists(packets, max_size=6), st.lists(st.integers(0, 1 << 20), max_size=12))
@example([(0xC0, b""), (0x30, bytes(128)), (0xE0, b"")], [1, 3, 4, 5])
def test_any_chunking_gives_the_same_packets(sent: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(written(*packet) for packet in sent)
    reader = PacketReader()
    assert read(reader, chunks(stream, cuts)) == (sent, None)
    assert reader.buffered_bytes == 0


@given(st.lists(st.tuples(firsts, st.binary(max_size=150)), max_size=3), st.binary(max_size=40))
def test_any_chunking_gives_the_same_end(sent: list[tuple[int, bytes]], tail: bytes) -> None:
    stream = b"".join(written(*packet) for packet in sent) + tail
    whole, one_by_one = PacketReader(100), PacketReader(100)
    assert read(whole, [stream]) == read(one_by_one, [stream[at : at + 1] for at in range(len(stream))])
    assert whole.buffered_bytes == one_by_one.buffered_bytes


@given(st.lists(packets, max_size=6))
def test_feeding_only_the_lacking_bytes_yields_one_packet_at_a_time(sent: list[tuple[int, bytes]]) -> None:
    data = b"".join(written(*packet) for packet in sent)
    reader, at, got = PacketReader(), 0, list[tuple[int, bytes]]()
    assert reader.lacking_bytes == 0
    while at < len(data):
        size = reader.lacking_bytes or 2
        found = [(first, bytes(body)) for first, body in reader.feed(data[at : at + size])]
        at += size
        assert len(found) == (reader.lacking_bytes == 0)
        assert (reader.lacking_bytes == 0) == (reader.buffered_bytes == 0)
        got += found
    assert at == len(data)
    assert got == sent


@given(st.lists(packets, max_size=4), st.integers(0, 40_000))
def test_bytes_end_whole_exactly_where_a_reader_holds_nothing(sent: list[tuple[int, bytes]], size: int) -> None:
    stream = b"".join([written(*packet) for packet in sent])[:size]
    reader = PacketReader()
    for _ in reader.feed(stream):
        pass
    assert ends_whole(stream) is not bool(reader.buffered_bytes)


def test_a_body_in_one_chunk_is_not_copied() -> None:
    chunk = bytearray(written(0x30, b"abc") * 2)
    first, second = PacketReader().feed(chunk)  # type: ignore[arg-type]  # to see the view, of what can be changed
    chunk[2] = chunk[7] = ord("x")
    assert (bytes(first[1]), bytes(second[1])) == (b"xbc", b"xbc")


def test_a_body_over_chunks_is_a_copy_of_its_own() -> None:
    """So that a shell may read into the same buffer again."""
    reader = PacketReader()
    buffer = bytearray(written(0x30, b"abcdef"))
    assert list(reader.feed(memoryview(buffer)[:5])) == []
    ((_, body),) = reader.feed(memoryview(buffer)[5:])
    buffer[:] = bytes(len(buffer))
    assert list(reader.feed(written(0x30, b"123456"))) != []
    assert body == b"abcdef"
    assert body.readonly


@pytest.mark.parametrize("length", ["80808080", "ffffffff", "80808080 01"])
def test_a_remaining_length_of_more_than_four_bytes_is_malformed(length: str) -> None:
    """§1.5.5 and 3.1.1 §2.2.3, as soon as the fourth byte asks for a fifth."""
    reader = PacketReader()
    assert read(reader, [bytes.fromhex("30" + length)[:4]]) == ([], None)
    assert read(reader, [bytes.fromhex(length)[3:]]) == ([], Reason.MALFORMED_PACKET)


def test_the_shortest_form_of_a_remaining_length_is_for_5_0() -> None:
    """[MQTT-1.5.5-1]; 3.1.1 asks for no shortest form."""
    stream = bytes.fromhex("c08000 d0818000ff")
    assert read(PacketReader(), [stream]) == ([(0xC0, b""), (0xD0, b"\xff")], None)
    for parts in ([stream], [stream[:1], stream[1:2], stream[2:]]):
        reader = PacketReader()
        reader.shortest_lengths = True
        assert read(reader, parts) == ([], Reason.MALFORMED_PACKET)


@given(st.lists(packets, max_size=4), st.lists(st.integers(0, 1 << 20), max_size=6))
@example([(0xC0, b""), (0x30, bytes(128))], [1, 3, 4])
def test_the_shortest_form_itself_passes(sent: list[tuple[int, bytes]], cuts: list[int]) -> None:
    reader = PacketReader()
    reader.shortest_lengths = True
    assert read(reader, chunks(b"".join(written(*packet) for packet in sent), cuts)) == (sent, None)


def test_shortest_form_can_be_required_between_two_packets() -> None:
    """As when the first of a chunk is the CONNECT that says it is 5.0."""
    reader = PacketReader()
    arriving = reader.feed(bytes.fromhex("108000 c08000"))
    assert next(arriving)[0] == 0x10
    reader.shortest_lengths = True
    with pytest.raises(MalformedPacketError):
        next(arriving)


@pytest.mark.parametrize("size", [10, 127, 128, 129, 130, 131, 200, 16_385, 16_386, 16_387])
def test_the_limit_counts_the_whole_packet(size: int) -> None:
    """5.0 §3.1.2.11.4: the Maximum Packet Size is of all bytes of a packet. [MQTT-3.2.2-15]"""
    body = bytes(size)
    packet = written(0x30, body)
    assert read(PacketReader(len(packet)), [packet]) == ([(0x30, body)], None)
    for parts in ([packet], [packet[:2], packet[2:]]):
        assert read(PacketReader(len(packet) - 1), parts) == ([], Reason.PACKET_TOO_LARGE)


def test_packet_over_the_limit_is_refused_before_its_body_arrives() -> None:
    head = written(0x30, bytes(20_000))[:4]
    assert read(PacketReader(20_003), [head]) == ([], Reason.PACKET_TOO_LARGE)
    assert read(PacketReader(20_003), [head[:1], head[1:2], head[2:3]]) == ([], None)
    assert read(PacketReader(20_004), [head]) == ([], None)


def test_packets_before_a_malformed_packet_are_yielded() -> None:
    good, bad = written(0xC0, b""), bytes.fromhex("30ffffffff")
    reader = PacketReader()
    assert read(reader, [good + good + bad + good]) == ([(0xC0, b"")] * 2, Reason.MALFORMED_PACKET)


def test_after_an_error_nothing_is_read() -> None:
    reader = PacketReader(10)
    assert read(reader, [written(0x30, bytes(9))]) == ([], Reason.PACKET_TOO_LARGE)
    for _ in range(2):
        assert read(reader, [written(0xC0, b"")]) == ([], Reason.PACKET_TOO_LARGE)
    assert reader.buffered_bytes == 0


def test_feeding_before_all_packets_are_read_raises_front_error() -> None:
    """The rest of their chunk is gone, and with it the place in the stream."""
    reader = PacketReader()
    for _ in reader.feed(written(0xC0, b"") * 2):
        break
    with pytest.raises(FrontError, match="not all read") as caught:
        list(reader.feed(b""))
    assert not isinstance(caught.value, PacketError)


@given(st.integers(1, 300), st.integers(0, 400), st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_it_holds_one_incomplete_packet_at_most(limit: int, size: int, steps: list[int]) -> None:
    reader = PacketReader(limit)
    stream = written(0x30, bytes(size)) * 3
    at = 0
    for step in steps:
        _, reason = read(reader, [stream[at : at + step]])
        assert reader.buffered_bytes <= max(limit, MAX_HEADER_BYTES)
        at += step
        if reason:
            assert reader.buffered_bytes == 0
            break
