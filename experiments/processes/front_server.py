"""A front alone in a process, for benchmarks: `python -m ringmq.experiments.processes.front_server PORT`.

It ends at SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import uvloop

from ringmq.mqtt_front.server.listeners import Listen
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.peer.iteration import Iteration
from ringmq.peer.resources.limits import collect_garbage_seldom


async def serve(port: int) -> None:
    """Serve MQTT on the loopback until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    front = MqttServer(Iteration())
    await front.listen(Listen(host="127.0.0.1", port=port))
    collect_garbage_seldom()  # as a peer does
    await stop.wait()
    await front.stop()


def main() -> None:
    uvloop.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
