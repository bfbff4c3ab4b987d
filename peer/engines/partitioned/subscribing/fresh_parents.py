"""Parents below which clients here subscribe to fresh topics, as for the replies to their requests.

Counts, for each parent, the filters that came and went within a short time. Parents and counts are bounded, whatever
clients do. Knows no wide filter.
"""

from __future__ import annotations

from typing import Final

FRESH: Final = 16
"""Filters below one parent that came and went within `WITHIN_S`: from the next one on, a wide filter is worth its
price, that of one subscription."""
WITHIN_S: Final = 60.0
MOST_PARENTS: Final = 1024
"""Parents that are counted; beyond, the oldest is forgotten."""
MOST_YOUNG: Final = 64
"""Filters of one parent that are followed at the same time; it is enough to see FRESH of them go."""
PAUSE_S: Final = 600.0
MOST_PAUSE_S: Final = 4 * 3600.0
"""How long a parent is left alone after its wide filter was taken back or refused; doubled each time."""


class FreshParent:
    """Filters below one parent in the present window."""

    __slots__ = ("began_at", "gone", "young")

    def __init__(self, now: float) -> None:
        self.began_at = now
        self.young: set[str] = set()
        """Filters that came within the window, and have not gone."""
        self.gone = 0
        """Filters that came and went within it."""


class FreshParents:
    """One per home."""

    __slots__ = ("_parents", "_pauses")

    def __init__(self) -> None:
        self._parents: dict[str, FreshParent] = {}
        self._pauses: dict[str, tuple[float, float]] = {}
        """The end and the length of the last pause of a parent."""

    def __len__(self) -> int:
        return len(self._parents)

    def came(self, parent: str, topic_filter: str, now: float) -> bool:
        """A client subscribed to this filter. Returns whether the parent should get a wide filter."""
        known = self._parents.get(parent)
        if known is None or known.began_at + WITHIN_S <= now:
            # To the end, as the first parent is the oldest.
            self._parents.pop(parent, None)
            known = self._parents[parent] = FreshParent(now)
            if len(self._parents) > MOST_PARENTS:
                del self._parents[next(iter(self._parents))]
        if len(known.young) < MOST_YOUNG:
            known.young.add(topic_filter)
        return known.gone >= FRESH and not self._is_paused(parent, now)

    def went(self, parent: str, topic_filter: str) -> None:
        """No client here has this filter any more."""
        known = self._parents.get(parent)
        if known is not None and topic_filter in known.young:
            known.young.discard(topic_filter)
            known.gone += 1

    def forget(self, parent: str) -> None:
        """Count from the beginning: the parent has a wide filter now, or has lost it."""
        self._parents.pop(parent, None)

    def pause(self, parent: str, now: float) -> None:
        """Its wide filter cost more than it saved, or was refused."""
        _, before_s = self._pauses.pop(parent, (0.0, PAUSE_S / 2))
        length_s = min(MOST_PAUSE_S, 2 * before_s)
        self._pauses[parent] = now + length_s, length_s
        if len(self._pauses) > MOST_PARENTS:
            del self._pauses[next(iter(self._pauses))]

    def _is_paused(self, parent: str, now: float) -> bool:
        until, _ = self._pauses.get(parent, (now, 0.0))
        return now < until
