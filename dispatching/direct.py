"""Direct Dispatching: the publisher sends to every subscriber itself (the MQTT2EdgePeer thesis, algorithm 2.1).

One hop for all, at the price of n sends by one peer. Next to optimal as long as sending to all of them takes no longer
than one way through the network. Fan-out and turn mean nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringmq.dispatching.plan import Hop, S, T


def first_hops(origin: int, subscribers: Sequence[S], fanout: int, turn: int) -> tuple[Hop[S], ...]:
    """One hop for each subscriber but the publisher itself, in their order."""
    return tuple([Hop(subscriber, ()) for subscriber in subscribers if subscriber.id != origin])


def next_hops(part: tuple[T, ...], fanout: int) -> tuple[Hop[T], ...]:
    """One hop for each of a part. Publishers give out no parts, so there is rarely one."""
    return tuple([Hop(entry, ()) for entry in part])
