"""SIGINT and SIGTERM as KeyboardInterrupt, which can be postponed during a step that must not be interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """The signal handler of a process, and whether a signal has arrived."""

    def __init__(self) -> None:
        self._earlier_handlers = {number: signal.getsignal(number) for number in NUMBERS}
        self._postponed = False
        self.received = False

    def postpone(self) -> None:
        """Only note the first signal, until `check` or `resume` raises it. A second signal raises at once."""
        self._postponed = True

    def resume(self) -> None:
        """End `postpone`. Raises KeyboardInterrupt if a signal arrived during it."""
        self._postponed = False
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has arrived."""
        if self.received:
            raise KeyboardInterrupt

    def install(self) -> None:
        """Handle the signals of this process."""
        for number in NUMBERS:
            signal.signal(number, self._handle)

    def restore(self) -> None:
        """Restore the earlier signal handlers."""
        for number, handler in self._earlier_handlers.items():
            signal.signal(number, handler)

    def _handle(self, *_: object) -> None:
        raises = not self._postponed or self.received
        self.received = True
        if raises:
            self.restore()
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Within this context, SIGTERM and SIGINT raise KeyboardInterrupt."""
    interruption = Interruption()
    interruption.install()
    try:
        yield interruption
    except Exception:
        # KeyboardInterrupt in the middle of a call of Java breaks the connection: later calls, and the cleanup, then
        # fail with errors of their own, which are only consequences of the signal.
        if interruption.received:
            raise KeyboardInterrupt from None
        raise
    finally:
        interruption.restore()
