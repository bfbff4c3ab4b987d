"""Passwords are verified in threads, as each takes tens of milliseconds of a core, and no more than can be in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ringmq.mqtt_front.access.access import Access, Decision

VERIFIERS: Final = 2
"""Threads: more would take the core from the event loop."""
MAX_WAITING: Final = 200
"""Clients whose passwords wait: some seconds' worth. More would be given up for slowness before their turn comes."""

Arguments = tuple[str | None, bytes | None, str, bool]


class Verifying:
    """The waiting line of one front."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._pool: ThreadPoolExecutor | None = None
        self._waiting = 0

    @property
    def full(self) -> bool:
        """Whether one more would wait in vain."""
        return self._waiting >= MAX_WAITING

    def begin(
        self, arguments: Arguments, wanted: Callable[[], bool], then: Callable[[asyncio.Future[Decision | None]], None]
    ) -> None:
        """Call `then` in the event loop with the decision. `wanted` is asked, in a thread, when its turn has come."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(VERIFIERS, thread_name_prefix="password")
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, self._verified, arguments, wanted)
        future.add_done_callback(self._one_less)
        future.add_done_callback(then)

    def _verified(self, arguments: Arguments, wanted: Callable[[], bool]) -> Decision | None:
        return self._access.authenticate(*arguments) if wanted() else None

    def _one_less(self, _: object) -> None:
        self._waiting -= 1

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
