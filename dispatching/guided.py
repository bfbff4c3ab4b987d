"""Guided Dispatching: subscribers pass the message on, clockwise and counterclockwise, each to at most F others.

It follows the MQTT2EdgePeer thesis, algorithms 2.3 and 2.5. The idea to give each receiver an interval of the ring to
cover is older: El-Ansary et al., "Efficient Broadcast in Structured P2P Networks". The subscribers are cut into F runs
of even length. The nearest subscriber of each run gets the message, with the rest of the run as its part, and divides
its part in the same way. A run is ordered away from the publisher, so its receiver need not know in which direction the
run lies: one kind of message replaces PubCW and PubCCW of the thesis.

Even runs make every level of the tree full before the next begins. So both the depth and the mean number of hops are
the least that any tree of this fan-out has (`bounds.least_depth`).

This differs from the thesis in one way: there, a subscriber is clockwise if it stands in that half of the circle. Here
the sides are cut by count. With half circles, each with half of the sends, the tree is one hop too deep as soon as the
fuller half does not fit: for 27 % of random lists of 100 with F = 10 (a test has the comparison). The thesis does not
specify how the rest of a side is dealt out (getUpdateNextCW and the like); its figure 2.4 is another test.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence

from ringmq.dispatching.plan import Hop, S, T, require_fanout
from ringmq.overlay.core.ids import ID_BITS


def first_hops(origin: int, subscribers: Sequence[S], fanout: int, tree_offset: int) -> tuple[Hop[S], ...]:
    """The publisher's sends. The subscribers are sorted by id, without duplicates; the publisher may be among them.

    `tree_offset` is an id: the fraction of the ring by which the start of the tree is moved. With 0 the tree starts at
    the publisher, as in the thesis. With the key of the topic as the offset, other subscribers do the work for each
    topic, and all messages from a publisher to a topic still take the same path while the list is unchanged, which
    keeps their order. An offset that changes with the message would spread the work within a topic too, but lose the
    order. When a subscriber is added, the tree changes, and about half of the others have a new sender: messages still
    in transit in the old tree may arrive after the first of the new tree.

    Raises DispatchingError for a fan-out below 1.
    """
    line = _clockwise(origin, subscribers, tree_offset)
    runs = spans(len(line), fanout)
    if len(runs) > 1:
        # The second half of the runs is the counterclockwise side. Reversed, its runs lead away from the start as well,
        # and the first entry of each is its nearest.
        middle = runs[(len(runs) + 1) // 2][0]
        line = line[:middle] + line[middle:][::-1]
    return _hops(line, runs)


def next_hops(part: tuple[T, ...], fanout: int) -> tuple[Hop[T], ...]:
    """The sends of a subscriber that received the message with this part.

    Raises DispatchingError for a fan-out below 1.
    """
    return _hops(part, spans(len(part), fanout))


def spans(count: int, fanout: int) -> list[tuple[int, int]]:
    """Start and end index of each run that `count` entries are cut into.

    The first entry of a run receives the message, with the rest of the run as its part. Indexes instead of slices let a
    caller keep a part as bytes. Raises DispatchingError for a fan-out below 1.
    """
    require_fanout(fanout)
    if count == 0:
        return []
    runs = min(count, fanout)
    length, longer = divmod(count, runs)
    # The first `longer` runs have one entry more. Longer runs are sent first, because their trees may be deeper.
    ends = [number * length + min(number, longer) for number in range(runs + 1)]
    return list(itertools.pairwise(ends))


def _clockwise(origin: int, subscribers: Sequence[S], tree_offset: int) -> tuple[S, ...]:
    """The subscribers except the publisher, clockwise from the start of the tree."""
    index = bisect_left(subscribers, origin, key=lambda subscriber: subscriber.id)
    publisher_subscribes = index < len(subscribers) and subscribers[index].id == origin
    others = (*subscribers[index + publisher_subscribes :], *subscribers[:index])
    # The offset counts subscribers, not distance: random offsets then share the work evenly however the ids lie, and
    # one more subscriber shifts the start by at most one.
    start = tree_offset * len(others) >> ID_BITS
    return others[start:] + others[:start]


def _hops(line: tuple[T, ...], runs: list[tuple[int, int]]) -> tuple[Hop[T], ...]:
    return tuple([Hop(line[start], line[start + 1 : end]) for start, end in runs])
