"""Guided Dispatching: subscribers pass the message on, clockwise and counterclockwise, nobody to more than F others.

After the MQTT2EdgePeer thesis, algorithms 2.3 and 2.5; giving each receiver an interval of the ring to answer for is
older: El-Ansary et al., "Efficient Broadcast in Structured P2P Networks". The subscribers are cut into F runs of even
length; the nearest of each run gets the message, with the rest of the run for its part, and does the same. A run is in
the order that leads away from the publisher, so its receiver need not know in which direction it lies: one kind of
message serves where the thesis has PubCW and PubCCW.

Even runs make every level of the tree full before the next begins. So both the depth and the mean number of hops are
the least that any tree of this fan-out has (`bounds.least_depth`).

Where this is not the thesis: there a subscriber is clockwise if it stands in that half of the circle. Here the sides
are cut by count. With half circles, each with half of the sends, the last subscriber is one hop too far away as soon
as the fuller half does not fit: for 27 % of random lists of 100 with F = 10 (a test has the comparison). How the thesis
deals out the rest of a side (getUpdateNextCW and the like) is left open there; its figure 2.4 is another test.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence

from ringmq.dispatching.plan import Hop, S, T, require_fanout
from ringmq.overlay.core.ids import ID_BITS


def first_hops(origin: int, subscribers: Sequence[S], fanout: int, turn: int) -> tuple[Hop[S], ...]:
    """What the publisher sends. The subscribers are sorted by id, none twice; the publisher may be among them.

    `turn` is a point of the ring and says how far around it the tree is turned; 0 puts its start at the publisher, as
    in the thesis. With the key of the topic for a turn, each topic has other subscribers doing the work, and still all
    messages of a publisher to a topic take the same way as long as the list is the same, which keeps their order. A
    turn that changes with the message would spread the work within a topic too, and lose that. A list with one
    subscriber more has a new tree, in which about half of the others hear from somebody else: what is still on its way
    in the old one may come later than the first in the new one.

    Raises DispatchingError for a fan-out below 1.
    """
    line = _clockwise(origin, subscribers, turn)
    runs = spans(len(line), fanout)
    if len(runs) > 1:
        middle = runs[(len(runs) + 1) // 2][0]
        line = line[:middle] + line[middle:][::-1]
    return _hops(line, runs)


def next_hops(part: tuple[T, ...], fanout: int) -> tuple[Hop[T], ...]:
    """What a subscriber sends that received the message with this part.

    Raises DispatchingError for a fan-out below 1.
    """
    return _hops(part, spans(len(part), fanout))


def spans(count: int, fanout: int) -> list[tuple[int, int]]:
    """Start and end of the runs that `count` entries are cut into; the first entry of a run is who gets the rest of it.

    For callers that keep a part as bytes and would rather not take it apart. The longer runs come first, as theirs is
    the longer way. Raises DispatchingError for a fan-out below 1.
    """
    require_fanout(fanout)
    if count == 0:
        return []
    runs = min(count, fanout)
    length, longer = divmod(count, runs)
    # The first `longer` runs have one entry more.
    ends = [number * length + min(number, longer) for number in range(runs + 1)]
    return list(itertools.pairwise(ends))


def _clockwise(origin: int, subscribers: Sequence[S], turn: int) -> tuple[S, ...]:
    """The subscribers but the publisher, clockwise from where the tree starts."""
    place = bisect_left(subscribers, origin, key=lambda subscriber: subscriber.id)
    among = place < len(subscribers) and subscribers[place].id == origin
    others = (*subscribers[place + among :], *subscribers[:place])
    # By count, not by distance: so turns are shared evenly, and one subscriber more shifts the start by one at most.
    start = turn * len(others) >> ID_BITS
    return others[start:] + others[:start]


def _hops(line: tuple[T, ...], runs: list[tuple[int, int]]) -> tuple[Hop[T], ...]:
    return tuple([Hop(line[start], line[start + 1 : end]) for start, end in runs])
