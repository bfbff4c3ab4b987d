"""TCP between simulated machines: streams of bytes that arrive in order, late, or end, as those of Linux do.

What is sent into a cut is held and sent again ever more rarely, and arrives some time after the healing, unless the
sender has given up before (TCP_USER_TIMEOUT): then all that was held is lost, and the other side learns of it when it
sends something. A cut in one direction stops both, since acknowledgements are lost. A process that stands still takes
what comes into its machine's memory; the machine of a process that was killed closes its streams.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from ringmq.experiments.simulator.machines.machine_loop import MachineLoop
from ringmq.experiments.simulator.machines.virtual_time import VirtualTime

Pair = tuple[str, str]

FIRST_RETRANSMISSION_S: Final = 0.2
"""The least time after which Linux sends a segment again; doubled each time."""
SYNS_S: Final = (0.0, 1.0, 3.0, 7.0, 15.0)
"""When a SYN is sent."""
GIVES_UP_S: Final = 900.0
"""Without TCP_USER_TIMEOUT."""
WINDOW_BYTES: Final = 1 << 18
"""What the machines of both sides take before a write waits in the process."""
READ_BYTES: Final = 1 << 18
INSIDE_S: Final = 50e-6
"""One way within a machine."""
DELAYS_S: Final = (0.001, 0.005)
"""One way between two machines: each pair has its own."""


class SimulatedNetwork:
    """The wires between machines, by their addresses, and what listens there."""

    def __init__(self, clock: VirtualTime) -> None:
        self.clock = clock
        self.servers: dict[tuple[str, int], SimulatedServer] = {}
        self.ends: dict[MachineLoop, dict[StreamEnd, None]] = {}
        """The open streams of each process, in the order of their opening."""
        self.delay_s: tuple[float, float] | None = None
        """Least and greatest delay of a segment, where it is not that of its pair."""
        self.loss = 0.0
        self._blocked: frozenset[Pair] = frozenset()
        self._pairs: dict[Pair, float] = {}

    def block(self, pairs: Iterable[Pair]) -> None:
        """What the first of a pair sends to the second is lost from now on; everything else arrives."""
        self._blocked = frozenset(pairs)

    def is_open(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) not in self._blocked

    def is_whole(self, one: str, other: str) -> bool:
        return not self._blocked or (self.is_open(one, other) and self.is_open(other, one))

    def delay(self, one: str, other: str) -> float:
        if one == other:
            return INSIDE_S
        if self.delay_s is not None:
            return self.clock.random.uniform(*self.delay_s)
        pair = (min(one, other), max(one, other))
        known = self._pairs.get(pair)
        if known is None:
            known = self._pairs[pair] = Random(f"wire {pair}").uniform(*DELAYS_S)
        return known

    def segment_delay(self, one: str, other: str) -> float:
        """The delay of a segment, which is sent again until it arrives."""
        delay_s, again_s = self.delay(one, other), FIRST_RETRANSMISSION_S
        while self.loss and one != other and self.clock.random.random() < self.loss:
            delay_s += again_s
            again_s *= 2
        return delay_s

    def ended(self, loop: MachineLoop) -> None:
        """A process has ended: its machine closes its streams and listens no more."""
        for server in [server for server in self.servers.values() if server.loop is loop]:
            server.close()
        for end in self.ends.pop(loop, {}):
            end.orphan()


class SimulatedServer(asyncio.Server):
    """What `create_server` returns."""

    def __init__(  # no call of super: the server of asyncio has sockets
        self, network: SimulatedNetwork, loop: MachineLoop, address: tuple[str, int], make: Callable[[], Any]
    ) -> None:
        self.loop = loop
        self._network = network
        self._address = address
        self._make = make

    @property
    def sockets(self) -> tuple[Any, ...]:
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return self._address

    async def start_serving(self) -> None:
        """Raises OSError."""
        if self._address in self._network.servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._network.servers[self._address] = self

    def close(self) -> None:
        if self._network.servers.get(self._address) is self:
            del self._network.servers[self._address]

    async def wait_closed(self) -> None: ...

    def accept(self, end: StreamEnd) -> None:
        """The machine has accepted a connection: the process gets it when it runs."""
        self.loop.call_soon(lambda: end.attach(self._make()))


class HostSockets:
    """The network as the processes of one address use it."""

    def __init__(self, network: SimulatedNetwork, address: str) -> None:
        self._network = network
        self._address = address
        self.loop: MachineLoop

    def listen(self, protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> SimulatedServer:
        return SimulatedServer(self._network, self.loop, (host, port), protocol)

    async def dial(self, host: str, port: int) -> StreamEnd:
        """Raises OSError."""
        network = self._network
        opened: asyncio.Future[StreamEnd] = self.loop.create_future()
        for wait_s in SYNS_S:
            network.clock.after(wait_s, self._attempt, opened, (host, port))
        try:
            return await opened
        except asyncio.CancelledError:
            if opened.done() and not opened.cancelled() and opened.exception() is None:
                opened.result().abort()
            raise

    def _attempt(self, opened: asyncio.Future[StreamEnd], target: tuple[str, int]) -> None:
        network, me = self._network, self._address
        if opened.done() or self.loop.is_over or not network.is_whole(me, target[0]):
            return
        network.clock.after(network.segment_delay(me, target[0]), self._arrive, opened, target)

    def _arrive(self, opened: asyncio.Future[StreamEnd], target: tuple[str, int]) -> None:
        """The SYN is there."""
        network, me = self._network, self._address
        if opened.done() or self.loop.is_over or not network.is_whole(me, target[0]):
            return
        back_s = network.segment_delay(target[0], me)
        server = network.servers.get(target)
        if server is None:
            network.clock.after(back_s, self._refused, opened)
            return
        here = StreamEnd(network, self.loop, (me, 0), target)
        there = StreamEnd(network, server.loop, target, (me, 0))
        here.other, there.other = there, here
        server.accept(there)
        network.clock.after(back_s, self._opened, opened, here)

    def _refused(self, opened: asyncio.Future[StreamEnd]) -> None:
        if not opened.done() and not self.loop.is_over:
            opened.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))

    def _opened(self, opened: asyncio.Future[StreamEnd], end: StreamEnd) -> None:
        if opened.done() or self.loop.is_over:
            end.abort()
        else:
            opened.set_result(end)


class LastSegment:
    """The last segment of a stream."""


LAST: Final = LastSegment()


class StreamEnd(asyncio.Transport):
    """One end of a stream: the transport of a process, and the machine below it."""

    other: StreamEnd

    def __init__(
        self, network: SimulatedNetwork, loop: MachineLoop, own: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        super().__init__()
        self.loop = loop
        self._network = network
        self._own, self._peer = own, peer
        self._protocol: asyncio.Protocol | None = None
        self._user_timeout_s = GIVES_UP_S
        self._held: list[bytes | LastSegment] = []
        """What was sent and has not arrived, in order."""
        self._unanswered_since: float | None = None
        """Since when retransmissions run."""
        self._arrives_at = 0.0
        """When the last segment arrives: no later one overtakes it."""
        self._outstanding = 0
        """Bytes that were written here and are not read by the other process."""
        self._inbox: list[bytes] = []
        self._finished_by_other = False
        self._read_due = False
        self._reading = True
        self._blocked = False
        self._high = 1 << 16
        self._closing = False
        self._over = False
        """Whether the process here is done with it."""
        self._gone = False
        """Whether the machine here knows nothing of it any more."""
        self._writes_left: tuple[int, bool] | None = None
        """How many writes are left until it breaks, and whether the last of them arrives."""
        network.ends.setdefault(loop, {})[self] = None

    # asyncio's transport

    def attach(self, protocol: asyncio.Protocol) -> StreamEnd:
        """Give it to a protocol of the process."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._look()
        return self

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self._peer, "sockname": self._own, "socket": self}.get(name, default)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """As the socket of the transport."""
        if hasattr(socket, "TCP_USER_TIMEOUT") and option == socket.TCP_USER_TIMEOUT:
            self._user_timeout_s = value / 1000

    def fileno(self) -> int:
        """As the socket of the transport: there is no file to write to."""
        return -1

    def write(self, data: Any) -> None:
        if self._closing or self._over or self.loop.is_over or not data:
            return
        content = bytes(data)
        self._outstanding += len(content)
        self._transmit(content)
        if self._writes_left is not None:
            self._count_write(*self._writes_left)
        if not self._blocked and self.get_write_buffer_size() > self._high and self._protocol is not None:
            self._blocked = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return max(0, self._outstanding - WINDOW_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is not None:
            self._high = high

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._look()

    def is_closing(self) -> bool:
        return self._closing or self._over

    def close(self) -> None:
        if self._closing or self._over:
            return
        self._closing = True
        if not self._gone:
            self._transmit(LAST)
        if not self.get_write_buffer_size():
            self.loop.call_soon(self._finish, None)

    def abort(self) -> None:
        if self._over:
            return
        self._closing = True
        self._forget()
        self._tell_other()
        self.loop.call_soon(self._finish, None)

    def sever_after(self, writes: int, *, arrives: bool) -> None:
        """Let the stream break after so many further writes of this end; the last bytes arrive before, or do not."""
        self._writes_left = writes, arrives

    def _count_write(self, left: int, arrives: bool) -> None:
        if left:
            self._writes_left = left - 1, arrives
            return
        self._writes_left = None
        clock = self._network.clock
        self._broke(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
        if arrives:
            clock.after(self._arrives_at - clock.now, self.other.was_reset)
        else:
            self.other.was_reset()

    # The process here

    def _finish(self, error: Exception | None) -> None:
        """The last call of the protocol."""
        if self._over:
            return
        self._over = True
        self._network.ends.get(self.loop, {}).pop(self, None)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _look(self) -> None:
        if not self._read_due and self._protocol is not None:
            self._read_due = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_due = False
        if self._over or self._closing or not self._reading or self._protocol is None:
            return
        if self._inbox:
            data = b"".join(self._inbox)
            self._inbox = [data[READ_BYTES:]] if len(data) > READ_BYTES else []
            data = data[:READ_BYTES]
            self.other.was_read(len(data))
            self._protocol.data_received(data)
            if self._inbox:
                self._look()
        if self._finished_by_other and not self._inbox and not self._over and self._reading:
            self.close()

    def was_read(self, size_bytes: int) -> None:
        """The other process has taken bytes of this one."""
        self._outstanding -= size_bytes
        if self._over or self.get_write_buffer_size():
            return
        if self._closing:
            self.loop.call_soon(self._finish, None)
        elif self._blocked:
            self._blocked = False
            self.loop.call_soon(self._unblocked)

    def _unblocked(self) -> None:
        if not self._over and self._protocol is not None:
            self._protocol.resume_writing()

    # The machine here

    def _is_whole(self) -> bool:
        return self._network.is_whole(self._own[0], self._peer[0])

    def _transmit(self, content: bytes | LastSegment) -> None:
        clock = self._network.clock
        if self._unanswered_since is None and self._is_whole():
            self._put(content)
            return
        if self._unanswered_since is None:
            self._unanswered_since = clock.now
            self._retransmit_later(clock.now, FIRST_RETRANSMISSION_S)
        young = clock.now - self._unanswered_since < FIRST_RETRANSMISSION_S
        if young and not self._held and self._network.is_open(self._own[0], self._peer[0]):
            self._put(content)  # only its acknowledgement is lost
        else:
            self._held.append(content)

    def _put(self, content: bytes | LastSegment) -> None:
        clock = self._network.clock
        delay_s = self._network.segment_delay(self._own[0], self._peer[0])
        self._arrives_at = max(self._arrives_at, clock.now + delay_s)
        clock.after(self._arrives_at - clock.now, self.other.arrived, content)

    def _retransmit_later(self, since: float, wait_s: float) -> None:
        clock = self._network.clock
        left_s = since + self._user_timeout_s - clock.now
        if wait_s < left_s:
            clock.after(wait_s, self._retransmit, since, 2 * wait_s)
        else:
            clock.after(left_s, self._give_up, since)

    def _retransmit(self, since: float, wait_s: float) -> None:
        if self._unanswered_since != since:
            return
        if not self._is_whole():
            self._retransmit_later(since, wait_s)
            return
        self._unanswered_since = None
        held, self._held = self._held, []
        for content in held:
            self._put(content)

    def _give_up(self, since: float) -> None:
        if self._unanswered_since == since:
            self._broke(OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def _forget(self) -> None:
        """All that was held is lost."""
        self._gone = True
        self._held.clear()
        self._unanswered_since = None

    def _broke(self, error: OSError) -> None:
        """The stream is gone, without farewell."""
        if self._gone:
            return
        self._forget()
        self.loop.call_soon(self._finish, error)

    def _tell_other(self) -> None:
        """A reset, which is sent once."""
        network = self._network
        if self._is_whole():
            network.clock.after(network.delay(self._own[0], self._peer[0]), self.other.was_reset)

    def was_reset(self) -> None:
        self._broke(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def orphan(self) -> None:
        """The process here has ended: its machine sends what it has, and closes."""
        self._over = True
        if not self._gone and not self._closing:
            self._closing = True
            self._transmit(LAST)

    def arrived(self, content: bytes | LastSegment) -> None:
        """Something has come from the other side."""
        if self._gone or (self._over and not isinstance(content, LastSegment)):
            if not isinstance(content, LastSegment):
                self._tell_other()
            return
        if isinstance(content, LastSegment):
            self._finished_by_other = True
        else:
            self._inbox.append(content)
        self._look()
