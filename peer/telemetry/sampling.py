"""The samples of one peer: what the node, the roles and the front tell, brought together as one record.

Reads them and changes nothing. What costs with the number of places is not counted each time.
"""

from __future__ import annotations

import heapq
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ringmq.dispatching.plan import UNBOUNDED
from ringmq.logger.records import LOG_TOPICS, LinkTraffic, Sample, Traffic
from ringmq.overlay.config import show
from ringmq.overlay.node import Node
from ringmq.peer.messaging.engine import Engine
from ringmq.peer.messaging.shell.adapter import EngineAdapter
from ringmq.peer.mqtt_service import MqttService
from ringmq.peer.settings.model import PeerConfig

MAX_LINKS: Final = 256
"""Of a sample, those with the most bytes: some 40 kB, so that it stays below a batch."""
PLACE_S: Final = 1e-5
"""Places are counted anew after so long for each of them: that takes a hundredth of the time, whatever their number."""
MAX_COUNT: Final = (1 << 63) - 1
"""That a record has room for. Other peers have a say in some."""
_STATM: Final = Path("/proc/self/statm")


class Sampling:
    """Once the node has started, `sample` it. `clients` is None of a peer that serves none."""

    def __init__(
        self, config: PeerConfig, node: Node, adapter: EngineAdapter[Any], clients: MqttService | None
    ) -> None:
        self._config = config
        self._node = node
        self._adapter = adapter
        self._clients = clients
        self._began_at = time.monotonic()
        self._places: tuple[int, int] = (0, 0)
        self._count_at = self._began_at

    def sample(self, run: str, at: float) -> Sample:
        """As things are now; `at` in seconds since 1970."""
        node, roles = self._node, self._config.roles
        me = node.ring.me
        bytes_in, bytes_out, links = node.traffic()
        front = self._front()
        engine: Engine = self._adapter.core
        counters = engine.counters
        load = engine.load(f"{LOG_TOPICS}/{me.id.hex()}")
        coordinated, copied = self._count_places(engine)
        counted = front["counters"]
        return Sample(
            run=run,
            peer=me.id.hex(),
            boot=me.boot,
            number=0,
            at=at,
            uptime_s=time.monotonic() - self._began_at,
            address=show(node.address),
            listeners=front["listeners"],
            pid=os.getpid(),
            dispatching=self._config.dispatch,
            fanout=0 if roles.dispatch.fanout == UNBOUNDED else roles.dispatch.fanout,
            cpu_s=time.process_time(),
            memory_bytes=memory_bytes(),
            clients=front["clients"],
            subscriptions=front["subscriptions"],
            topics=load.topics,
            mqtt=Traffic(
                bytes_in=counted["bytes_received"],
                bytes_out=counted["bytes_sent"],
                messages_in=counted["publish_received"],
                messages_out=counted["publish_sent"],
                dropped=counted["publish_dropped"],
            ),
            overlay=Traffic(
                bytes_in=bytes_in,
                bytes_out=bytes_out,
                messages_in=counters.came,
                messages_out=counters.sent,
                dropped=counters.dropped,
            ),
            log=Traffic(
                bytes_in=counted["log_bytes_received"],
                bytes_out=counted["log_bytes_sent"],
                messages_in=counted["log_received"],
                messages_out=counted["log_sent"],
                dropped=counted["log_dropped"],
            ),
            links=links_of(links),
            coordinated=coordinated,
            copied=copied,
            filters=load.filters,
            publishing=load.publishing,
            waiting_bytes=load.waiting_bytes,
            unacknowledged=load.unacknowledged,
        )

    def counters(self) -> dict[str, int]:
        """What is counted beside, by the names of a status; of the roles and the front with whose it is before it."""
        counted = {**self._node.ring.statistics().counters, **self._node.counters}
        engine: Engine = self._adapter.core
        groups = {engine.kind: engine.counters.as_dict() | {"unsendable": self._adapter.unsendable}}
        if self._clients is not None:
            groups["front"] = self._front()["counters"]
        return counted | {f"{kind}_{name}": value for kind, group in groups.items() for name, value in group.items()}

    def _front(self) -> dict[str, Any]:
        if self._clients is None:
            return {"listeners": {}, "clients": 0, "subscriptions": 0, "counters": Counter[str]()}
        told = self._clients.status()
        return {"listeners": told["listeners"], **told["front"]}

    def _count_places(self, engine: Engine) -> tuple[int, int]:
        """Places coordinated here, and copied. Counting visits all of them, so it happens rarely if they are many."""
        now = time.monotonic()
        if now >= self._count_at:
            self._places = engine.partitions()
            self._count_at = now + PLACE_S * sum(self._places)
        return self._places


def links_of(links: list[dict[str, Any]]) -> list[LinkTraffic]:
    """As a node tells of them, those of known peers."""
    known = [link for link in links if "id" in link]
    if len(known) > MAX_LINKS:
        known = heapq.nlargest(MAX_LINKS, known, _crossed)
    return [
        LinkTraffic(
            peer=link["id"],
            bytes_in=min(link["bytes_in"], MAX_COUNT),
            bytes_out=min(link["bytes_out"], MAX_COUNT),
            queued_bytes=min(link["queued_bytes"], MAX_COUNT),
            rtt_s=None if link["rtt_ms"] is None else link["rtt_ms"] / 1000,
        )
        for link in known
    ]


def _crossed(link: Mapping[str, Any]) -> int:
    return int(link["bytes_in"] + link["bytes_out"])


def memory_bytes() -> int:
    """Resident; where the system does not tell that, the most that it was."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
