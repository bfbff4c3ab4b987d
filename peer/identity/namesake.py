"""The namesake: a running peer that has the id of this one, as its data folder is a copy. Noted over restarts.

Owns the file `taken` in the data folder. A copy that has been refused must not take the id while the namesake is
restarted, so it waits for it first. Knows nothing of sockets; the caller asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

from ringmq.overlay.config import Address, show
from ringmq.overlay.errors import IdTakenError, OverlayError
from ringmq.peer.errors import DataFolderError
from ringmq.peer.settings.addresses import parse_address

NOTED: Final = "taken"
VACANT_S: Final = 60.0
"""How long a peer that was refused before waits for its namesake: above the restart of a machine. Whoever needs the id
sooner, as the namesake is gone for good, removes the file."""
ASK_S: Final = 1.0
"""Pause between two questions."""
MAX_CHARS: Final = 300

Ask = Callable[[Address], Awaitable[object]]
"""Asks the peer at an address who it is. Raises IdTakenError if it has the id of this one, OverlayError if nobody
answers."""

log = structlog.get_logger()


class Namesake:
    """One per data folder."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / NOTED

    @property
    def address(self) -> Address | None:
        """Where it ran when it was met last. None: there is none."""
        try:
            return parse_address(self.file.read_text()[:MAX_CHARS].strip())
        except (OSError, ValueError):
            return None

    def note(self, address: Address) -> None:
        """Raises DataFolderError."""
        try:
            self.file.write_text(f"{show(address)}\n")
        except OSError as error:
            raise DataFolderError(f"data: cannot write {self.file}: {error.strerror}") from error

    def forget(self) -> None:
        with contextlib.suppress(OSError):
            self.file.unlink(missing_ok=True)

    async def wait_until_gone(self, ask: Ask, stopped: asyncio.Event) -> None:
        """Return when the namesake has not answered for VACANT_S, or `stopped` is set. Raises IdTakenError if it runs.

        Returns at once if there was none."""
        address = self.address
        if address is None:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + VACANT_S
        log.warning("waits for the peer that had this id", address=show(address), seconds=VACANT_S, file=str(self.file))
        while not stopped.is_set() and loop.time() < until:
            try:
                await ask(address)
            except IdTakenError:
                raise
            except OverlayError:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), ASK_S)
            else:
                # Another peer lives there by now.
                break
        if not stopped.is_set():
            self.forget()
