"""Returns unused memory to the system, so that a peer shrinks after its load has gone.

Python's allocator returns pieces of 1 MB, and only if nothing in them is in use; after 3,000 topics came and went,
nearly every piece had an object in use. The allocator of glibc returns pages. So with glibc a peer uses that allocator:
no speed difference was measured, and each of many leases takes a tenth more memory. On other systems nothing is done.

With glibc this module also replaces the garbage collection thresholds of `limits`, because a full collection of a large
peer takes a second. `without_rich` keeps an unused package out of memory.
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
"""Environment variable that selects Python's allocator. If the user has set it, that choice stays."""
LOOK_S: Final = 5.0
PATIENCE: Final = 300
LONGEST_S: Final = 60.0
"""The pause between two checks is PATIENCE times the duration of a check (up to 0.5 s where 1 GB is fragmented), but at
least LOOK_S and at most LONGEST_S."""
SHARE: Final = 8
"""Memory is returned once a SHARE-th of the peak usage is unused."""
FINE_SHARE: Final = 64
FINE_LOOKS: Final = 6
"""Every FINE_LOOKS-th check returns smaller parts (FINE_SHARE), after a full garbage collection."""
YOUNG: Final = (5_000, 5, 1_000_000)
"""Thresholds of automatic garbage collection: only young objects, at most 30,000, which takes up to 0.1 s in a large
peer."""
SMALL_BYTES: Final = 16_000_000
"""Full garbage collections stop when a peer has grown by this since its start. They take a second per GB, or more on a
busy core: clients wait for PUBACKs meanwhile, and other peers soon go on without a silent one. Dropped objects of a
peer have no cycles, so they are freed without garbage collection."""
LONG_S: Final = 0.02
"""On a slow machine they stop earlier: above half of the growth with which one has taken that long."""


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
    """The C library; None if it is not glibc 2.33 or newer, which has mallinfo2."""
    try:
        if not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
            return None
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _Usage
    except (AttributeError, OSError, ValueError):
        return None
    return library


def with_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment for a peer that uses the allocator of glibc from its start."""
    return {ALLOCATOR: "malloc", **environment} if _glibc() is not None else dict(environment)


def start_again_with_pages() -> None:
    """Start this program again, as the same process, with the allocator of glibc. Call it before anything else.

    Returns if the allocator is in use already, or not available, or if the user has chosen another.
    """
    # Python reads the variable only at its start, so a running process cannot change its allocator.
    if ALLOCATOR in os.environ or sys.flags.ignore_environment or not sys.executable or _glibc() is None:
        return
    with contextlib.suppress(OSError):  # the peer then keeps its allocator
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], with_pages(os.environ))  # noqa: S606


def without_rich() -> None:
    """Prevent the import of rich by structlog. Call it before structlog is imported."""
    # structlog formats tracebacks with rich where it is installed, as with amqtt. A peer never shows them, and rich
    # takes megabytes.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # None makes an import raise ImportError


class GivingBack:
    """Compares the memory in use with its peak from time to time, and returns unused memory to the system."""

    def __init__(self) -> None:
        self._on_pages = os.environ.get(ALLOCATOR) == "malloc" and _glibc() is not None
        self.used_bytes = 0
        """Memory in use at the last check."""
        self._most_bytes = 0
        self._first_bytes = 0
        """Memory in use at the start."""
        self._small_bytes = SMALL_BYTES
        """The growth up to which full garbage collections are made."""
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin the checks in the running event loop. They end with `stop`."""
        if self._on_pages:
            gc.set_threshold(*YOUNG)
            self._first_bytes = in_use_bytes()
            loop = asyncio.get_running_loop()
            loop.call_soon(_glibc().malloc_trim, 0)  # memory of the start, once its frames are gone
            self._look(loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        began = perf_counter()
        self._looks += 1
        fine = self._looks % FINE_LOOKS == 0
        grown = self.used_bytes - self._first_bytes
        if fine and grown <= self._small_bytes:
            gc.collect()
            if perf_counter() - began > LONG_S:
                self._small_bytes = grown // 2
        self.look(FINE_SHARE if fine else SHARE)
        wait_s = min(max(LOOK_S, PATIENCE * (perf_counter() - began)), LONGEST_S)
        self._timer = loop.call_later(wait_s, self._look, loop)

    def look(self, share: int) -> bool:
        """Return unused memory if it is at least a `share`-th of the peak. Returns whether it was returned."""
        used = self.used_bytes = in_use_bytes()
        self._most_bytes = max(self._most_bytes, used)
        if used > self._most_bytes - self._most_bytes // share:
            return False
        _forget_free_objects()
        _glibc().malloc_trim(0)
        self._most_bytes = used
        return True


def _forget_free_objects() -> None:
    """Empty Python's free lists and its cache of methods."""
    # Python keeps thousands of freed tuples for reuse, and names of found methods, each on another page. A full
    # collection empties the free lists. There may be millions of old objects, so `freeze` hides them from it. After
    # `unfreeze`, the objects that `collect_garbage_seldom` froze at the start are no longer hidden either.
    gc.collect(1)
    gc.freeze()
    gc.collect()
    gc.unfreeze()
    forget = getattr(sys, "_clear_internal_caches", None) or getattr(sys, "_clear_type_cache", None)
    if forget is not None:
        forget()


def in_use_bytes() -> int:
    """Bytes that glibc has allocated to this process and that are in use. 0 if unknown."""
    library = _glibc()
    if library is None:
        return 0
    usage = library.mallinfo2()
    return int(usage.uordblks + usage.hblkhd)
