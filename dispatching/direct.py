"""Direct Dispatching: the publisher sends to every subscriber itself (the MQTT2EdgePeer thesis, algorithm 2.1).

Every subscriber is one hop away, and one peer makes all n sends. It is close to optimal while all n sends together take
no longer than one crossing of the network. Fan-out and tree offset have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringmq.dispatching.plan import Hop, S, T


def first_hops(origin: int, subscribers: Sequence[S], fanout: int, tree_offset: int) -> tuple[Hop[S], ...]:
    """One hop for each subscriber except the publisher itself, in their order."""
    return tuple([Hop(subscriber, ()) for subscriber in subscribers if subscriber.id != origin])


def next_hops(part: tuple[T, ...], fanout: int) -> tuple[Hop[T], ...]:
    """One hop for each entry of a part."""
    # `first_hops` makes no parts. A part arrives when a peer does not know the algorithm of a message and falls back to
    # Direct: the subscribers of the part must get the message all the same.
    return tuple([Hop(entry, ()) for entry in part])
