"""The least time in which a message can reach many peers by any plan of sends: the postal model, also LogP.

A send keeps its sender busy for a gap, and arrives a delay after that. The optimal plan lets each peer that has the
message send it to a new peer in each gap (Bar-Noy and Kipnis 1992; Karp et al. 1993).
"""

from __future__ import annotations

from heapq import heappush, heapreplace

from ringmq.dispatching.plan import UNBOUNDED


def least_time_s(count: int, gap_s: float, delay_s: float, fanout: int = UNBOUNDED) -> float:
    """Time until the last of `count` receivers has the message, if each peer sends at most `fanout` copies."""
    arrives_s = 0.0
    # A heap of all peers that may send: when their next copies arrive, and how many more copies they may send.
    copies = [(gap_s + delay_s, fanout - 1)]
    for _ in range(count):
        arrives_s, left = copies[0]
        heapreplace(copies, (arrives_s + gap_s + delay_s, fanout - 1))
        if left:
            heappush(copies, (arrives_s + gap_s, left - 1))
    return arrives_s
