"""A coordinator of topics with retained messages tells the wildcard places above them, and tells them again in time.

So a new wildcard filter finds at its own place the names of all topics that it must fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import groupby
from typing import Final

from peer.pubsub.messages import Note, Noted
from peer.pubsub.places import key_of_place, wild_places_of
from peer.pubsub.state import State

MOST_AT_ONCE: Final = 1000
"""Topics in one message."""


class Telling:
    """A topic that some places have not confirmed yet, and who waits for that."""

    __slots__ = ("missing", "wait_s", "waiting")

    def __init__(self, places: tuple[str, ...], wait_s: float) -> None:
        self.missing = set(places)
        self.waiting: dict[Hashable, Callable[[], None]] = {}
        self.wait_s = wait_s


class Notes:
    """What this peer has told, and until when that is remembered there."""

    __slots__ = ("_known", "_state", "_telling")

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[str, float] = {}
        self._telling: dict[str, Telling] = {}

    def ensure(self, topic: str, who: Hashable, then: Callable[[], None]) -> None:
        """Call back when every wildcard place above the topic knows of it, which may be now."""
        if self._known.get(topic, 0.0) > self._state.now:
            then()
            return
        telling = self._telling.get(topic)
        if telling is None:
            telling = self._telling[topic] = Telling(wild_places_of(topic), self._state.config.retry_s)
            self._tell(topic, telling)
        telling.waiting[who] = then

    def _tell(self, topic: str, telling: Telling) -> None:
        for place in sorted(telling.missing):
            self._state.route(key_of_place(place), Note(place, (topic,)))
        self._state.after(telling.wait_s, lambda: self._tell_again(topic, telling))
        telling.wait_s = min(2 * telling.wait_s, self._state.config.slow_retry_s)

    def _tell_again(self, topic: str, telling: Telling) -> None:
        if self._telling.get(topic) is telling:
            self._tell(topic, telling)

    def noted(self, message: Noted) -> None:
        for topic in message.topics:
            telling = self._telling.get(topic)
            if telling is None:
                continue
            telling.missing.discard(message.place)
            if not telling.missing:
                del self._telling[topic]
                self._known[topic] = self._state.now + self._state.config.note_s / 2
                for then in telling.waiting.values():
                    then()

    def renew(self, keeps: Callable[[str], bool]) -> None:
        """Tell again what would be forgotten soon; forget what is not ours to tell. To be called now and then."""
        soon = self._state.now + self._state.config.note_s / 4
        due = [topic for topic, until in self._known.items() if until <= soon]
        above: list[tuple[str, str]] = []
        for topic in due:
            if keeps(topic):
                # One that gets lost is told again by the next renewal, before it is forgotten there.
                self._known[topic] = self._state.now + self._state.config.note_s / 2
                above += [(place, topic) for place in wild_places_of(topic)]
            else:
                del self._known[topic]
        for place, pairs in groupby(sorted(above), key=lambda pair: pair[0]):
            topics = [topic for _, topic in pairs]
            for start in range(0, len(topics), MOST_AT_ONCE):
                batch = tuple(topics[start : start + MOST_AT_ONCE])
                self._state.route(key_of_place(place), Note(place, batch))
