"""Queries: one question and one answer over a connection of their own, for introductions and the status of a peer."""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import Any, Final, cast

import msgspec

from ringmq.overlay.config import Address, OverlayConfig, show
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import IdTakenError, OverlayError, ProtocolError
from ringmq.overlay.links.frames import FrameReader, Kind, frame
from ringmq.overlay.links.handshake import (
    MAX_HELLO_BYTES,
    HandshakePolicy,
    Hello,
    Reason,
    decode_goodbye,
    decode_hello,
    encode_hello,
)

MAX_STATUS_BYTES: Final = 1 << 20
"""Largest status of a peer: some 2,000 links, counters, and a leaf set."""
MAX_ABOUT_BYTES: Final = MAX_HELLO_BYTES - 1
"""Largest subject of a status request, and largest request: beside the kind, in the largest frame that a stranger may
send."""
MAX_REPLY_BYTES: Final = 64 << 20
"""Largest answer to a request: four times what a peer gathers of a ring."""


def cause(error: BaseException) -> str:
    """The system's reason for an error, in a few words and without Python's wrapping."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno).lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


class _Query(asyncio.Protocol):
    """Writes the question, and resolves `answer` with the first frame that comes back."""

    def __init__(self, question: bytes, max_answer_bytes: int) -> None:
        self._question = question
        self._reader = FrameReader(max_answer_bytes)
        self._transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self._transport.write(self._question)

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        # The peer may send more frames before `hang_up`, and a future takes one result.
        if self.answer.done():
            return
        try:
            for first in self._reader.feed(data):
                self.answer.set_result(first)
                return
        except ProtocolError as error:
            self.answer.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(OverlayError("closed the connection without an answer"))
            # The caller may have stopped waiting, and asyncio logs errors that are never retrieved.
            self.answer.exception()


async def ask(
    address: Address, question: bytes, max_answer_bytes: int, timeout_s: float, tls: ssl.SSLContext | None
) -> tuple[int, bytes]:
    """The first frame that `address` answers with. Raises OverlayError with one line that names the address."""
    protocol = _Query(question, max_answer_bytes)
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().create_connection(lambda: protocol, *address, ssl=tls)
            kind, body = await protocol.answer
    except (OSError, UnicodeError, OverflowError, OverlayError) as error:
        raise OverlayError(f"{show(address)}: {cause(error)}") from error
    finally:
        protocol.hang_up()
    if kind == Kind.GOODBYE:
        reason, text = decode_goodbye(body)
        if reason is Reason.MYSELF:
            raise MyselfError(f"{show(address)} is this peer itself")
        if reason is Reason.ID_TAKEN:
            raise IdTakenError(f"{show(address)} refuses: {text}", address)
        raise OverlayError(f"{show(address)} refuses: {text}")
    return kind, body


class MyselfError(OverlayError):
    """The address leads back to this peer."""


async def introduce(config: OverlayConfig, me: Peer, active: bool, address: Address) -> Hello:
    """Ask for the HELLO of the peer at an address. Raises OverlayError with one line; MyselfError for this peer."""
    question = frame(Kind.HELLO, encode_hello(Hello(config.ring, me, active, None, config.ring_settings)))
    kind, body = await ask(address, question, MAX_HELLO_BYTES, config.handshake_s, config.tls_client)
    try:
        hello = decode_hello(body) if kind == Kind.HELLO else None
    except ProtocolError as error:
        raise OverlayError(f"{show(address)} is no peer: {error}") from None
    reason = HandshakePolicy(me, config.ring, config.ring_settings).stranger(hello)
    if reason is Reason.MYSELF:
        raise MyselfError(f"{show(address)} is this peer itself")
    if hello is None or reason is not None:
        raise OverlayError(f"{show(address)} is not for us: {reason}")
    return hello


async def ask_status(
    address: Address, timeout_s: float = 3.0, tls: ssl.SSLContext | None = None, about: str = ""
) -> dict[str, Any]:
    """Fetch a running peer's status over its overlay port. Raises OverlayError with one clear line.

    The application defines the subjects, of at most MAX_ABOUT_BYTES, that it can be asked `about`.
    """
    kind, body = await ask(address, frame(Kind.STATUS_REQUEST, about.encode()), MAX_STATUS_BYTES, timeout_s, tls)
    try:
        if kind == Kind.STATUS_REPLY:
            return msgspec.json.decode(body, type=dict[str, Any])
    # msgspec raises RecursionError for deeply nested JSON.
    except (ValueError, RecursionError) as error:
        raise OverlayError(f"{show(address)} sent no readable status: {error}") from None
    raise OverlayError(f"{show(address)} is no peer of this version: it answered with frame kind {kind}")


async def ask_ring(
    address: Address, request: bytes, timeout_s: float = 5.0, tls: ssl.SSLContext | None = None
) -> bytes:
    """The answer of a running peer to a request about its ring, as JSON. Raises OverlayError with one clear line."""
    kind, body = await ask(address, frame(Kind.REQUEST, request), MAX_REPLY_BYTES, timeout_s, tls)
    if kind != Kind.REPLY:
        raise OverlayError(f"{show(address)} is no peer of this version: it answered with frame kind {kind}")
    return body
