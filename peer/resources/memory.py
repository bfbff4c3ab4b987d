"""Returns unused memory to the system, so that a peer shrinks after its load has gone.

Python's allocator returns pieces of 1 MB, and only if nothing in them is in use; after 3,000 topics came and went,
nearly every piece had an object in use. The allocator of glibc returns pages. So with glibc a peer uses that allocator:
no speed difference was measured, and each of many leases takes a tenth more memory. On other systems nothing is done.

With glibc this module also replaces the garbage collection thresholds of `limits`, because a full collection of a large
peer takes a second.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from time import perf_counter
from typing import Final

from ringmq.peer.resources.allocator import ALLOCATOR, glibc

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


class GivingBack:
    """Compares the memory in use with its peak from time to time, and returns unused memory to the system."""

    def __init__(self) -> None:
        self._on_pages = os.environ.get(ALLOCATOR) == "malloc" and glibc() is not None
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
            loop.call_soon(glibc().malloc_trim, 0)  # memory of the start, once its frames are gone
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
        glibc().malloc_trim(0)
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
    library = glibc()
    if library is None:
        return 0
    usage = library.mallinfo2()
    return int(usage.uordblks + usage.hblkhd)
