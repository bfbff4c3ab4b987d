"""The least time in which a message can reach many peers, whoever sends it to whom: the postal model, also LogP.

A send keeps its sender busy for a gap and arrives a delay after that. Nobody can do better than that everybody who has
the message goes on sending it, to somebody new each time (Bar-Noy and Kipnis 1992; Karp et al. 1993).
"""

from __future__ import annotations

from heapq import heappush, heapreplace

from ringmq.dispatching.plan import UNBOUNDED


def least_time_s(count: int, gap_s: float, delay_s: float, fanout: int = UNBOUNDED) -> float:
    """Until the last of so many others has it, if nobody sends more than `fanout` copies."""
    arrives_s = 0.0
    # When the next copy of each peer arrives, and how many more it may send.
    copies = [(gap_s + delay_s, fanout - 1)]
    for _ in range(count):
        arrives_s, left = copies[0]
        heapreplace(copies, (arrives_s + gap_s + delay_s, fanout - 1))
        if left:
            heappush(copies, (arrives_s + gap_s, left - 1))
    return arrives_s
