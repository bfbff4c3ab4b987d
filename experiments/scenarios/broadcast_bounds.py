"""What no dispatching can do better, for tests and for plots to compare with."""

from __future__ import annotations

from ringmq.dispatching.plan import require_fanout


def least_depth(count: int, fanout: int) -> int:
    """The hops to the last of `count` subscribers if nobody sends more than `fanout`, at best: every level full.

    For a fan-out F above 1 this is ⌈log_F((count + 1)(F - 1) + 1)⌉ - 1, without the logarithm's rounding. Raises
    DispatchingError for a fan-out below 1.
    """
    require_fanout(fanout)
    if fanout == 1:
        return count
    depth, level, reached = 0, 1, 0
    while reached < count:
        depth += 1
        level *= fanout
        reached += level
    return depth
