"""What the system lets one process have, and how often Python looks for garbage in it."""

from __future__ import annotations

import gc
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


def collect_garbage_seldom() -> None:
    """To be called once all is there that a process has from its start to its end.

    What clients bring lives long, and with 100,000 subscriptions new topics cost 1.21 times as much under Python's own
    thresholds, from looking at it again and again, and 1.03 times under these.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
