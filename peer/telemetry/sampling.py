"""Samples of one peer: combines the figures of the node, the pub/sub engine and the front into one record.

Only reads. Counts whose cost grows with the number of partitions are cached.
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
"""Maximum links in a sample (those with the most bytes): some 40 kB, so that a sample fits into a batch."""
PARTITION_S: Final = 1e-5
"""Seconds per partition with records between two counts: counting then takes 1 % of the time, whatever their number."""
MAX_COUNT: Final = (1 << 63) - 1
"""Largest count in a record. Other peers can influence some counts, so they are capped."""
_STATM: Final = Path("/proc/self/statm")


class Sampling:
    """Takes samples once the node has started. `clients` is None on a peer that serves no clients."""

    def __init__(
        self, config: PeerConfig, node: Node, adapter: EngineAdapter[Any], clients: MqttService | None
    ) -> None:
        self._config = config
        self._node = node
        self._adapter = adapter
        self._clients = clients
        self._began_at = time.monotonic()
        self._partitions: tuple[int, int] = (0, 0)
        self._count_at = self._began_at

    def sample(self, run: str, at: float) -> Sample:
        """Take a sample of the current state; `at` is in seconds since 1970."""
        node, roles = self._node, self._config.roles
        me = node.ring.me
        bytes_in, bytes_out, links = node.traffic()
        front = self._front()
        engine: Engine = self._adapter.core
        counters = engine.counters
        load = engine.load(f"{LOG_TOPICS}/{me.id.hex()}")
        coordinated, copied = self._count_partitions(engine)
        counted = front["counters"]
        return Sample(
            run=run,
            peer=me.id.hex(),
            boot=me.boot,
            number=0,  # the recorder numbers its records
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
        """Counters by their names in a status. Names of the engine and the front get a prefix."""
        counted = {**self._node.ring.statistics().counters, **self._node.counters}
        engine: Engine = self._adapter.core
        groups = {engine.kind: engine.counters.as_dict() | {"unsendable": self._adapter.unsendable}}
        if self._clients is not None:
            groups["front"] = self._front()["counters"]
        return counted | {f"{kind}_{name}": value for kind, group in groups.items() for name, value in group.items()}

    def _front(self) -> dict[str, Any]:
        if self._clients is None:
            # A Counter has 0 for each name that a sample reads.
            return {"listeners": {}, "clients": 0, "subscriptions": 0, "counters": Counter[str]()}
        status = self._clients.status()
        return {"listeners": status["listeners"], **status["front"]}

    def _count_partitions(self, engine: Engine) -> tuple[int, int]:
        """Partitions with records, coordinated here and copied. Counting visits all of them, so it happens rarely if
        they are many."""
        now = time.monotonic()
        if now >= self._count_at:
            self._partitions = engine.partitions()
            self._count_at = now + PARTITION_S * sum(self._partitions)
        return self._partitions


def links_of(links: list[dict[str, Any]]) -> list[LinkTraffic]:
    """Traffic of the links to known peers, from the node's list of links."""
    # A link has no id before the HELLO of its peer.
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
    """Resident memory of this process; its peak where the system does not report the current value."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024  # ru_maxrss: bytes on macOS, kB on Linux
