"""The seeds: the addresses through which a peer finds its ring, and finds it again after a split.

Each seed is asked who it is, again and again: quickly until this peer is part of a ring, rarely afterwards, never while
a link with it is open. Owns the tasks that do so, and the decision to found a ring. Who answered goes to the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final, Protocol

from overlay.config import Address, OverlayConfig, show
from overlay.errors import OverlayError
from overlay.handshake import Hello
from overlay.ids import SPACE, Id
from overlay.notices import Notices
from overlay.questions import MyselfError

FIRST_RETRY: Final = 1 / 8
"""The pause after the first failure, in join_s; it doubles up to MAX_RETRY."""
MAX_RETRY: Final = 4.0
FOUND_AFTER: Final = 2.0
"""How long, in join_s, the first of the seeds waits for another that is part of a ring."""
REUNION: Final = 6.0
"""How often a seed is asked by a peer that is part of a ring, in reunion_s."""


NOBODY: Final = (
    "none of the seeds is part of a ring yet; one is founded by a peer without seeds,"
    " or by the one whose own address stands first in its list"
)


class Guest(Protocol):
    """Whom the seeds are for."""

    @property
    def active(self) -> bool: ...
    def introduced(self, hello: Hello) -> None:
        """Somebody at one of the seeds answered."""

    def linked(self, peer: Id) -> bool: ...
    def found(self) -> None:
        """There is no ring yet: begin one."""

    async def introduce(self, address: Address) -> Hello: ...


class Seeds:
    """Create, `start`, and `await stop()`."""

    def __init__(self, config: OverlayConfig, own: frozenset[Address], guest: Guest, notices: Notices) -> None:
        self._config = config
        self._guest = guest
        self._notices = notices
        listed = tuple(dict.fromkeys(config.seeds))
        self.others = tuple(seed for seed in listed if seed not in own)
        self._first: Address | None = listed[0] if listed else None
        self._founder = not self.others or self._first in own
        self._ring_seen_at: float | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()
        self._spread = 0.75 + 0.5 * config.id / SPACE
        """Peers that were started together do not ask together."""

    def start(self) -> None:
        """With nobody else to ask, the ring is founded at once."""
        if not self.others:
            self._guest.found()
            return
        roots = [self._ask_on(seed) for seed in self.others]
        for root in (*roots, self._found_in_time()):
            self._tasks.append(self._loop.create_task(self._guarded(root), name="seed"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _guarded(self, root: Coroutine[None, None, None]) -> None:
        try:
            await root
        except Exception:  # noqa: BLE001 - a task's root: logged and counted
            self._notices.failed("seed_errors")

    async def _ask_on(self, seed: Address) -> None:
        join_s, reunion_s = self._config.timing.join_s, self._config.timing.reunion_s * REUNION
        known: Id | None = None
        retry_s = join_s * FIRST_RETRY
        while True:
            if known is None or not self._guest.linked(known):
                try:
                    hello = await self._guest.introduce(seed)
                except MyselfError:
                    self._founder = self._founder or seed == self._first
                    return
                except OverlayError as error:
                    self._notices.warn("seeds_unreachable", show(seed), str(error))
                    known = None
                else:
                    self._notices.forgive("seeds_unreachable", show(seed))
                    known = hello.peer.id
                    if hello.active:
                        self._ring_seen_at = self._loop.time()
                    self._guest.introduced(hello)
            if self._guest.active:
                retry_s = join_s * FIRST_RETRY
                await asyncio.sleep(reunion_s * self._spread)
            else:
                await asyncio.sleep(retry_s * self._spread)
                retry_s = min(retry_s * 2, join_s * MAX_RETRY)
                known = None

    async def _found_in_time(self) -> None:
        """Begin a ring if this peer is the one to do so, and no other seed has been part of one lately."""
        wait_s = self._config.timing.join_s * FOUND_AFTER
        while not self._guest.active:
            await asyncio.sleep(wait_s)
            seen = self._ring_seen_at
            lately = seen is not None and self._loop.time() - seen < self._config.timing.join_s * MAX_RETRY * 2
            if self._founder and not lately and not self._guest.active:
                self._guest.found()
                return
            if not self._guest.active and not lately:
                self._notices.warn("no_ring_found", "seeds", NOBODY)
