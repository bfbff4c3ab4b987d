"""WebSocket between a client's socket and its protocol: a protocol to the socket, a transport to the protocol.

Owns the opening, the closing and the answers to pings; MQTT passes through it unread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Final, cast

from ringmq.mqtt_front.client.server_address import ServerAddress
from ringmq.mqtt_front.client.websocket_side import KEY_BYTES, Opening
from ringmq.mqtt_front.errors import UpgradeRefusedError
from ringmq.mqtt_front.server.websocket_frames import (
    Close,
    CloseCode,
    FrameError,
    FrameReader,
    Opcode,
    Ping,
    masked_frame,
)

CLOSE_S: Final = 2.0
"""Time in which the server must answer a close frame."""
MASK_BYTES: Final = 4


class WebSocketLine(asyncio.Protocol, asyncio.Transport):
    """Give it the events of a socket; `client` gets the payloads, and its `connection_made` once `opened` is done."""

    def __init__(self, client: asyncio.Protocol, address: ServerAddress) -> None:
        super().__init__()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises UpgradeRefusedError, or ConnectionError if the connection ends before."""
        self._client = client
        self._opening: Opening | None = Opening(address, os.urandom(KEY_BYTES))
        self._reader = FrameReader(of_server=True)
        self._closing = False
        self._closer: asyncio.TimerHandle | None = None
        self._socket: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        assert self._opening is not None
        self._socket.write(self._opening.request)

    def data_received(self, data: bytes) -> None:
        if self._opening is not None:
            try:
                rest = self._opening.feed(data)
            except UpgradeRefusedError as error:
                if not self.opened.done():
                    self.opened.set_exception(error)
                self._socket.abort()
                return
            if rest is None:
                return
            self._opening, data = None, rest
            if not self.opened.done():
                self.opened.set_result(None)
            self._client.connection_made(self)
        try:
            self._read(data)
        except FrameError as error:
            self._end(error.code)

    def _read(self, data: bytes) -> None:
        while True:
            for event in self._reader.feed(data):
                if isinstance(event, Ping):
                    self._send(Opcode.PONG, event.payload)
                elif isinstance(event, Close):
                    self._end(event.code)
                elif not self._socket.is_closing():
                    self._client.data_received(event)
            if not self._reader.full:
                return
            data = b""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closer is not None:
            self._closer.cancel()
        if self._opening is None:
            self._client.connection_lost(exc)
        elif not self.opened.done():
            self.opened.set_exception(exc or ConnectionResetError("it closed the connection"))

    def pause_writing(self) -> None:
        if self._opening is None:
            self._client.pause_writing()

    def resume_writing(self) -> None:
        if self._opening is None:
            self._client.resume_writing()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._send(Opcode.BINARY, bytes(data))

    def close(self) -> None:
        """Send a close frame, and close the socket when the server has answered it, or after CLOSE_S."""
        if self._closing:
            return
        self._send(Opcode.CLOSE, CloseCode.NORMAL.to_bytes(2, "big"))
        self._closing = True
        self._closer = asyncio.get_running_loop().call_later(CLOSE_S, self._socket.abort)

    def abort(self) -> None:
        self._closing = True
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._closing or self._socket.is_closing()

    def pause_reading(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._socket.resume_reading()

    def _send(self, opcode: Opcode, payload: bytes) -> None:
        if not self._closing and not self._socket.is_closing():
            self._socket.write(masked_frame(opcode, payload, os.urandom(MASK_BYTES)))

    def _end(self, code: int | None) -> None:
        """Answer a close frame, or a breach, and close the socket."""
        self._send(Opcode.CLOSE, b"" if code is None else code.to_bytes(2, "big"))
        self._closing = True
        self._socket.close()
