"""The compared sides of several servers: peers of a ring, Mosquittos joined by bridges, and one Mosquitto alone.

All servers of a side share one core. Knows their command lines and when they are joined, nothing about load.

The bridged Mosquittos form a star. The first is the hub; each of the others has one bridge to it, which carries all
topics in both directions. Mosquitto does not send a message back over the bridge by which it came, and a star has one
path between two brokers, so each broker gets each message once. In a mesh a message would come over each path and
circulate: Mosquitto has no rule that stops a message of one bridge at the next. A mesh would not save work either: a
message crosses as many bridges as there are other brokers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ringmq.experiments.processes import servers
from ringmq.experiments.processes.peers import ring_of
from ringmq.experiments.processes.ports import choose_ports
from ringmq.experiments.processes.servers import MOSQUITTO, Server, mosquitto_command, started

BRIDGE: Final = """\
connection bridge-{number}
address 127.0.0.1:{hub}
topic # both 2
notifications false
restart_timeout 1
"""
"""A message crosses with its own QoS: 2 is the highest that a bridge asks for."""
AT_ONCE: Final = "set_tcp_nodelay true\n"
"""Without TCP_NODELAY, small writes wait for delayed acknowledgements: a message over an idle bridge takes 9 ms in one
run and 0.05 ms in the next. With it, each message costs more."""


@contextlib.contextmanager
def joined(side: str, count: int, core: int) -> Iterator[list[Server]]:
    """`count` servers, in the order of a pattern, while the context lasts. Raises BenchError.

    Bridges may not be connected yet: `reachability.check` waits for them.
    """
    with SIDES[side](count, core) as found:
        yield found


@contextlib.contextmanager
def _ringmq(count: int, core: int) -> Iterator[list[Server]]:
    """Peers with default settings, each with an MQTT listener."""
    with ring_of(count, core=core) as ring:
        yield [peer.server for peer in ring.peers]


@contextlib.contextmanager
def _bridged(count: int, core: int, extra: str = "") -> Iterator[list[Server]]:
    """Mosquittos with bridges, with default settings except for the `extra` lines."""
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
    """One server, whatever the count."""
    with servers.running("mosquitto", core) as server:
        yield [server]


SIDES: Final[dict[str, Callable[[int, int], contextlib.AbstractContextManager[list[Server]]]]] = {
    "ringmq": _ringmq,
    "bridged": _bridged,
    "nodelay": partial(_bridged, extra=AT_ONCE),
    "mosquitto": _alone,
}


def why_not(side: str) -> str | None:
    """The reason why a side cannot be started here; None if it can."""
    return servers.why_not("ringmq" if side == "ringmq" else "mosquitto")
