"""The operator's side of a peer on this machine: its socket and its certificate, both in its data folder.

Knows which errors a user can mend. The commands themselves have modules of their own.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from ringmq.overlay.config import Caller
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.frames import Kind, frame
from ringmq.overlay.queries import MAX_STATUS_BYTES, ask
from ringmq.peer.errors import PeerError
from ringmq.peer.identity.commands import Command, Result
from ringmq.peer.identity.data_folder import CONTROL
from ringmq.peer.identity.identity_files import IdentityFiles

DEFAULT_DATA: Final = "/var/lib/ringmq"
ANSWER_S: Final = 20.0
"""The peer may have to load its code first."""


def obey(data: Path, command: Command) -> str:
    """The answer of the peer with this data folder to a command. Raises PeerError or OverlayError with one line."""
    return asyncio.run(_obey(socket_of(data), msgspec.json.encode(command)))


def socket_of(data: Path) -> Path:
    """The socket of the peer that runs with this data folder. Raises PeerError if there is none."""
    file = data / CONTROL
    try:
        if file.is_socket():
            return file
    except OSError as error:
        raise PeerError(f"data: cannot use {data}: {error.strerror}") from error
    raise PeerError(f"data: no peer runs with {data}: start it, or name its data folder with --data")


def caller_of(data: Path) -> Caller | None:
    """The identity in this data folder; None if there is none. Raises PeerError."""
    files = IdentityFiles(data)
    return files.load() if files.complete else None


async def _obey(place: Path, command: bytes) -> str:
    answer = await ask(place, frame(Kind.COMMAND, command), MAX_STATUS_BYTES, ANSWER_S, None)
    try:
        result = msgspec.json.decode(answer.body, type=Result) if answer.kind == Kind.RESULT else None
    except (ValueError, RecursionError) as error:
        raise OverlayError(f"{place} sent no readable result: {error}") from error
    if result is None:
        raise OverlayError(f"{place} is no peer of this version: it answered with frame kind {answer.kind}")
    if result.error:
        raise PeerError(result.error)
    return result.text
