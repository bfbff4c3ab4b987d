"""The dispatching algorithms by name, and the choice of an algorithm for a topic.

A new algorithm is a module with the two functions of `Dispatching`, and a line in `ALGORITHMS`. Only
algorithms that plan from a list of subscribers belong here. Scribe does not: its tree is state of the peers along the
routes, so it is a role of the peers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from ringmq.dispatching import direct, guided
from ringmq.dispatching.errors import DispatchingError
from ringmq.dispatching.plan import UNBOUNDED, Hop, S, T, require_fanout


class Dispatching(Protocol):
    """Both functions are pure: at any peer, the same arguments give the same plan."""

    def first_hops(self, origin: int, subscribers: Sequence[S], fanout: int, tree_offset: int) -> tuple[Hop[S], ...]:
        """The publisher's sends, each with its part.

        The subscribers are sorted by id, without duplicates. The publisher may be among them; nothing is sent to it.
        Every other subscriber is either the receiver of exactly one hop or in the part of exactly one hop.
        `tree_offset`, an id, may change which of the two.
        """
        ...

    def next_hops(self, part: tuple[T, ...], fanout: int) -> tuple[Hop[T], ...]:
        """The sends of a subscriber that received this part. Together they cover the whole part, each entry once."""
        ...


ALGORITHMS: Final[Mapping[str, Dispatching]] = {
    "direct": direct,
    "guided": guided,
}


def algorithm(name: str) -> Dispatching:
    """The algorithm of this name. Raises DispatchingError for an unknown name."""
    try:
        return ALGORITHMS[name]
    except KeyError:
        raise DispatchingError(f"unknown dispatching {name!r}, expected one of {', '.join(ALGORITHMS)}") from None


@dataclass(frozen=True, slots=True)
class Choice:
    """The algorithm and fan-out for the messages of a topic."""

    # Not checked against ALGORITHMS: the simulator compares them with Scribe, which plans nothing.
    name: str
    fanout: int = UNBOUNDED
    """The most sends of any peer for one message. Fewer sends make a deeper tree."""

    def __post_init__(self) -> None:
        require_fanout(self.fanout)


P = TypeVar("P")


def choose(rules: Iterable[tuple[P, Choice]], applies: Callable[[P], bool], otherwise: Choice) -> Choice:
    """The choice of the first rule that applies, else `otherwise`."""
    # A rule has any type, and the caller matches it: rules are MQTT filters, and this package does not know topics.
    return next((choice for rule, choice in rules if applies(rule)), otherwise)
