"""Lower bounds for every way of dispatching, with which tests and figures compare."""

from __future__ import annotations

from ringmq.dispatching.plan import require_fanout


def least_depth(count: int, fanout: int) -> int:
    """Least possible hops to the last of `count` subscribers if each peer sends at most `fanout` copies.

    It is the depth of a tree with full levels: ⌈log_F((count + 1)(F - 1) + 1)⌉ - 1 for a fan-out F above 1, computed
    without the rounding of a logarithm. Raises DispatchingError for a fan-out below 1.
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
