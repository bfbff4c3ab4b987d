"""SIGINT and SIGTERM as KeyboardInterrupt, which can be put off while something is done that must not be torn."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """What came of the signals."""

    def __init__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in NUMBERS}
        self._held = False
        self.came = False

    def hold(self) -> None:
        """From now on the first signal is only noted, and raised by `check` or `release`. A second raises at once."""
        self._held = True

    def release(self) -> None:
        """Raise KeyboardInterrupt from now on, and for a signal that came meanwhile."""
        self._held = False
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came."""
        if self.came:
            raise KeyboardInterrupt

    def take_over(self) -> None:
        """Take the signals, as the handlers of this process."""
        for number in NUMBERS:
            signal.signal(number, self._interrupt)

    def restore(self) -> None:
        """Give them back to those who had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupt(self, *_: object) -> None:
        put_off = self._held and not self.came
        self.came = True
        if not put_off:
            self.restore()
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """SIGTERM and SIGINT raise KeyboardInterrupt, whatever they tear: calls of Java may fail, at the end too."""
    interruption = Interruption()
    interruption.take_over()
    try:
        yield interruption
    except Exception:
        if interruption.came:
            raise KeyboardInterrupt from None
        raise
    finally:
        interruption.restore()
