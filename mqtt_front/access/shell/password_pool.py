"""Verifies passwords in threads, since each takes tens of milliseconds of a core, and bounds the queue for them.

Must not know connections or packets: the caller passes what to verify and gets a decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ringmq.mqtt_front.access.access import Access, Decision

VERIFIERS: Final = 2
"""Number of threads; more would take the core from the event loop."""
MAX_WAITING: Final = 200
"""Maximum number of queued passwords, some seconds of work. Clients beyond would reach their CONNECT timeout first."""

Arguments = tuple[str | None, bytes | None, str, bool]


class PasswordPool:
    """The threads and the queue of one front."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._pool: ThreadPoolExecutor | None = None
        self._waiting = 0

    @property
    def full(self) -> bool:
        """Whether a further client must be refused."""
        return self._waiting >= MAX_WAITING

    def verify(
        self, arguments: Arguments, wanted: Callable[[], bool], then: Callable[[asyncio.Future[Decision | None]], None]
    ) -> None:
        """Call `then` in the event loop with the decision, or None if `wanted`, asked in a thread, said no by then."""
        if self._pool is None:
            # Not at the start: a peer without a password file needs no threads.
            self._pool = ThreadPoolExecutor(VERIFIERS, thread_name_prefix="password")
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, self._authenticate, arguments, wanted)
        future.add_done_callback(self._count_down)
        future.add_done_callback(then)

    def _authenticate(self, arguments: Arguments, wanted: Callable[[], bool]) -> Decision | None:
        # Asked as late as possible: the client may have gone while it was queued, and scrypt is slow on purpose.
        return self._access.authenticate(*arguments) if wanted() else None

    def _count_down(self, _: object) -> None:
        self._waiting -= 1

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
