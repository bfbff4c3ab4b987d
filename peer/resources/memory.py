"""Memory that is not in use any more goes back to the system, so that a peer is no larger than what it keeps.

Python's own allocator gives back pieces of a megabyte in which nothing is in use, and after 3,000 topics came and went
there was something in use in nearly each of them. That of glibc gives back pages. So with glibc a peer runs on that: as
fast, as far as could be measured, and with a tenth more memory for each of many leases. Elsewhere nothing is done.

There it also says when garbage is looked for, in the place of `limits`: a search through all of a large peer takes a
second. And `without_rich` keeps out what a peer never shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Mapping
from functools import cache
from time import perf_counter
from typing import Any, Final

ALLOCATOR: Final = "PYTHONMALLOC"
"""The variable by which Python is told what to allocate with. Who has set it has chosen."""
LOOK_S: Final = 5.0
PATIENCE: Final = 300
LONGEST_S: Final = 60.0
"""Between two looks: so many times as long as one takes, which is up to half a second where 1 GB is in pieces; at the
least, and at the most."""
SHARE: Final = 8
"""Once one part in so many of what was in use is not any more, it is given back."""
FINE_SHARE: Final = 64
FINE_LOOKS: Final = 6
"""One look in so many is for smaller parts, and for garbage everywhere."""
YOUNG: Final = (5_000, 5, 1_000_000)
"""When Python looks for garbage by itself: only among what is young, 30,000 objects at the most, which takes up to 0.1
s in a large peer."""
SMALL_BYTES: Final = 100_000_000
"""With more in use nobody looks for garbage among what is old. It takes a second per GB, and a peer that is not heard
for so long is taken for dead. What a peer drops is not garbage in this sense: it has no cycles, and goes at once."""


class _Usage(ctypes.Structure):
    """`struct mallinfo2` of glibc's malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


@cache
def _glibc() -> Any:
    """The library; None if this is not it, or one before 2.33."""
    try:
        if not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
            return None
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _Usage
    except (AttributeError, OSError, ValueError):
        return None
    return library


def with_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a peer that need not start again to run on the system's allocator."""
    return {ALLOCATOR: "malloc", **environment} if _glibc() is not None else dict(environment)


def start_again_with_pages() -> None:
    """Start this program once more, as the same process, on the system's allocator: there is no other way to have it.

    To be called before anything is done. Returns if it runs on it already, or if it should not.
    """
    if ALLOCATOR in os.environ or sys.flags.ignore_environment or not sys.executable or _glibc() is None:
        return
    with contextlib.suppress(OSError):  # it runs as it is, then
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], with_pages(os.environ))  # noqa: S606


def without_rich() -> None:
    """structlog draws tracebacks with rich where that is installed, as it is with amqtt: megabytes that no peer needs.

    To be called before structlog is imported.
    """
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # its import says then that it is not there


class GivingBack:
    """Looks now and then whether less is in use than at most since it last did so, and gives the rest back."""

    def __init__(self) -> None:
        self._on_pages = os.environ.get(ALLOCATOR) == "malloc" and _glibc() is not None
        self.used_bytes = 0
        """What was in use at the last look."""
        self._most_bytes = 0
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """In the running event loop, until `stop`."""
        if self._on_pages:
            gc.set_threshold(*YOUNG)
            loop = asyncio.get_running_loop()
            loop.call_soon(_glibc().malloc_trim, 0)  # what the start needed, once its frames have gone
            self._look(loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        began = perf_counter()
        self._looks += 1
        fine = self._looks % FINE_LOOKS == 0
        if fine and self.used_bytes <= SMALL_BYTES:
            gc.collect()
        self.look(FINE_SHARE if fine else SHARE)
        wait_s = min(max(LOOK_S, PATIENCE * (perf_counter() - began)), LONGEST_S)
        self._timer = loop.call_later(wait_s, self._look, loop)

    def look(self, share: int) -> bool:
        """Whether one part in so many of the most that was in use is not any more, and was given back."""
        used = self.used_bytes = in_use_bytes()
        self._most_bytes = max(self._most_bytes, used)
        if used > self._most_bytes - self._most_bytes // share:
            return False
        _forget_free_objects()
        _glibc().malloc_trim(0)
        self._most_bytes = used
        return True


def _forget_free_objects() -> None:
    """Python keeps thousands of tuples for later use, and names by which methods were found, each on another page.

    It forgets the tuples once it has looked for garbage everywhere. There may be millions of old objects, so they are
    hidden from it for that moment; those from the start are hidden no longer after it.
    """
    gc.collect(1)
    gc.freeze()
    gc.collect()
    gc.unfreeze()
    forget = getattr(sys, "_clear_internal_caches", None) or getattr(sys, "_clear_type_cache", None)
    if forget is not None:
        forget()


def in_use_bytes() -> int:
    """What this process was given of the system's allocator, and has not given back. 0 where nobody can say."""
    library = _glibc()
    if library is None:
        return 0
    usage = library.mallinfo2()
    return int(usage.uordblks + usage.hblkhd)
