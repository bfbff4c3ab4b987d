"""Limits of the process: open files, the warning when none is left, and how often Python collects garbage."""

from __future__ import annotations

import asyncio
import errno
import gc
import math
import resource
from typing import Any, Final

import structlog

QUIET_S: Final = 60.0
"""Pause between two log lines about the same shortage: without descriptors, thousands of accepts may fail each
second."""

log = structlog.get_logger()


def allow_files(wanted: int) -> int:
    """Raise the soft limit of open files towards `wanted`, up to the hard limit. Returns how many of `wanted` it
    allows."""
    # Each link, client and pipe takes a descriptor. The usual soft limit of 1024 protects programs that use select(),
    # which cannot handle higher descriptors; event loops use epoll or kqueue.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    best = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= best:
        return best
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (best, hard))
    except (
        OSError,
        ValueError,
    ):  # some systems (macOS) have another limit below the hard one
        return soft
    return best


class Exhaustion:
    """Exception handler of an event loop that logs a lack of file descriptors as one line per minute, not a traceback.

    asyncio reports the lack. uvloop does not: it closes the connections for which it has no descriptor.
    """

    def __init__(self) -> None:
        self._quiet_until = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + QUIET_S
            log.warning("no file descriptor is left: connections wait", why=error.strerror)


def collect_garbage_seldom() -> None:
    """Collect garbage more seldom. Call this once all permanent parts of the process exist.

    `memory` sets other thresholds where it runs.
    """
    # Objects of clients live long, and Python's thresholds examine them again and again: with 100,000 subscriptions new
    # topics cost 1.21 times as much under Python's thresholds, and 1.03 times under these.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
