"""What is compared over several servers: peers of a ring, Mosquittos joined by bridges, and one Mosquitto alone.

All servers of a side share one core. Knows their command lines and when they are joined, nothing of load.

The bridged Mosquittos are a star. The first is the hub; each of the others has one bridge to it, which takes everything
both ways. Mosquitto does not send a message back over the bridge that it came by, and a star has no second way, so each
message comes once to each broker. In a mesh it would come by each way, and go round: Mosquitto has no rule that keeps
what came over one bridge from going on over the next. Nor would a mesh save work: either way a message crosses as many
bridges as there are other brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from experiments.benchmarks import servers
from experiments.benchmarks.clients import Address, BenchError
from experiments.benchmarks.servers import LOOK_S, MOSQUITTO, Server, mosquitto_command, started
from experiments.local_ring import is_settled
from experiments.ports import choose_ports
from overlay.config import show
from overlay.errors import OverlayError
from overlay.ids import Id
from overlay.questions import ask_status

SETTLE_S: Final = 30.0
"""Until peers are one ring. It takes them less than a second each."""
BRIDGE: Final = """\
connection bridge-{number}
address 127.0.0.1:{hub}
topic # both 0
notifications false
restart_timeout 1
"""
AT_ONCE: Final = "set_tcp_nodelay true\n"
"""Without it small writes wait for acknowledgements that are late on purpose: what comes over an idle bridge takes 9 ms
in one run and 0.05 in the next. With it, each message costs more."""


@contextlib.contextmanager
def joined(side: str, count: int, core: int) -> Iterator[list[Server]]:
    """So many servers, in the order of a pattern, for as long as the context lasts. Raises BenchError.

    Bridges may still be about to connect: `passage.check` waits for them.
    """
    with SIDES[side](count, core) as found:
        yield found


@contextlib.contextmanager
def _ringmq(count: int, core: int) -> Iterator[list[Server]]:
    """Peers as they come, each with an MQTT listener."""
    ports = choose_ports(0, 2 * count)
    overlays: list[Address] = [("127.0.0.1", port) for port in ports[:count]]
    with ExitStack() as stack:
        peers = []
        for number, port in enumerate(ports[count:]):
            join = ("--join", show(overlays[0])) if number else ()
            command = (
                *(sys.executable, "-P", "-m", "peer.command", "peer", "--log-level", "error"),
                *("--overlay", show(overlays[number]), "--mqtt", f"127.0.0.1:{port}", *join),
            )
            peers.append(stack.enter_context(started(f"peer {number + 1}", command, port, core)))
        _settle(overlays)
        yield peers


def _settle(overlays: Sequence[Address]) -> None:
    """Return when the peers are one ring. Raises BenchError."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        statuses = asyncio.run(_statuses(overlays))
        points = {Id.parse(status["id"]) for status in statuses}
        if len(points) == len(overlays) and all(is_settled(status, points) for status in statuses):
            return
        time.sleep(LOOK_S)
    raise BenchError(f"{len(overlays)} peers were not one ring after {SETTLE_S:g} s")


async def _statuses(overlays: Sequence[Address]) -> list[dict[str, Any]]:
    statuses = []
    for overlay in overlays:
        with contextlib.suppress(OverlayError):
            statuses.append(await ask_status(overlay))
    return statuses


@contextlib.contextmanager
def _bridged(count: int, core: int, extra: str = "") -> Iterator[list[Server]]:
    """All else as it comes, but for `extra` lines."""
    ports = choose_ports(0, count)
    with TemporaryDirectory(prefix="ringmq-bench-") as folder, ExitStack() as stack:
        brokers = []
        for number, port in enumerate(ports, 1):
            bridge = BRIDGE.format(number=number, hub=ports[0]) if number > 1 else ""
            file = Path(folder) / f"mosquitto-{number}.conf"
            command = mosquitto_command(file, MOSQUITTO.format(port=port) + extra + bridge)
            brokers.append(stack.enter_context(started(f"mosquitto {number}", command, port, core)))
        yield brokers


@contextlib.contextmanager
def _alone(count: int, core: int) -> Iterator[list[Server]]:
    """One, whatever the count."""
    with servers.running("mosquitto", core) as server:
        yield [server]


SIDES: Final[dict[str, Callable[[int, int], contextlib.AbstractContextManager[list[Server]]]]] = {
    "ringmq": _ringmq,
    "bridged": _bridged,
    "nodelay": partial(_bridged, extra=AT_ONCE),
    "mosquitto": _alone,
}


def why_not(side: str) -> str | None:
    """Why a side cannot be started here; None if it can."""
    return servers.why_not("ringmq" if side == "ringmq" else "mosquitto")
