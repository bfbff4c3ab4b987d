"""Streams between simulated machines: order, cuts that delay, ends, and processes that end."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ringmq.experiments.simulator.machines.machine_loop import MachineLoop
from ringmq.experiments.simulator.machines.streams import (
    WINDOW_BYTES,
    HostSockets,
    SimulatedNetwork,
    StreamEnd,
)
from ringmq.experiments.simulator.machines.virtual_time import VirtualTime

SOON_S = 0.1
ADDRESSES = ("10.0.0.1", "10.0.0.2")
PORT = 99


class Program(asyncio.Protocol):
    """Notes what it gets."""

    def __init__(self, clock: VirtualTime) -> None:
        self.clock = clock
        self.end: StreamEnd
        self.got: list[tuple[float, bytes]] = []
        self.lost: list[tuple[float, Exception | None]] = []
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, StreamEnd)
        self.end = transport

    def data_received(self, data: bytes) -> None:
        self.got.append((self.clock.now, data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append((self.clock.now, exc))

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    @property
    def data(self) -> bytes:
        return b"".join(data for _, data in self.got)


class Wire:
    """Two machines with a connected program each, the first of which has dialled."""

    def __init__(self) -> None:
        self.clock = VirtualTime(1)
        self.network = SimulatedNetwork(self.clock)
        self.loops: list[MachineLoop] = []
        for address in ADDRESSES:
            sockets = HostSockets(self.network, address)
            sockets.loop = MachineLoop(self.clock, address, sockets)
            self.loops.append(sockets.loop)
        self.dialler, self.server = Program(self.clock), Program(self.clock)
        self.dialled: asyncio.Task[object] | None = None

    def later(self, seconds: float) -> None:
        reached: list[bool] = []
        self.clock.after(seconds, reached.append, True)
        self.clock.run(lambda: bool(reached))

    def listen(self) -> None:
        self.loops[1].create_task(self.loops[1].create_server(lambda: self.server, ADDRESSES[1], PORT))
        self.later(SOON_S)

    def dial(self) -> asyncio.Task[object]:
        loop = self.loops[0]
        self.dialled = loop.create_task(loop.create_connection(lambda: self.dialler, ADDRESSES[1], PORT))
        return self.dialled

    def cut(self, *, both: bool = True) -> None:
        one, other = ADDRESSES
        self.network.block([(one, other), (other, one)] if both else [(one, other)])

    def heal(self) -> None:
        self.network.block([])


@pytest.fixture
def wire() -> Wire:
    wire = Wire()
    wire.listen()
    wire.dial()
    wire.later(SOON_S)
    wire.dialler.end.write(b"first ")
    wire.later(SOON_S)
    assert wire.server.data == b"first "
    wire.server.got.clear()
    return wire


@pytest.mark.parametrize("both", [True, False])
def test_a_cut_delays_what_is_sent_into_it_in_order(wire: Wire, *, both: bool) -> None:
    wire.cut(both=both)
    start = wire.clock.now
    for word in (b"a", b"b", b"c"):
        wire.dialler.end.write(word)
        wire.later(0.3)
    wire.heal()
    wire.later(3.0)
    assert wire.server.data == b"abc"
    # Sent again after 0.2, 0.6 and 1.4 s.
    assert [round(at - start, 1) for at, _ in wire.server.got] == [1.4]


def test_a_cut_of_the_other_direction_stops_what_is_sent_after_a_moment(wire: Wire) -> None:
    wire.cut(both=False)
    wire.server.end.write(b"at once")
    wire.later(0.3)
    assert wire.dialler.data == b"at once"
    wire.server.end.write(b" later")
    wire.later(0.5)
    assert wire.dialler.data == b"at once"
    wire.heal()
    wire.later(2.0)
    assert wire.dialler.data == b"at once later"


def test_an_end_gives_up_and_the_other_learns_of_it_when_it_sends(wire: Wire) -> None:
    wire.dialler.end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 3100)
    wire.cut()
    start = wire.clock.now
    wire.dialler.end.write(b"held")
    wire.later(5.0)
    ((at, error),) = wire.dialler.lost
    assert at - start == pytest.approx(3.1, abs=0.01)
    assert isinstance(error, OSError)
    wire.heal()
    wire.later(SOON_S)
    assert wire.server.lost == []
    wire.server.end.write(b"into nothing")
    wire.later(SOON_S)
    assert isinstance(wire.server.lost[0][1], ConnectionResetError)
    assert wire.server.data == b"", "all that was held is lost"


def test_a_dial_into_a_cut_succeeds_when_it_is_tried_again() -> None:
    wire = Wire()
    wire.listen()
    wire.cut()
    task = wire.dial()
    wire.later(0.5)
    wire.heal()
    assert not task.done()
    wire.later(1.0)
    assert task.done()
    task.result()


def test_a_dial_to_a_machine_where_nobody_listens_is_refused() -> None:
    wire = Wire()
    task = wire.dial()
    wire.later(SOON_S)
    with pytest.raises(ConnectionRefusedError):
        task.result()


def test_a_dial_that_is_given_up_leaves_no_connection() -> None:
    wire = Wire()
    wire.listen()
    task = wire.dial()
    wire.clock.run(lambda: hasattr(wire.server, "end"))
    task.cancel()
    wire.later(SOON_S)
    assert task.cancelled()
    assert wire.server.lost


def test_a_close_comes_after_all_data_and_an_abort_at_once(wire: Wire) -> None:
    wire.dialler.end.write(b"last")
    wire.dialler.end.close()
    wire.dialler.end.write(b"too late")
    wire.later(SOON_S)
    assert wire.server.data == b"last"
    assert [error for _, error in (*wire.dialler.lost, *wire.server.lost)] == [None, None]


def test_an_abort_resets_the_other_end(wire: Wire) -> None:
    wire.dialler.end.abort()
    wire.later(SOON_S)
    assert isinstance(wire.server.lost[0][1], ConnectionResetError)


def test_the_machine_of_a_process_that_has_ended_closes_its_streams(wire: Wire) -> None:
    wire.server.end.write(b"last")
    wire.loops[1].end()
    wire.network.ended(wire.loops[1])
    wire.later(SOON_S)
    assert wire.dialler.data == b"last"
    assert len(wire.dialler.lost) == 1
    task = wire.dial()
    wire.later(SOON_S)
    with pytest.raises(ConnectionRefusedError):
        task.result()


def test_a_process_that_stands_still_takes_what_comes_until_its_machine_is_full(wire: Wire) -> None:
    wire.loops[1].hold()
    wire.dialler.end.write(b"x" * WINDOW_BYTES)
    wire.later(SOON_S)
    assert wire.dialler.end.get_write_buffer_size() == 0
    wire.dialler.end.write(b"y" * 100_000)
    assert wire.dialler.end.get_write_buffer_size() == 100_000
    assert wire.dialler.paused
    wire.loops[1].let_go()
    wire.later(SOON_S)
    assert len(wire.server.data) == WINDOW_BYTES + 100_000
    assert not wire.dialler.paused
    assert wire.dialler.end.get_write_buffer_size() == 0


def test_a_reader_that_pauses_gets_everything_later(wire: Wire) -> None:
    wire.server.end.pause_reading()
    wire.dialler.end.write(b"data")
    wire.dialler.end.close()
    wire.later(SOON_S)
    assert (wire.server.data, wire.server.lost) == (b"", [])
    wire.server.end.resume_reading()
    wire.later(SOON_S)
    assert wire.server.data == b"data"
    assert len(wire.server.lost) == 1


@pytest.mark.parametrize("arrives", [True, False])
def test_a_stream_can_break_after_a_write(wire: Wire, *, arrives: bool) -> None:
    wire.dialler.end.sever_after(1, arrives=arrives)
    wire.dialler.end.write(b"1")
    wire.later(SOON_S)
    assert wire.dialler.lost == []
    wire.dialler.end.write(b"2")
    wire.later(SOON_S)
    assert wire.server.data == (b"12" if arrives else b"1")
    assert [type(error) for _, error in (*wire.dialler.lost, *wire.server.lost)] == [ConnectionResetError] * 2


def test_lost_segments_are_sent_again_in_order(wire: Wire) -> None:
    wire.network.loss = 0.5
    words = [b"%d " % number for number in range(50)]
    for word in words:
        wire.dialler.end.write(word)
    wire.later(600.0)
    assert wire.server.data == b"".join(words)
