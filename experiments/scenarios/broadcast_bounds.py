"""Lower bounds for every way of dispatching, with which tests and figures compare."""

from __future__ import annotations

from heapq import heappush, heapreplace

from ringmq.dispatching.plan import UNBOUNDED, require_fanout


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


def least_time_s(count: int, gap_s: float, delay_s: float, fanout: int = UNBOUNDED) -> float:
    """Least time until the last of `count` receivers has the message, if each peer sends at most `fanout` copies.

    The postal model, also LogP: a send keeps its sender busy for a gap, and arrives a delay after that. The optimal
    plan lets each peer that has the message send it to a new peer in each gap
    (Bar-Noy and Kipnis 1992; Karp et al. 1993).
    """
    arrives_s = 0.0
    # A heap of all peers that may send: when their next copies arrive, and how many more copies they may send.
    copies = [(gap_s + delay_s, fanout - 1)]
    for _ in range(count):
        arrives_s, left = copies[0]
        heapreplace(copies, (arrives_s + gap_s + delay_s, fanout - 1))
        if left:
            heappush(copies, (arrives_s + gap_s, left - 1))
    return arrives_s
