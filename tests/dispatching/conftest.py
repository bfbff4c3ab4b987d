"""Shared by the tests of planning: a plan carried out hop by hop, among peers that may die."""

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
    """The outcome of one message. A send to a dead peer does not count, as it never arrives."""

    received: Counter[int] = field(default_factory=Counter)
    sends: Counter[int] = field(default_factory=Counter)
    depths: dict[int, int] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    """Subscribers in the part of a peer that passed the message on to some of them before it died."""


def spread_out(
    dispatching: Dispatching,
    origin: int,
    peer_ids: Sequence[int],
    fanout: int,
    tree_offset: int = 0,
    dying: Mapping[int, int] | None = None,
    *,
    drop_copies: bool = False,
) -> Spread:
    """Carry out a plan. `dying` maps each dead or dying peer to the number of sends it completes before it dies.

    `drop_copies` makes the mistake that peers do not pass on a second copy.
    """
    left = dict(dying or {})
    dead = frozenset(left)
    result = Spread()
    entries = tuple(Entry(peer_id, object()) for peer_id in peer_ids)
    waiting = [(origin, hop, 1) for hop in dispatching.first_hops(origin, entries, fanout, tree_offset)]
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
        waiting += [(hop.to.id, next_hop, depth + 1) for next_hop in onward]
        replacement = bypass(hop) if hop.to.id in dead else None
        if replacement is not None:
            waiting.append((sender, replacement, depth))
    return result


@pytest.fixture(scope="session")
def spread() -> Callable[..., Spread]:
    """Carry out a plan: see `spread_out`."""
    return spread_out


@pytest.fixture(scope="session")
def entries() -> Callable[[Sequence[int]], tuple[Entry, ...]]:
    """Subscribers with these ids."""
    return lambda peer_ids: tuple(Entry(peer_id) for peer_id in peer_ids)
