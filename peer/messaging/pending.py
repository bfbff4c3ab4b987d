"""Publications of the clients here until all receivers have them, and calls that wait for several events."""

from __future__ import annotations

from collections.abc import Callable

from ringmq.mqtt_front.cluster import UNDELIVERED, Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.peer.messaging.publication import Publication


class PendingPublication:
    """A message of the clients here until all its receivers have it."""

    __slots__ = ("at", "done", "matched", "missing", "publication", "refused", "undecided")

    def __init__(self, publication: Publication, matched: bool, done: Done | None, at: float) -> None:
        self.publication = publication
        self.matched = matched
        """Whether anybody subscribes to it, here or elsewhere."""
        self.done = done
        self.at = at
        self.refused = False
        """It reached its receivers and could not be retained, as there is no room."""
        # One more than there are receivers until all sends were made: a send may end with `got` at once, and `done`
        # must not be called before the message was sent to the others.
        self.missing = 1
        """Receivers that do not have it yet; one more while it is being sent."""
        self.undecided = 0
        """Roots that it has not been sent to yet; used by Scribe alone."""

    def expect(self, receivers: int) -> None:
        """Each of these further receivers will call `got`."""
        self.missing += receivers

    def got(self, matched: bool = False) -> None:
        """A receiver has it; `matched` says whether a filter matched there."""
        if matched:
            self.matched = True
        self.missing -= 1
        if not self.missing and self.done is not None:
            done, self.done = self.done, None
            if self.refused:
                done(Reason.QUOTA_EXCEEDED)
            else:
                done(Reason.SUCCESS if self.matched else Reason.NO_MATCHING_SUBSCRIBERS)

    def settled(self, served: bool) -> None:
        """A receiver has it, or is given up. Unless `served`, it has clients that have not got it."""
        if served:
            self.got()
        else:
            self.fail()

    def begin_deciding(self, roots: int) -> None:
        """Each of these roots will be decided about: the publication is sent to it or not."""
        self.undecided = roots

    def decided(self) -> bool:
        """One more root is decided about: whether it was the last, so that the number of sends is known."""
        self.undecided -= 1
        return not self.undecided

    def fail(self) -> None:
        """Report that it cannot be delivered to everybody. Answers that come later are ignored."""
        done, self.done = self.done, None
        if done is not None:
            done(UNDELIVERED)


class Countdown:
    """Makes a call when it has been counted down to zero: with True if each step was."""

    __slots__ = ("_left", "_then", "_whole")

    def __init__(self, left: int, then: Callable[[bool], None]) -> None:
        self._left = left
        self._then = then
        self._whole = True

    def down(self, well: bool = True) -> None:
        self._left -= 1
        self._whole = self._whole and well
        if not self._left:
            self._then(self._whole)
