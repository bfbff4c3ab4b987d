"""One connection: frames bounded both ways, and an orderly end."""

import asyncio
import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.codec import encode
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Heartbeat, Parcel, Peer, Ping, Probe
from ringmq.overlay.links import handshake
from ringmq.overlay.links.frames import HEADER_BYTES, Kind, frame
from ringmq.overlay.links.handshake import HARMLESS, MAX_HELLO_BYTES, Hello, Reason, encode_goodbye, encode_hello
from ringmq.overlay.links.link import LARGE_BYTES, WRITE_BYTES, Link
from ringmq.overlay.links.phase import Phase
from ringmq.peer.iteration import Iteration

LOW, HIGH = Id(1000), Id(2000)
PEER = Peer(HIGH, "there", 1, 1)
HELLO = Hello("ringmq", PEER, True, LOW)
IDLE = (Kind.GOODBYE, b"idle")


class Ends:
    """A link between a board and a wire."""

    def __init__(self, loop, board, wire: Callable, dialled: Peer | None = None, **changes: object) -> None:
        self.loop, self.board = loop, board
        config = OverlayConfig(id=LOW, boot=1, listen=("127.0.0.1", 0), **changes)
        self.link = Link(board, config, dialled)
        self.wire = wire(self.link)

    def connect(self) -> None:
        self.link.connection_made(self.wire)

    def open(self, delay_s: float | None = None) -> None:
        self.connect()
        self.link.open(PEER, delay_s)

    def hear(self, *frames: bytes) -> None:
        self.link.data_received(b"".join(frames))

    def parcels(self) -> list[bytes]:
        return [message.payload for _, message in self.board.messages if isinstance(message, Parcel)]

    def goodbyes(self) -> list[Reason]:
        return [handshake.decode_goodbye(body)[0] for kind, body in self.wire.frames() if kind == Kind.GOODBYE]


@pytest.fixture
def ends(virtually, board, wire) -> Callable:
    """Run a story with one link; it is cut at the end."""

    def run(story: Callable, **changes: object) -> None:
        async def whole(loop) -> None:
            made = Ends(loop, board, wire, **changes)
            await story(made)
            made.link.abort()
            await loop.moment(loop.time() + 100.0)

        virtually(whole)

    return run


# -- frames in, bounded


def test_a_stranger_may_send_no_larger_frame_than_a_hello(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.connect()
        ends.hear((MAX_HELLO_BYTES + 1).to_bytes(4, "big"))
        assert len(ends.board.faults) == 1
        assert [reason for reason, _ in ends.board.ends] == [Reason.PROTOCOL]
        await ends.loop.moment(0.1)
        assert ends.goodbyes() == [Reason.PROTOCOL]
        assert ends.board.gone == [ends.link]

    ends(story)


def test_an_open_link_takes_frames_up_to_the_limit_and_closes_for_one_more(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        ends.hear(frame(Kind.PARCEL, bytes(65535)))
        assert ends.parcels() == [bytes(65535)]
        ends.hear(frame(Kind.PARCEL, bytes(65536))[:HEADER_BYTES])
        assert ends.link.closed
        assert ends.parcels() == [bytes(65535)]
        assert [reason for reason, _ in ends.board.ends] == [Reason.PROTOCOL]

    ends(story, max_frame_bytes=65536)


def test_frames_of_one_read_are_settled_once(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        ends.hear(*(frame(Kind.PARCEL, b"%d" % number) for number in range(10)), frame(Kind.CONTROL, encode(Ping())))
        assert ends.parcels() == [b"%d" % number for number in range(10)]
        assert ends.board.messages[-1] == (PEER, Ping())
        assert ends.board.turns == 1
        assert (ends.link.frames_in, ends.link.bytes_in) == (11, 10 * (HEADER_BYTES + 1) + HEADER_BYTES + 2)

    ends(story)


@given(st.lists(st.integers(1, 40)))
def test_any_chunking_gives_the_same(cuts: list[int]) -> None:
    """In one go, or in pieces: the same messages in the same order, then the same end."""
    heard = [frame(Kind.PARCEL, b"one"), frame(Kind.CONTROL, encode(Heartbeat())), frame(Kind.PARCEL, bytes(50))]
    stream = b"".join([*heard, frame(Kind.GOODBYE, encode_goodbye(Reason.IDLE)), frame(Kind.PARCEL, b"too late")])

    class Witness:
        def __init__(self) -> None:
            self.told: list[object] = []

        def __getattr__(self, name: str) -> Callable:
            silent = name in ("read_done", "connected", "vanished")
            return lambda *what: None if silent else self.told.append((name, [x for x in what if x is not link]))

    async def story() -> None:
        nonlocal link
        witness.iteration = Iteration()
        link = Link(witness, OverlayConfig(id=LOW, boot=1, listen=("127.0.0.1", 0)), None)
        link.open(PEER, None)
        rest = stream
        for cut in cuts:
            link.data_received(rest[:cut])
            rest = rest[cut:]
        link.data_received(rest)
        link.connection_lost(None)

    link, witness = None, Witness()
    asyncio.run(story())
    parcels = [("parcel", [PEER, b"one"]), ("received", [PEER, Heartbeat()]), ("parcel", [PEER, bytes(50)])]
    assert witness.told == [*parcels, ("ended", [Reason.IDLE, "idle"])]


# -- frames out, bounded


def test_frames_of_one_iteration_are_written_at_its_end(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        for number in range(10):
            assert ends.link.send(Kind.PARCEL, b"%d" % number)
        assert ends.wire.writes == []
        await ends.loop.moment(0.1)
        assert len(ends.wire.writes) == 1
        assert ends.wire.frames() == [(Kind.PARCEL, b"%d" % number) for number in range(10)]
        assert (ends.link.frames_out, ends.link.bytes_out) == (10, len(ends.wire.writes[0]))

    ends(story)


def test_much_is_written_at_once(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        for _ in range(3):
            ends.link.send(Kind.PARCEL, bytes(WRITE_BYTES // 2))
        assert [len(written) for written in ends.wire.writes] == [WRITE_BYTES + 2 * HEADER_BYTES]

    ends(story)


def test_a_full_link_pushes_parcels_back_and_takes_a_quarter_more_of_control(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        ends.wire.deaf = True
        body = bytes(1000 - HEADER_BYTES)
        assert [ends.link.send(Kind.PARCEL, body) for _ in range(102)] == [True] * 100 + [False] * 2
        await ends.loop.moment(0.1)
        assert not ends.link.send(Kind.PARCEL, body)
        assert (ends.link.room(), ends.link.room(control=True)) == (0, 25_000)
        assert all(ends.link.send(Kind.CONTROL, body) for _ in range(25))
        assert ends.link.phase is Phase.OPEN
        assert not ends.link.send(Kind.CONTROL, body)
        assert [reason for reason, _ in ends.board.ends] == [Reason.STUCK]
        assert ends.link.closed
        assert ends.goodbyes() == []

    ends(story, max_link_buffer_bytes=100_000)


def test_bytes_that_the_other_side_reads_free_the_buffer(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        ends.wire.deaf = True
        assert ends.link.send(Kind.PARCEL, bytes(900))
        await ends.loop.moment(0.1)
        assert not ends.link.send(Kind.PARCEL, bytes(900))
        ends.wire.buffered_bytes = 0
        assert ends.link.send(Kind.PARCEL, bytes(900))

    ends(story, max_link_buffer_bytes=1000)


def test_a_frame_larger_than_the_buffer_goes_into_an_empty_one(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        assert ends.link.send(Kind.PARCEL, bytes(5000))
        assert not ends.link.send(Kind.PARCEL, b"x")

    ends(story, max_link_buffer_bytes=1000)


def test_a_stuck_link_is_cut_when_it_does_not_flush(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        ends.wire.deaf = True
        ends.link.send(Kind.PARCEL, bytes(990))
        await ends.loop.moment(0.1)
        while ends.link.send(Kind.CONTROL, bytes(50)):
            pass
        await ends.loop.moment(2.0)
        assert (ends.wire.is_closing(), ends.wire.aborted) == (True, False)
        await ends.loop.moment(2.2)
        assert ends.wire.aborted
        assert ends.board.gone == [ends.link]
        assert len(ends.board.ends) == 1

    ends(story, max_link_buffer_bytes=1000, linger_s=2.0)


# -- the end


def test_without_a_hello_in_time_it_is_closed(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.connect()
        ends.hear(b"\0")
        await ends.loop.moment(2.99)
        assert ends.board.ends == []
        await ends.loop.moment(3.01)
        assert ends.board.ends == [(Reason.SLOW, "")]
        assert ends.goodbyes() == [Reason.SLOW]
        assert ends.board.gone == [ends.link]

    ends(story, handshake_s=3.0)


def test_an_open_link_has_no_such_limit(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        await ends.loop.moment(1000.0)
        assert ends.board.ends == []

    ends(story, handshake_s=3.0)


@pytest.mark.parametrize("reason", sorted(HARMLESS))
def test_a_harmless_end_hears_the_other_side_out_for_linger_s(ends, reason: Reason) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        ends.link.close(reason)
        assert ends.link.phase is Phase.CLOSING
        assert ends.board.ends == [(reason, "")]
        await ends.loop.moment(1.9)
        ends.hear(frame(Kind.PARCEL, b"sent before it knew"), frame(Kind.HELLO, encode_hello(HELLO)))
        assert ends.parcels() == [b"sent before it knew"]
        assert ends.board.hellos == ends.board.faults == []
        assert ends.goodbyes() == [reason]
        ends.link.close(Reason.IDLE)
        await ends.loop.moment(2.1)
        assert ends.board.gone == [ends.link]
        assert ends.goodbyes() == [reason]
        assert ends.board.ends == [(reason, "")]

    ends(story, linger_s=2.0)


def test_a_harmless_end_is_over_with_the_other_sides_goodbye(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        ends.link.close(Reason.IDLE)
        ends.hear(frame(Kind.GOODBYE, encode_goodbye(Reason.IDLE)), frame(Kind.PARCEL, b"too late"))
        await ends.loop.moment(0.1)
        assert ends.board.gone == [ends.link]
        assert ends.parcels() == []
        assert ends.board.ends == [(Reason.IDLE, "")]

    ends(story)


def test_garbage_while_it_closes_ends_it_at_once(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        ends.link.close(Reason.IDLE)
        ends.hear(b"\xff" * 4)
        await ends.loop.moment(0.1)
        assert ends.board.gone == [ends.link]
        assert len(ends.board.faults) == 1
        assert ends.board.ends == [(Reason.IDLE, "")]
        assert ends.goodbyes() == [Reason.IDLE]

    ends(story)


def test_after_a_fault_no_frame_is_handled(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        ends.link.send(Kind.PARCEL, b"queued")
        ends.link.close(Reason.PROTOCOL, "why")
        ends.hear(frame(Kind.PARCEL, b"ignored"))
        assert ends.parcels() == []
        assert ends.wire.frames() == [(Kind.PARCEL, b"queued"), (Kind.GOODBYE, b"protocol error: why")]
        assert ends.board.ends == [(Reason.PROTOCOL, "why")]

    ends(story)


def test_a_broken_connection_is_reported_once(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        ends.link.send(Kind.PARCEL, b"lost")
        ends.link.connection_lost(ConnectionResetError("reset"))
        ends.link.close(Reason.IDLE)
        await ends.loop.moment(100.0)
        assert ends.board.ends == [(Reason.BROKEN, "reset")]
        assert ends.board.gone == [ends.link]
        assert ends.wire.writes == []

    ends(story)


def test_a_link_aborted_while_it_connects_is_never_reported(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.link.abort()
        ends.connect()
        assert ends.wire.aborted
        assert ends.board.linked == []

    ends(story)


@pytest.mark.parametrize("dialled", [None, PEER])
@pytest.mark.parametrize(("kind", "answer"), [(Kind.STATUS_REQUEST, Kind.STATUS_REPLY), (Kind.REQUEST, Kind.REPLY)])
def test_only_strangers_may_ask_and_no_peer_that_we_dial(ends, dialled: Peer | None, kind: Kind, answer: Kind) -> None:
    async def story(ends: Ends) -> None:
        ends.connect()
        ends.hear(frame(kind))
        answered = [(answer, b"{}"), (Kind.GOODBYE, b"introduced")]
        assert (ends.wire.frames() == answered) is (dialled is None)
        assert ends.goodbyes() == [Reason.INTRODUCED if dialled is None else Reason.PROTOCOL]
        assert len(ends.board.faults) == int(dialled is not None)

    ends(story, dialled=dialled)


def test_after_a_long_read_the_others_come_first(ends, monkeypatch) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        ends.hear(frame(Kind.PARCEL, b"short"))
        assert ends.wire.reading
        monkeypatch.setattr("ringmq.overlay.links.link.LONG_S", -1.0)
        ends.hear(frame(Kind.PARCEL, b"long"))
        ends.hear(frame(Kind.PARCEL, b"read before"))
        assert not ends.wire.reading
        await asyncio.sleep(0)
        assert ends.wire.reading
        ends.hear(frame(Kind.PARCEL, b"long"))
        ends.link.set_reading(False)
        await asyncio.sleep(0)
        assert not ends.wire.reading, "the node does not want to hear more"
        ends.link.set_reading(True)
        assert ends.wire.reading

    ends(story)


def test_frames_of_one_long_read_are_handled_in_pieces(ends, monkeypatch) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        monkeypatch.setattr("ringmq.overlay.links.link.LONG_S", -1.0)
        bodies = [b"%d" % number + bytes(LARGE_BYTES) for number in range(3)]
        ends.hear(b"".join(frame(Kind.PARCEL, body) for body in bodies))
        ends.hear(frame(Kind.PARCEL, b"read before"))
        for turn in range(1, 4):
            assert ends.parcels() == bodies[:turn]
            assert not ends.wire.reading
            await asyncio.sleep(0)
        assert ends.parcels() == [*bodies, b"read before"]
        await asyncio.sleep(0)
        assert ends.wire.reading

    ends(story)


def test_waiting_frames_of_a_closed_link_are_dropped(ends, monkeypatch) -> None:
    async def story(ends: Ends) -> None:
        ends.open()
        monkeypatch.setattr("ringmq.overlay.links.link.LONG_S", -1.0)
        ends.hear(2 * frame(Kind.PARCEL, bytes(2 * LARGE_BYTES)))
        ends.link.close(Reason.PROTOCOL)
        ends.link.abort()
        await asyncio.sleep(0)
        assert len(ends.parcels()) == 1

    ends(story)


def test_reading_is_passed_on_until_it_closes(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.link.set_reading(False)
        ends.open()
        ends.link.set_reading(False)
        assert not ends.wire.reading
        ends.link.set_reading(True)
        assert ends.wire.reading
        ends.link.close(Reason.PROTOCOL)
        ends.link.set_reading(False)
        assert ends.wire.reading

    ends(story)


# -- emulated latency


def test_each_frame_goes_out_after_the_delay(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open(delay_s=0.5)
        times = []
        for number in range(4):
            ends.link.send(Kind.PARCEL, b"%d" % number)
            await ends.loop.moment(0.1 * (number + 1))
        for number in range(4):
            await ends.loop.moment(0.5 + 0.1 * number - 0.01)
            times.append(len(ends.wire.frames()))
        assert times == [0, 1, 2, 3]
        await ends.loop.moment(1.0)
        assert ends.wire.frames() == [(Kind.PARCEL, b"%d" % number) for number in range(4)]

    ends(story)


def test_the_handshake_before_is_not_delayed_and_stays_before(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.connect()
        me = Peer(LOW, "here", 1, 1)
        ends.link.say_hello(me, b"hello")
        assert ends.link.introduced_as(me)
        assert not ends.link.introduced_as(Peer(LOW, "here", 1, 2))
        ends.link.open(PEER, 0.5)
        ends.link.send(Kind.PARCEL, b"later")
        assert ends.wire.frames() == [(Kind.HELLO, b"hello")]
        await ends.loop.moment(0.6)
        assert ends.wire.frames() == [(Kind.HELLO, b"hello"), (Kind.PARCEL, b"later")]

    ends(story)


def test_delayed_frames_count_for_the_limit(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open(delay_s=0.5)
        body = bytes(100 - HEADER_BYTES)
        assert [ends.link.send(Kind.PARCEL, body) for _ in range(12)] == [True] * 10 + [False] * 2
        assert ends.link.queued_bytes == 1000
        await ends.loop.moment(0.6)
        assert ends.link.send(Kind.PARCEL, body)

    ends(story, max_link_buffer_bytes=1000)


def test_a_goodbye_waits_in_the_line_and_the_linger_with_it(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open(delay_s=0.5)
        ends.link.send(Kind.PARCEL, b"before")
        ends.link.close(Reason.IDLE)
        assert ends.wire.frames() == []
        await ends.loop.moment(2.4)
        assert ends.wire.frames() == [(Kind.PARCEL, b"before"), IDLE]
        assert ends.board.gone == []
        await ends.loop.moment(2.6)
        assert ends.board.gone == [ends.link]

    ends(story, linger_s=2.0)


def test_an_end_without_patience_flushes_the_line(ends) -> None:
    async def story(ends: Ends) -> None:
        ends.open(delay_s=0.5)
        ends.link.send(Kind.PARCEL, b"before")
        ends.link.close(Reason.PROTOCOL)
        assert ends.wire.frames() == [(Kind.PARCEL, b"before"), (Kind.GOODBYE, b"protocol error")]

    ends(story)


# -- over real sockets


class CountingTransport:
    """Passes on what it is asked, and counts the writes."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.writes = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def writelines(self, chunks: list[bytes]) -> None:
        self.writes += 1
        self._transport.writelines(chunks)


async def test_frames_of_one_iteration_are_one_write(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH)
    ours.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    link = ours.link(other)
    link._write = (counted := CountingTransport(link.transport)).writelines
    for number in range(100):
        ours.links.send(other.me, Parcel(b"%d" % number))
    await until(lambda: len(other.owner.messages) == 101)
    assert counted.writes == 1
    assert other.parcels() == [b"%d" % number for number in range(100)]


async def test_a_large_parcel(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH)
    payload = random.Random(1).randbytes(10 << 20)
    assert ours.links.send(other.me, Parcel(payload))
    await until(lambda: other.owner.messages)
    assert other.parcels() == [payload]


async def test_a_message_that_crosses_an_idle_goodbye_arrives(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH)
    ours.links.send(other.me, Ping())
    await until(lambda: ours.link(other) and other.link(ours))
    for number in range(20):
        other.links.send(ours.me, Parcel(b"%d" % number))
    ours.link(other).close(Reason.IDLE)
    await until(lambda: len(ours.parcels()) == 20)
    assert ours.owner.losses == other.owner.losses == []


async def test_emulated_latency_holds_frames_in_order(side, until) -> None:
    loop = asyncio.get_running_loop()
    ours, other = await side(LOW, delay_s=(0.05, 0.05)), await side(HIGH, delay_s=(0.05, 0.05))
    ours.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    began = loop.time()
    for number in range(100):
        ours.links.send(other.me, Parcel(b"%d" % number))
    await until(lambda: len(other.parcels()) == 100)
    assert loop.time() - began > 0.045
    assert other.parcels() == [b"%d" % number for number in range(100)]


async def test_a_peer_that_never_reads_takes_bounded_memory(side, until, stranger_to) -> None:
    limit = 256 * 1024
    ours = await side(LOW, max_link_buffer_bytes=limit, linger_s=0.2)
    async with stranger_to(ours) as deaf:
        await deaf.greet(ours)
        await until(lambda: ours.links.get(Id(5)))
        peer = ours.links.get(Id(5)).peer
        payload = bytes(10_000)
        refused = 0
        for _ in range(20_000):
            refused += not ours.links.send(peer, Parcel(payload))
            if refused % 50 == 1:
                await asyncio.sleep(0)
            link = ours.links.get(Id(5))
            assert link.queued_bytes <= limit
            assert link.transport.get_write_buffer_size() <= limit
        assert refused > 10_000
        assert ours.incidents.counters["parcels_refused"] == refused
        assert ours.links.room(Id(5)) < 10_005
        assert ours.owner.losses == []
        # control messages have some room more; then the link is stuck
        sent = itertools.takewhile(lambda _: ours.links.send(peer, Probe((peer,) * 60)), itertools.count())
        assert 5 < sum(1 for _ in sent) < 200
        assert ours.owner.losses == [(peer, False)]
        assert ours.links.get(Id(5)) is None
        await until(lambda: not ours.links._sockets)


async def test_slowloris(side, until, stranger_to) -> None:
    ours = await side(LOW, handshake_s=0.1)
    async with stranger_to(ours) as slow:
        await slow.say(b"\0\0")
        assert await slow.hears_goodbye() is Reason.SLOW
        assert await slow.ended()
    await until(lambda: not ours.links._sockets)
    assert ours.incidents.counters["handshakes_slow"] == 1
    assert ours.owner.losses == []
