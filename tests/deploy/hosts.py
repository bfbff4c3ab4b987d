"""Hosts with a peer each, on the switch of `ringmq.experiments.hosts`.

Nothing of it is left behind: the switch ends with its standard input, the peers with their parent's pipe, and these
with this process, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ringmq.experiments.hosts import host as plain
from ringmq.experiments.hosts.host import WITHIN_S
from ringmq.experiments.hosts.network import HostNetwork
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import ask_status

OVERLAY_PORT: Final = 4883
MQTT_PORT: Final = 1883
SETTINGS: Final = "[limits]\nmax_queued = 100_000\n"
"""What waits for clients that are away is more in these tests than a peer keeps by default."""


class Host(plain.Host):
    """A machine of the site, with its peer."""

    def __init__(self, number: int, folder: Path, stack: contextlib.ExitStack) -> None:
        super().__init__(number, stack)
        self.folder = folder
        self.trust: list[str] = ["--insecure"]
        """Options about the trust between peers."""
        self.peer: subprocess.Popen[bytes] | None = None
        stack.callback(self.kill)

    def connect(self, address: str, port: int = MQTT_PORT) -> socket.socket:
        return super().connect(address, port)

    def start_peer(self, join: Iterable[Host], parent_pipe: int) -> None:
        """On the disk of the last one, if there was one."""
        assert self.peer is None
        options = ["--overlay", f"{self.address}:{OVERLAY_PORT}", "--mqtt", f"{self.address}:{MQTT_PORT}"]
        options += ["--anonymous", "--data", str(self.folder / "data"), "--parent-pipe", str(parent_pipe)]
        options += ["--config", str(self.folder / "ringmq.toml"), *self.trust]
        for other in join:
            options += ["--join", f"{other.address}:{OVERLAY_PORT}"]
        self.folder.mkdir(exist_ok=True)
        (self.folder / "ringmq.toml").write_text(SETTINGS, encoding="utf-8")
        with (self.folder / "log").open("ab") as log:
            self.peer = self.inside(
                lambda: subprocess.Popen(
                    [sys.executable, "-P", "-m", "ringmq", "peer", *options],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    pass_fds=(parent_pipe,),
                )
            )

    def stop(self) -> None:
        """The peer, which says good-bye."""
        assert self.peer is not None
        self.peer.terminate()
        assert self.peer.wait(WITHIN_S) == 0
        self.peer = None

    def kill(self) -> None:
        """The peer, with SIGKILL."""
        if self.peer is not None:
            self.peer.kill()
            self.peer.wait(WITHIN_S)
            self.peer = None

    def status(self) -> dict[str, Any]:
        """Asked by a program on this host; empty while nobody answers."""
        address = (self.address, OVERLAY_PORT)
        try:
            return self.inside(lambda: asyncio.run(ask_status(address, 2.0)))
        except OverlayError:
            return {}


class Network(HostNetwork[Host]):
    """Some hosts with peers on one switch; a context manager, at whose end nothing of them is left."""

    def __init__(self, count: int, folder: Path, seed: int = 1) -> None:
        super().__init__(count, lambda number, stack: Host(number, folder / f"host {number}", stack), seed=seed)
        self._pipe, self._parent = os.pipe()
        self.stack.callback(os.close, self._parent)
        self.stack.callback(os.close, self._pipe)

    def start(self, host: Host) -> None:
        """Its peer. The first host founds the ring, and the others join there; started again, it knows the others."""
        self.heal(host)
        host.start_peer(self.hosts[:1] if host.number else (), self._pipe)

    def lose(self, host: Host) -> None:
        """As if somebody pulled its plug: it says nothing any more, not even that connections have ended."""
        self.cut(host)
        host.kill()

    def are_one_ring(self, *hosts: Host) -> bool:
        """Whether these are active, and each has just the others for its neighbours."""
        return all(_neighbours(host) == {other.address for other in hosts} - {host.address} for host in hosts)


def _neighbours(host: Host) -> set[str] | None:
    """The addresses in its leaf set; None while its peer is no part of a ring."""
    status = host.status()
    if not status.get("active"):
        return None
    return {leaf["address"].rpartition(":")[0] for side in status["leaves"].values() for leaf in side}
