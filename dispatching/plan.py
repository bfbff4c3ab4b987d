"""The elements of a plan: hops, each with the part of the subscribers that its receiver must pass the message on to.

The part travels with the message, so its receiver needs no list of its own. A part is ordered, and the order alone
decides which subscriber sends to which. Only the id of an entry is known here; the rest is the caller's.
"""

from __future__ import annotations

import sys
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from ringmq.dispatching.errors import DispatchingError

# An integer instead of None: `min(count, fanout)` and the range check of the setting need no special case.
UNBOUNDED: Final = sys.maxsize
"""The fan-out of a peer that may send to all subscribers."""


class Subscriber(Protocol):
    """A peer with clients that subscribe: an entry of the list from which a plan is made."""

    @property
    def id(self) -> int: ...


S = TypeVar("S", bound=Subscriber)
T = TypeVar("T")
"""An entry of a part, of any type that the caller uses."""


class Hop(NamedTuple, Generic[T]):
    """One send: the message goes to `to`, which passes it on to all of `part` (`to` itself is not in it)."""

    to: T
    part: tuple[T, ...]


def require_fanout(fanout: int) -> None:
    """Raises DispatchingError for a fan-out with which nothing would ever be sent."""
    if fanout < 1:
        raise DispatchingError(f"the fan-out must be at least 1, got {fanout}")


def bypass(hop: Hop[T]) -> Hop[T] | None:
    """The send that replaces a send to a dead peer; None if its part is empty. Repeat while the next peer is dead too.

    The first entry of the part moves up, with the rest as its part. One send replaces one send, so no peer exceeds its
    fan-out. The part only gets shorter, so no peer is deeper in the tree than it could have been without deaths.

    Every live subscriber gets the message exactly once, unless the dead peer passed it on to some of them before it
    died. These get it a second time, and perhaps with a larger part. A peer must therefore pass on every copy and
    deliver only the first: a peer that dropped the second copy altogether would cut off the subscribers that the dead
    peer had not reached.
    """
    return Hop(hop.part[0], hop.part[1:]) if hop.part else None
