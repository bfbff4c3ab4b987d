"""A network: hosts on one switch, whose weather and cuts can be changed at any time.

Owns the hosts and the process of the switch, which end with it.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from ringmq.experiments.hosts import switch
from ringmq.experiments.hosts.host import Host

OneHost = TypeVar("OneHost", bound=Host)


@dataclass(frozen=True, slots=True)
class LineWeather:
    """What happens to a frame on its way from one host to another."""

    delay_s: float = 0.005
    jitter_s: float = 0.001
    loss: float = 0.01
    """The share of frames that is lost: what a radio link of a site may do, and a cable never."""
    reordering: float = 0.0
    """The share of frames that may overtake earlier ones of their line, by the jitter."""

    def words(self) -> str:
        return f"{self.delay_s} {self.jitter_s} {self.loss} {self.reordering}"


USUAL: Final = LineWeather()


class HostNetwork(Generic[OneHost]):
    """Some hosts on one switch; a context manager, at whose end nothing of them is left."""

    def __init__(
        self,
        count: int,
        make: Callable[[int, contextlib.ExitStack], OneHost],
        weather: LineWeather = USUAL,
        seed: int = 1,
    ) -> None:
        with contextlib.ExitStack() as stack:
            self.hosts = [make(number, stack) for number in range(count)]
            lines = [host.line for host in self.hosts]
            self.switch = subprocess.Popen(  # noqa: S603  # our own command line
                [sys.executable, "-P", switch.__file__, str(seed), *weather.words().split(), *map(str, lines)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=lines,
            )
            stack.callback(self._end_switch)
            self.stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stack.close()

    def cut(self, host: Host) -> None:
        """No frame gets from or to this host any more, when this returns. Its own programs reach each other."""
        self._order(f"cut {host.number}")

    def heal(self, host: Host) -> None:
        """Take back `cut`."""
        self._order(f"heal {host.number}")

    def block(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Frames from the first host of a pair to the second are lost from now on; frames of all others pass."""
        self._order(" ".join(["block", *(f"{source}>{target}" for source, target in pairs)]))

    def change(self, weather: LineWeather) -> None:
        """Frames that come from now on have this weather."""
        self._order(f"weather {weather.words()}")

    def _order(self, order: str) -> None:
        assert self.switch.stdin is not None
        assert self.switch.stdout is not None
        self.switch.stdin.write(f"{order}\n".encode())
        self.switch.stdin.flush()
        assert self.switch.stdout.readline() == b"ok\n", "the switch has ended"

    def _end_switch(self) -> None:
        with self.switch:
            self.switch.send_signal(signal.SIGKILL)
