"""SIGTERM handled like Ctrl-C: a command ends its child processes in order for either signal, at any moment.

Signals interrupt the main thread alone.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """While the context lasts, SIGTERM raises KeyboardInterrupt. Usable in the main thread only."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def held_back() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM only when the context ends.

    An interrupt between the start of a process and the assignment that stores it would leave the process running.
    Does nothing in another thread, which signals do not interrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])
