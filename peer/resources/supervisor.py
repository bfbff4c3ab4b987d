"""Tells the supervisor of this process, such as systemd, when it is ready, and from time to time that it runs.

Speaks the protocol of sd_notify(3): datagrams to a socket whose name is in the environment. Without it nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import MutableMapping
from typing import Final

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"
BEATS: Final = 3
"""Signs of life within the time after which the supervisor restarts this process: one may be late."""


class Supervisor:
    """Create it inside a running event loop; `start` it, and `stop` it at the end."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Takes its variables out of the environment, since they are for no process that this one starts."""
        self._address = environment.pop(SOCKET, "")
        period_us = environment.pop(WATCHDOG, "")
        pid = environment.pop(WATCHDOG_PID, "")
        mine = not pid or pid == str(os.getpid())
        self._period_s = int(period_us) / 1e6 / BEATS if mine and period_us.isdigit() and int(period_us) else 0.0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._ready = False

    def start(self) -> None:
        """Begin to give signs of life: from the event loop, so that one that hangs gives none."""
        if self._address and self._period_s:
            self._beat()

    def ready(self) -> None:
        """This process does its work from now on. Later calls do nothing."""
        if not self._ready:
            self._ready = True
            self._say("READY=1")

    def stop(self) -> None:
        """It ends in order. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._say("STOPPING=1")

    def _beat(self) -> None:
        self._say("WATCHDOG=1")
        self._timer = self._loop.call_later(self._period_s, self._beat)

    def _say(self, text: str) -> None:
        if not self._address:
            return
        # A name that begins with @ is one without a file: its first byte is zero.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
            speaker.setblocking(False)
            speaker.sendto(text.encode(), address)
