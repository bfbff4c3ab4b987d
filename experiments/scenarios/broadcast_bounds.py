"""Lower bounds on the depth of any dispatching tree, for tests and for plots to compare with."""

from __future__ import annotations

from ringmq.dispatching.plan import require_fanout


def least_depth(count: int, fanout: int) -> int:
    """The least possible number of hops to the last of `count` subscribers if no peer sends more than `fanout`.

    The tree that attains it has every level full. For a fan-out F above 1 the depth is
    ⌈log_F((count + 1)(F - 1) + 1)⌉ - 1, computed here without the logarithm's rounding. Raises DispatchingError for a
    fan-out below 1.
    """
    require_fanout(fanout)
    if fanout == 1:
        # The tree is a chain, and the loop below would take one step per subscriber.
        return count
    depth, level, reached = 0, 1, 0
    while reached < count:
        depth += 1
        level *= fanout
        reached += level
    return depth
