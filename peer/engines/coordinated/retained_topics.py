"""Notes from a coordinator of topics with retained messages to the wildcard places above them, renewed periodically.

A new wildcard filter finds the names of all topics that it must fetch at its own place. A note has the number
of its message, and the end of a note the number of the removal: the higher number wins, whichever comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import groupby
from operator import itemgetter
from typing import Final

from ringmq.overlay.core.compact import slimmed
from ringmq.peer.engines.coordinated.messages import Kind, Note, Noted, Record
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.partitions import key_of_place, noting_places_of

MOST_AT_ONCE: Final = 1000
"""Topics in one message."""


class Telling:
    """A note, or its end, that some places have not confirmed yet, and the calls that wait for that."""

    __slots__ = ("missing", "note", "refused", "wait_s", "waiting")

    def __init__(self, note: Record, wait_s: float) -> None:
        self.note = note
        self.missing = set(noting_places_of(note.name))
        self.waiting: dict[Hashable, Callable[[], None]] = {}
        self.wait_s = wait_s
        self.refused = False
        """Whether a place knows that the topic was cleared since, in another part of the ring."""


class RetainedTopics:
    """The notes of this peer, with the time until which the places keep them."""

    __slots__ = ("_known", "_state", "_telling")

    def __init__(self, state: MessagingContext) -> None:
        self._state = state
        self._known: dict[str, float] = {}
        self._telling: dict[str, Telling] = {}

    def ensure(self, record: Record, who: Hashable, then: Callable[[], None]) -> None:
        """Call back when every wildcard place above the topic of a message knows of it, which may be now."""
        topic = record.name
        if self._known.get(topic, 0.0) > self._state.clock.now:
            then()
            return
        telling = self._telling.get(topic)
        if telling is None or telling.note.gone:
            telling = self._begin(_note_of(record))
        telling.waiting[who] = then

    def end(self, record: Record) -> None:
        """This cleared the message: the places above need not know of the topic any more."""
        self._known.pop(record.name, None)
        self._begin(_note_of(record))

    def _begin(self, note: Record) -> Telling:
        """Send a note in the place of an earlier one of its topic."""
        before = self._telling.get(note.name)
        telling = self._telling[note.name] = Telling(note, self._state.config.retry_s)
        if before is not None:
            # A place that knows the newer note need not know the older one, so all calls wait for the newer.
            telling.waiting = before.waiting
        self._tell(telling)
        return telling

    def _tell(self, telling: Telling) -> None:
        for place in sorted(telling.missing):
            self._state.route(key_of_place(place), Note(place, (telling.note,)))
        self._state.after(telling.wait_s, lambda: self._tell_again(telling))
        telling.wait_s = min(2 * telling.wait_s, self._state.config.slow_retry_s)

    def _tell_again(self, telling: Telling) -> None:
        if self._telling.get(telling.note.name) is telling:
            self._tell(telling)

    def noted(self, message: Noted) -> None:
        for note in message.notes:
            topic = note.name
            telling = self._telling.get(topic)
            if telling is None:
                # A renewal met a later end from another part of the ring: the note is due again at the next tick.
                if note.gone and topic in self._known:
                    self._known[topic] = self._state.clock.now
            # An answer to an older note of the topic says nothing about the present note.
            elif telling.note.number[0] <= note.number[0]:
                telling.refused |= note.gone and not telling.note.gone
                telling.missing.discard(message.place)
                if not telling.missing:
                    self._told(telling)

    def _told(self, telling: Telling) -> None:
        """All places have answered. A refused note is sent again with the next message, or the next renewal."""
        topic = telling.note.name
        del self._telling[topic]
        if not telling.note.gone:
            # Half of the lease, so that the places keep a note for longer than this peer relies on it.
            self._known[topic] = self._state.clock.now + (0.0 if telling.refused else self._state.config.note_s / 2)
        for then in telling.waiting.values():
            then()

    def renew(self, kept: Callable[[str], Record | None]) -> None:
        """Renew notes that will expire soon; forget topics that this peer does not coordinate. Call it periodically."""
        soon = self._state.clock.now + self._state.config.note_s / 4
        due = [topic for topic, until in self._known.items() if until <= soon]
        above: list[tuple[str, Record]] = []
        for topic in due:
            record = kept(topic)
            if record is not None:
                # A note that gets lost is sent again by the next renewal, before the place forgets it.
                self._known[topic] = self._state.clock.now + self._state.config.note_s / 2
                above += [(place, _note_of(record)) for place in noting_places_of(topic)]
            else:
                del self._known[topic]
        self._known = slimmed(self._known)
        self._telling = slimmed(self._telling)
        for place, pairs in groupby(sorted(above, key=itemgetter(0)), key=itemgetter(0)):
            notes = [note for _, note in pairs]
            for start in range(0, len(notes), MOST_AT_ONCE):
                batch = tuple(notes[start : start + MOST_AT_ONCE])
                self._state.route(key_of_place(place), Note(place, batch))


def _note_of(record: Record) -> Record:
    return Record(Kind.NOTE, record.name, None, record.number, record.gone, record.gone)
