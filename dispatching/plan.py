"""What a plan is made of: hops, each with the part of the subscribers that its receiver answers for.

The part travels with the message, so whoever receives one needs no list of its own. A part is ordered: the order alone
says who passes it on to whom. What an entry is, apart from its id, only the caller knows.
"""

from __future__ import annotations

import sys
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from ringmq.dispatching.errors import DispatchingError

UNBOUNDED: Final = sys.maxsize
"""The fan-out of a peer that may send to everybody."""


class Subscriber(Protocol):
    """A peer with clients that subscribe: an entry of the list a plan is made from."""

    @property
    def id(self) -> int: ...


S = TypeVar("S", bound=Subscriber)
T = TypeVar("T")
"""An entry of a part: whatever the caller keeps there."""


class Hop(NamedTuple, Generic[T]):
    """One send: the message goes to `to`, which passes it on to all of `part` (`to` itself is not in it)."""

    to: T
    part: tuple[T, ...]


def require_fanout(fanout: int) -> None:
    """Raises DispatchingError for a fan-out with which nothing would ever be sent."""
    if fanout < 1:
        raise DispatchingError(f"a fan-out is at least 1, not {fanout}")


def bypass(hop: Hop[T]) -> Hop[T] | None:
    """The send that replaces one to a dead peer; None when nobody was behind it. Repeat it while the next is dead too.

    The first of the part moves up, with the rest for its part. So one send stands for one: nobody exceeds its fan-out,
    and as the part only became shorter, nobody sits deeper in the tree than it could have without deaths.

    All that live get the message, and only once, unless the dead one had passed it on to some before it died. Those get
    it a second time, and perhaps with a larger part: a peer must pass on every copy, and deliver only the first. One
    that dropped the second copy whole would cut off those whom the dead one had not reached.
    """
    return Hop(hop.part[0], hop.part[1:]) if hop.part else None
