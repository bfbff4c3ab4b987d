"""WebSocket between a client's socket and its protocol: to the socket a protocol, to the protocol a transport.

Owns the opening, the closing and the answers to pings; MQTT passes through it unseen. In lines of our own, since a
server without extensions whose messages are a byte stream needs some 250, and every peer's install is spared a package.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, cast

from ringmq.mqtt_front.server.websocket_frames import (
    CloseCode,
    FrameError,
    FrameReader,
    Opcode,
    Ping,
    close_frame,
    frame_head,
    pong_frame,
)
from ringmq.mqtt_front.server.websocket_upgrade import Upgrade, UpgradeError

CLOSE_S: Final = 2.0
"""How long a client may take to answer that the connection is closed."""


class State(Enum):
    """How far the connection is."""

    OPENING = auto()
    """The request has not come."""
    OPEN = auto()
    CLOSING = auto()
    """The server has closed; the client's answer has not come."""
    CLOSED = auto()


class WebSocket(asyncio.Protocol, asyncio.Transport):
    """Give it a socket's events. `client` is told of the connection at once, so that its deadline holds for the opening
    too, and of the bytes inside the frames. Each `write` of the client's becomes one binary frame.
    """

    def __init__(self, client: asyncio.Protocol, faulty: Callable[[str], None]) -> None:
        """`faulty` is called once at most, with what the client did wrong; the connection is then closed."""
        super().__init__()
        self._client = client
        self._faulty = faulty
        self._state = State.OPENING
        self._upgrade = Upgrade()
        self._reader = FrameReader()
        self._blocked = False
        self._reads = True
        """Whether the client's protocol wants more."""
        self._waiting = False
        """The rest of what has come is for a later turn of the loop."""
        self._lost = False
        """The socket is closed; the client is told when it has all that came before."""
        self._pong: bytes | None = None
        """The last ping that is not answered: a client that does not read is owed no more (RFC 6455 §5.5.3)."""
        self._closer: asyncio.TimerHandle | None = None
        self._socket: asyncio.Transport

    # Towards the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._client.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._state is State.OPENING:
            data = self._open(data)
        if data and self._state in (State.OPEN, State.CLOSING):
            self._read(data)

    def _open(self, data: bytes) -> bytes:
        """Answer the request once it is there; gives what follows it."""
        try:
            opened = self._upgrade.feed(data)
        except UpgradeError as error:
            self._state = State.CLOSED
            self._socket.write(error.response)
            self._socket.close()
            self._faulty(str(error))
            return b""
        if opened is None:
            return b""
        self._state = State.OPEN
        self._socket.write(opened[0])
        return opened[1]

    def _read(self, data: bytes) -> None:
        payloads: list[bytes] = []
        ended, code, fault = False, None, ""
        try:
            for event in self._reader.feed(data):
                if isinstance(event, bytes):
                    payloads.append(event)
                elif isinstance(event, Ping):
                    self._pong = event.payload
                else:
                    ended, code = True, event.code
        except FrameError as error:
            ended, code, fault = True, error.code, str(error)
        if payloads and self._state is State.OPEN:
            self._client.data_received(payloads[0] if len(payloads) == 1 else b"".join(payloads))
        self._answer_ping()
        if ended:
            self._end(code)
        elif self._reader.full:
            self._go_on_later()
        if fault:
            self._faulty(fault)

    def _go_on_later(self) -> None:
        """There are more frames than are for one turn of the loop: no more is read until they are worked off."""
        if not self._lost and not self.is_closing():
            self._socket.pause_reading()
        if not self._waiting and (self._reads or self._lost):
            self._waiting = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._waiting = False
        if self._state in (State.OPEN, State.CLOSING):
            self._read(b"")
        if self._reader.full and self._state is not State.CLOSED:
            return
        if self._lost:
            self._over(None)
        elif self._reads and not self._socket.is_closing():
            self._socket.resume_reading()

    def _answer_ping(self) -> None:
        if self._pong is not None and self._state is State.OPEN and not self._blocked and not self._lost:
            self._socket.write(pong_frame(self._pong))
            self._pong = None

    def _end(self, code: int | None) -> None:
        """The client has closed, or broken the protocol; the server closes the socket first (RFC 6455 §7.1.1)."""
        if self._state is State.OPEN and not self._lost:
            self._socket.write(close_frame(code))
        self._state = State.CLOSED
        self._socket.close()

    def pause_writing(self) -> None:
        self._blocked = True
        self._client.pause_writing()

    def resume_writing(self) -> None:
        self._blocked = False
        self._answer_ping()
        self._client.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._reader.full and self._state is State.OPEN:
            self._go_on_later()  # What came before counts.
        else:
            self._over(exc)

    def _over(self, exc: Exception | None) -> None:
        self._state = State.CLOSED
        if self._closer is not None:
            self._closer.cancel()
        self._client.connection_lost(exc)

    # Towards the client's protocol

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._state is State.OPEN and data and not self._lost:
            self._socket.write(frame_head(Opcode.BINARY, len(data)) + data)

    def close(self) -> None:
        """Say so, and close the socket when the client has answered, or not answered in time."""
        if self._state is State.OPENING:
            self._state = State.CLOSED
            self._socket.close()
        elif self._state is State.OPEN:
            self._state = State.CLOSING
            self._socket.write(close_frame(CloseCode.NORMAL))
            self._closer = asyncio.get_running_loop().call_later(CLOSE_S, self._socket.abort)
            # Its answer is to be seen, also if nothing more was to be read from it.
            self.resume_reading()

    def abort(self) -> None:
        self._state = State.CLOSED
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._state in (State.CLOSING, State.CLOSED) or self._socket.is_closing()

    def pause_reading(self) -> None:
        self._reads = False
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._reads = True
        if self._reader.full:
            self._go_on_later()
        else:
            self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """All that the socket's transport knows, but for the socket: nobody is to write past the frames."""
        return default if name == "socket" else self._socket.get_extra_info(name, default)
