"""A front with the values of Mosquitto, for its tests: `python mosquitto_suite_front.py PORT`. It ends at SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys

from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.server.listeners import Listen
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.peer.iteration import Iteration


async def serve(port: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    front = MqttServer(Iteration(), FrontConfig(receive_maximum=20, topic_alias_maximum=10, max_inflight=20))
    await front.listen(Listen(host="127.0.0.1", port=port))
    print("listening", flush=True)
    await stop.wait()
    await front.stop()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
