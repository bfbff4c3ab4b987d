"""Starts a peer on the allocator of glibc, which returns unused pages to the system.

Knows nothing of the program that it starts again. It is imported before anything else, twice in the life of a peer, and
so imports next to nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

ALLOCATOR: Final = "PYTHONMALLOC"
"""Environment variable that selects Python's allocator. If the user has set it, that choice stays."""


class _MallocUsage(ctypes.Structure):
    """`struct mallinfo2` of glibc's malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


@cache
def glibc() -> Any:
    """The C library; None if it is not glibc 2.33 or newer, which has mallinfo2."""
    try:
        if not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
            return None
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _MallocUsage
    except (AttributeError, OSError, ValueError):
        return None
    return library


def with_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment for a peer that uses the allocator of glibc from its start."""
    return {ALLOCATOR: "malloc", **environment} if glibc() is not None else dict(environment)


def start_again_with_pages() -> None:
    """Start this program again, as the same process, with the allocator of glibc. Call it before anything else.

    Returns if the allocator is in use already, or not available, or if the user has chosen another.
    """
    # Python reads the variable only at its start, so a running process cannot change its allocator.
    if ALLOCATOR in os.environ or sys.flags.ignore_environment or not sys.executable or glibc() is None:
        return
    with contextlib.suppress(OSError):  # the peer then keeps its allocator
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], with_pages(os.environ))  # noqa: S606
