"""WebSocket between a client's socket and its protocol: a protocol to the socket, a transport to the protocol.

Owns the opening, the closing and the answers to pings; MQTT passes through it unread. Written here, since a server
without extensions whose messages are a byte stream needs some 250 lines, and each install saves a package.
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
"""Time in which a client must answer a close frame."""


class State(Enum):
    """The state of a connection."""

    OPENING = auto()
    """The request is not complete."""
    OPEN = auto()
    CLOSING = auto()
    """The server has sent a close frame, and the client has not answered it."""
    CLOSED = auto()


class WebSocket(asyncio.Protocol, asyncio.Transport):
    """Give it the events of a socket; `client` gets the payloads. Each `write` of the client becomes one binary frame.

    The client's `connection_made` is called at once, so that its deadline includes the opening handshake.
    """

    def __init__(self, client: asyncio.Protocol, on_breach: Callable[[str], None]) -> None:
        """`on_breach` is called at most once, with the client's violation; the connection is then closed."""
        super().__init__()
        self._client = client
        self._on_breach = on_breach
        self._state = State.OPENING
        self._upgrade = Upgrade()
        self._reader = FrameReader()
        self._blocked = False
        self._reads = True
        """Whether the client's protocol wants more bytes."""
        self._waiting = False
        """Whether the rest of the frames is scheduled for a later iteration."""
        self._lost = False
        """Whether the socket is closed; the client's `connection_lost` follows its last bytes."""
        self._pong: bytes | None = None
        """The last unanswered ping: earlier ones need no pong (RFC 6455 §5.5.3), so pings cost a bounded memory."""
        self._closer: asyncio.TimerHandle | None = None
        self._socket: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._client.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._state is State.OPENING:
            data = self._open(data)
        if data and self._state in (State.OPEN, State.CLOSING):
            self._read(data)

    def _open(self, data: bytes) -> bytes:
        """Answer the request once it is complete; returns the bytes after it."""
        try:
            opened = self._upgrade.feed(data)
        except UpgradeError as error:
            self._state = State.CLOSED
            self._socket.write(error.response)
            self._socket.close()
            self._on_breach(str(error))
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
            self._read_later()
        if fault:
            self._on_breach(fault)

    def _read_later(self) -> None:
        """Process the rest of the frames in a later iteration, and read nothing from the socket until then."""
        if not self._lost and not self.is_closing():
            self._socket.pause_reading()
        if not self._waiting and (self._reads or self._lost):
            self._waiting = True
            asyncio.get_running_loop().call_soon(self._read_rest)

    def _read_rest(self) -> None:
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
        # While the client does not read, pongs would pile up in the transport's buffer.
        if self._pong is not None and self._state is State.OPEN and not self._blocked and not self._lost:
            self._socket.write(pong_frame(self._pong))
            self._pong = None

    def _end(self, code: int | None) -> None:
        """Close after a close frame or a violation; the server closes the socket first (RFC 6455 §7.1.1)."""
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
            self._read_later()  # Frames that came before the end still count, a DISCONNECT among them.
        else:
            self._over(exc)

    def _over(self, exc: Exception | None) -> None:
        self._state = State.CLOSED
        if self._closer is not None:
            self._closer.cancel()
        self._client.connection_lost(exc)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._state is State.OPEN and data and not self._lost:
            self._socket.write(frame_head(Opcode.BINARY, len(data)) + data)

    def close(self) -> None:
        """Send a close frame, and close the socket when the client has answered it, or after CLOSE_S."""
        if self._state is State.OPENING:
            self._state = State.CLOSED
            self._socket.close()
        elif self._state is State.OPEN:
            self._state = State.CLOSING
            self._socket.write(close_frame(CloseCode.NORMAL))
            self._closer = asyncio.get_running_loop().call_later(CLOSE_S, self._socket.abort)
            # The client's protocol may have paused reading, and the answer must be read.
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
            self._read_later()
        else:
            self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Everything that the socket's transport knows except the socket, or the client would write past the frames."""
        return default if name == "socket" else self._socket.get_extra_info(name, default)
