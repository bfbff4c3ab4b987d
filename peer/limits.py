"""What the system lets one process have."""

from __future__ import annotations

import resource


def allow_files(wanted: int) -> int:
    """Raise the soft limit of open files towards `wanted`, as far as the hard one lets; returns what holds now.

    Each link of a peer and each pipe to a child takes one. The usual soft limit of 1024 is for programs that use
    select(), which we do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    best = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= best:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (best, hard))
    return best
