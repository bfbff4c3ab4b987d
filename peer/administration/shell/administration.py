"""The administration of a peer: assembles its desk, what it tells and changes, and its pulse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.message import Message
from ringmq.overlay.node import Node
from ringmq.peer.administration.shell.changing import Changes
from ringmq.peer.administration.shell.desk import Desk
from ringmq.peer.administration.shell.pulse import Counts, Pulse
from ringmq.peer.administration.shell.telling import Telling
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.shell.adapter import EngineAdapter
from ringmq.peer.mqtt_service import MqttService


class Administration:
    """One per peer. Create it when the node has started; `open` it, and `close` it at the end, before the node."""

    def __init__(
        self,
        node: Node,
        adapter: EngineAdapter[Any],
        clients: MqttService | None,
        iteration: Iteration,
        publish: Callable[[Message, Done], None],
    ) -> None:
        """`clients` is None on a peer that serves no clients."""
        self._clients = clients
        self._pulse = Pulse(self._counts)
        self.telling = Telling(node, adapter, clients, self._pulse, Changes(adapter, clients, publish))
        self.desk = Desk(node, iteration, self.telling)

    def open(self) -> None:
        self._pulse.start()
        self.desk.open()

    def close(self) -> None:
        """Idempotent."""
        self._pulse.stop()
        self.desk.close()

    def _counts(self) -> Counts:
        if self._clients is None:
            return 0, 0
        counters = self._clients.front.broker.counters
        return counters.publish_received, counters.publish_sent
