"""What tests of planning share: a message that is carried out hop by hop, among peers that may die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from ringmq.dispatching.algorithms import Dispatching
from ringmq.dispatching.plan import Hop, bypass


class Entry(NamedTuple):
    """A subscriber with an address that planning must not look at."""

    id: int
    address: object = None


@dataclass
class Spread:
    """What became of one message. A send to a dead peer is none: it never arrives."""

    received: Counter[int] = field(default_factory=Counter)
    sends: Counter[int] = field(default_factory=Counter)
    depths: dict[int, int] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    """Whom a peer that died had answered for at the time it passed something on."""


def spread_out(
    dispatching: Dispatching,
    origin: int,
    points: Sequence[int],
    fanout: int,
    turn: int = 0,
    dying: Mapping[int, int] | None = None,
    *,
    drop_copies: bool = False,
) -> Spread:
    """Carry out a plan. `dying` says who is dead, or dies with the message, and how many sends it gets done before.

    `drop_copies` makes the mistake of not passing on what was received before.
    """
    left = dict(dying or {})
    dead = frozenset(left)
    result = Spread()
    entries = tuple(Entry(point, object()) for point in points)
    waiting = [(origin, hop, 1) for hop in dispatching.first_hops(origin, entries, fanout, turn)]
    while waiting:
        sender, hop, depth = waiting.pop(0)
        onward: tuple[Hop[Entry], ...] = dispatching.next_hops(hop.part, fanout)
        if hop.to.id in dead:
            onward = onward[: left[hop.to.id]]
            left[hop.to.id] = 0
            if onward:
                result.doubtful.update(entry.id for entry in hop.part)
        else:
            result.sends[sender] += 1
            result.received[hop.to.id] += 1
            result.depths.setdefault(hop.to.id, depth)
            result.parents.setdefault(hop.to.id, sender)
            if drop_copies and result.received[hop.to.id] > 1:
                onward = ()
        waiting += [(hop.to.id, one, depth + 1) for one in onward]
        instead = bypass(hop) if hop.to.id in dead else None
        if instead is not None:
            waiting.append((sender, instead, depth))
    return result


@pytest.fixture(scope="session")
def spread() -> Callable[..., Spread]:
    """Carry out a plan: see `spread_out`."""
    return spread_out


@pytest.fixture(scope="session")
def entries() -> Callable[[Sequence[int]], tuple[Entry, ...]]:
    """Subscribers of these ids."""
    return lambda points: tuple(Entry(point) for point in points)
