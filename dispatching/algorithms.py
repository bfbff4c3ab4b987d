"""The dispatching algorithms by name, and which one a topic gets.

A new one is a file with the two functions of `Dispatching`, and a line in `ALGORITHMS`. Only those that plan from a
list of subscribers belong here. Scribe does not: its tree lies in the peers on the way, so it is a role of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from ringmq.dispatching import direct, guided
from ringmq.dispatching.errors import DispatchingError
from ringmq.dispatching.plan import UNBOUNDED, Hop, S, T, require_fanout


class Dispatching(Protocol):
    """Both functions give the same answer to the same arguments, whoever asks."""

    def first_hops(self, origin: int, subscribers: Sequence[S], fanout: int, turn: int) -> tuple[Hop[S], ...]:
        """What the publisher sends: to each hop's receiver, with the hop's part.

        The subscribers are sorted by id, none twice; the publisher may be among them and is never sent to. All others
        are the receiver of one hop or in the part of one, and not both. `turn`, a point of the ring, may change who is
        which.
        """
        ...

    def next_hops(self, part: tuple[T, ...], fanout: int) -> tuple[Hop[T], ...]:
        """What a subscriber sends that received this part. All of the part are in one hop."""
        ...


ALGORITHMS: Final[Mapping[str, Dispatching]] = {
    "direct": direct,
    "guided": guided,
}


def algorithm(name: str) -> Dispatching:
    """The algorithm of this name; raises DispatchingError when there is none."""
    try:
        return ALGORITHMS[name]
    except KeyError:
        raise DispatchingError(f"no dispatching is called {name!r}; there are {', '.join(ALGORITHMS)}") from None


@dataclass(frozen=True, slots=True)
class Choice:
    """How the messages of a topic are dispatched. The name may be one that the peers know and this folder does not."""

    name: str
    fanout: int = UNBOUNDED
    """The most sends of any peer for one message. Fewer sends make a deeper tree."""

    def __post_init__(self) -> None:
        require_fanout(self.fanout)


P = TypeVar("P")


def choose(rules: Iterable[tuple[P, Choice]], applies: Callable[[P], bool], otherwise: Choice) -> Choice:
    """The choice of the first rule that applies. What a rule is (an MQTT filter, say) is the caller's business."""
    return next((choice for rule, choice in rules if applies(rule)), otherwise)
