"""Queries: one question and one answer over a connection of their own, for introductions, the status of a
peer, requests about the ring, the admission of machines, and commands of the operator."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, cast

import msgspec

from ringmq.overlay.config import Address, Caller, OverlayConfig, show
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
from ringmq.overlay.links.proofs import Proof

MAX_STATUS_BYTES: Final = 1 << 20
"""Largest status of a peer: some 2,000 links, counters, and a leaf set."""
MAX_ABOUT_BYTES: Final = MAX_HELLO_BYTES - 1
"""Largest subject of a status request, and largest request: beside the kind, in the largest frame that a stranger may
send."""
MAX_REPLY_BYTES: Final = 64 << 20
"""Largest answer to a request: four times what a peer gathers of a ring."""


MAX_SOCKET_PATH: Final = 100
"""Longest path of a Unix socket that all systems take."""
SHUTDOWN_S: Final = 2.0
"""Time in which the other side may answer the end of TLS."""
TLS_FAULTS: Final = {
    "WRONG_VERSION_NUMBER": "it speaks no TLS: its ring has no identity",
    "TLSV1_ALERT_UNKNOWN_CA": "it is of another ring: it refuses our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refuses our certificate",
}
"""Reasons of OpenSSL that tell a user nothing."""

Place = Address | Path
"""An overlay address, or the Unix socket in a data folder."""


class QueryAnswer(NamedTuple):
    kind: int
    body: bytes
    proof: Proof | None
    """What the certificate of the other side proves."""


def name_of(place: Place) -> str:
    return str(place) if isinstance(place, Path) else show(place)


@contextlib.contextmanager
def socket_path(file: Path) -> Iterator[str]:
    """A path of this Unix socket that is short enough for the system. Raises OSError."""
    if len(os.fsencode(file)) <= MAX_SOCKET_PATH:
        yield str(file)
        return
    folder = os.open(file.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{file.name}"
    finally:
        os.close(folder)


def tls_options(caller: Caller | None, timeout_s: float) -> dict[str, Any]:
    """Arguments of `create_connection` for the TLS of a ring; none for a ring without identity."""
    if caller is None:
        return {}
    timeouts = {"ssl_handshake_timeout": timeout_s, "ssl_shutdown_timeout": SHUTDOWN_S}
    # Certificates name ids and no hosts, so the host is not sent either.
    return {"ssl": caller.client, "server_hostname": "", **timeouts}


def cause(error: BaseException) -> str:
    """The system's reason for an error, in a few words and without Python's wrapping."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not of this ring: {error.verify_message.lower()}"
    if isinstance(error, ssl.SSLError):
        return TLS_FAULTS.get(error.reason or "", f"TLS failed: {(error.reason or 'no reason').lower()}")
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno).lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


class _Query(asyncio.Protocol):
    """Writes the question, and resolves `answer` with the first frame that comes back."""

    def __init__(self, question: bytes, max_answer_bytes: int, caller: Caller | None) -> None:
        self._question = question
        self._caller = caller
        self._reader = FrameReader(max_answer_bytes)
        self._transport: asyncio.Transport | None = None
        self.proof: Proof | None = None
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        secured = transport.get_extra_info("ssl_object")
        if secured is not None and self._caller is not None:
            try:
                self.proof = self._caller.read(secured.getpeercert(binary_form=True) or b"")
            except OverlayError as error:
                self.answer.set_exception(error)
                return
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
            why = cause(exc) if isinstance(exc, ssl.SSLError) else "closed the connection without an answer"
            self.answer.set_exception(OverlayError(why))
            # The caller may have stopped waiting, and asyncio logs errors that are never retrieved.
            self.answer.exception()


async def ask(
    place: Place, question: bytes, max_answer_bytes: int, timeout_s: float, caller: Caller | None
) -> QueryAnswer:
    """The first frame that `place` answers with. Raises OverlayError with one line that names the place."""
    protocol = _Query(question, max_answer_bytes, caller)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            if isinstance(place, Path):
                with socket_path(place) as path:
                    await loop.create_unix_connection(lambda: protocol, path)
            else:
                await loop.create_connection(lambda: protocol, *place, **tls_options(caller, timeout_s))
            kind, body = await protocol.answer
    except (OSError, UnicodeError, OverflowError, OverlayError) as error:
        raise OverlayError(f"{name_of(place)}: {cause(error)}") from error
    finally:
        protocol.hang_up()
    if kind == Kind.GOODBYE:
        _refused(place, body)
    return QueryAnswer(kind, body, protocol.proof)


def _refused(place: Place, body: bytes) -> NoReturn:
    """Raise the error for a GOODBYE."""
    reason, text = decode_goodbye(body)
    if reason is Reason.MYSELF:
        raise MyselfError(f"{name_of(place)} is this peer itself")
    if reason is Reason.ID_TAKEN and not isinstance(place, Path):
        raise IdTakenError(f"{show(place)} refuses: {text}", place)
    raise OverlayError(f"{name_of(place)} refuses: {text}")


class MyselfError(OverlayError):
    """The address leads back to this peer."""


async def introduce(config: OverlayConfig, me: Peer, active: bool, address: Address) -> Hello:
    """Ask for the HELLO of the peer at an address. Raises OverlayError with one line; MyselfError for this peer."""
    question = frame(Kind.HELLO, encode_hello(Hello(config.ring, me, active, None, config.ring_settings)))
    answer = await ask(address, question, MAX_HELLO_BYTES, config.handshake_s, config.credentials)
    if answer.kind == Kind.EXPULSIONS and answer.proof is not None and config.credentials is not None:
        await config.credentials.learn(answer.body)
        raise OverlayError(f"{show(address)} refuses: {Reason.EXPELLED}")
    try:
        hello = decode_hello(answer.body) if answer.kind == Kind.HELLO else None
    except ProtocolError as error:
        raise OverlayError(f"{show(address)} is no peer: {error}") from None
    policy = HandshakePolicy(me, config.ring, config.ring_settings, config.credentials is not None)
    reason = policy.stranger(hello, answer.proof)
    if reason is Reason.MYSELF:
        raise MyselfError(f"{show(address)} is this peer itself")
    if hello is None or reason is not None:
        raise OverlayError(f"{show(address)} is not for us: {reason}")
    return hello


async def ask_status(
    place: Place, timeout_s: float = 3.0, caller: Caller | None = None, about: str = ""
) -> dict[str, Any]:
    """Fetch a running peer's status. Raises OverlayError with one clear line.

    The application defines the subjects, of at most MAX_ABOUT_BYTES, that it can be asked `about`.
    """
    request = frame(Kind.STATUS_REQUEST, about.encode())
    answer = await ask(place, request, MAX_STATUS_BYTES, timeout_s, caller)
    try:
        if answer.kind == Kind.STATUS_REPLY:
            return msgspec.json.decode(answer.body, type=dict[str, Any])
    # msgspec raises RecursionError for deeply nested JSON.
    except (ValueError, RecursionError) as error:
        raise OverlayError(f"{name_of(place)} sent no readable status: {error}") from None
    raise OverlayError(f"{name_of(place)} is no peer of this version: it answered with frame kind {answer.kind}")


async def ask_ring(place: Place, request: bytes, timeout_s: float = 5.0, caller: Caller | None = None) -> bytes:
    """The answer of a running peer to a request about its ring, as JSON. Raises OverlayError with one clear line."""
    answer = await ask(place, frame(Kind.REQUEST, request), MAX_REPLY_BYTES, timeout_s, caller)
    if answer.kind != Kind.REPLY:
        raise OverlayError(f"{name_of(place)} is no peer of this version: it answered with frame kind {answer.kind}")
    return answer.body
