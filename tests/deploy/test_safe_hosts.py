"""Hosts of a ring with identity: from nothing to a ring of three in three commands, each as printed by the one before.

The tokens cross no network here, as an operator would carry them; all else does, on a network that loses frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.experiments.hosts.host import LACKS_IP, lacking
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import ask_status
from tests.conftest import Eventually
from tests.deploy.hosts import OVERLAY_PORT, Host, Network
from tests.mqtt_front.real_clients.missing import cannot

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(200)]

HOSTS = 4
WITHIN_S = 40.0
RINGMQ = [sys.executable, "-P", "-m", "ringmq"]


class Machines:
    """Hosts on which an operator types commands."""

    def __init__(self, network: Network, pipe: int, stack: contextlib.ExitStack) -> None:
        self.hosts = network.hosts
        self._pipe = pipe
        self._stack = stack

    def run(self, host: Host, command: list[str]) -> None:
        """Start `ringmq peer …` on this host, with a data folder of its own in place of that in the command."""
        assert command[:2] == ["ringmq", "peer"], command
        words = [*command[1:], "--parent-pipe", str(self._pipe)]
        if "--data" in words:
            words[words.index("--data") + 1] = str(self.data(host))
        host.folder.mkdir(exist_ok=True)
        with (host.folder / "log").open("ab") as log:
            peer = host.inside(
                lambda: subprocess.Popen(
                    [*RINGMQ, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=host.folder,
                    pass_fds=(self._pipe,),
                )
            )
        self._stack.callback(peer.wait, 10)
        self._stack.callback(peer.kill)

    def data(self, host: Host) -> Path:
        return host.folder / "data"

    def said(self, host: Host) -> str:
        return (host.folder / "log").read_text()

    def printed(self, host: Host) -> list[str]:
        """The command for the next machine, which the founder printed by itself; empty before it did."""
        lines = [line for line in self.said(host).splitlines() if line.strip().startswith("ringmq peer ")]
        return shlex.split(lines[0]) if lines else []

    def invited(self, host: Host) -> list[str]:
        asked = [*RINGMQ, "invite", "--data", str(self.data(host))]
        return shlex.split(subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout)

    def neighbours(self, host: Host) -> set[str]:
        try:
            status = asyncio.run(ask_status(self.data(host) / "control.sock", 2.0))
        except OverlayError:
            return set()
        return {leaf["address"] for side in status["leaves"].values() for leaf in side}

    def are_one_ring(self, *hosts: Host) -> bool:
        every = {f"{host.address}:{OVERLAY_PORT}" for host in hosts}
        return all(self.neighbours(host) == every - {f"{host.address}:{OVERLAY_PORT}"} for host in hosts)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    why = lacking()
    if why == LACKS_IP:
        cannot(why)
    if why:
        pytest.skip(f"NO TEST OF SEVERAL HOSTS: {why}")
    with Network(HOSTS, tmp_path) as network, contextlib.ExitStack() as stack:
        pipe, parent = os.pipe()
        stack.callback(os.close, parent)
        stack.callback(os.close, pipe)
        for host in network.hosts:
            network.heal(host)
        yield Machines(network, pipe, stack)


def test_three_commands_make_a_ring_that_no_stranger_enters(machines: Machines, eventually: Eventually) -> None:
    first, second, third, stranger = machines.hosts
    machines.run(first, ["ringmq", "peer", "--overlay", f"{first.address}:{OVERLAY_PORT}", "--data", "here"])
    command = eventually(lambda: machines.printed(first), WITHIN_S)
    # It has no placeholder: the address of the second machine is the one that reaches the first.
    machines.run(second, command)
    eventually(lambda: machines.are_one_ring(first, second), WITHIN_S, "two machines are one ring")
    machines.run(third, machines.invited(second))
    eventually(lambda: machines.are_one_ring(first, second, third), WITHIN_S, "three machines are one ring")
    at = f"{stranger.address}:{OVERLAY_PORT}"
    machines.run(
        stranger,
        ["ringmq", "peer", "--overlay", at, "--insecure", "--join", f"{first.address}:{OVERLAY_PORT}"],
    )
    eventually(lambda: "refuses: unproven" in machines.said(stranger), WITHIN_S)
    refused = eventually(lambda: [line for line in machines.said(first).splitlines() if "handshakes_refused" in line])
    assert stranger.address in refused[0]
    with pytest.raises(OverlayError, match="unproven"):
        stranger.inside(lambda: asyncio.run(ask_status((first.address, OVERLAY_PORT), 5.0)))
    # Expelled on one machine, and gone on all.
    subprocess.run(
        [*RINGMQ, "expel", asyncio.run(ask_status(machines.data(third) / "control.sock"))["id"], "--data",
         str(machines.data(second))],
        capture_output=True, timeout=30, check=True,
    )  # fmt: skip
    eventually(lambda: machines.are_one_ring(first, second), WITHIN_S, "the third is out")
    eventually(lambda: "this peer was expelled" in machines.said(third), WITHIN_S)
