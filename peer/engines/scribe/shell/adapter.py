"""The shell of Scribe: that of the other roles, and what Scribe must hear of the ring beside.

It hears what passes through this peer, and whose link broke. It keeps nothing on the disk.
"""

from __future__ import annotations

from collections.abc import Callable

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.config import LAN, TreeConfig
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.context import LocalClients
from ringmq.peer.messaging.shell.adapter import EngineAdapter, clock_us


class ScribeAdapter(EngineAdapter[ScribeEngine]):
    """What `EngineAdapter` says."""

    def __init__(
        self,
        config: PubSubConfig,
        iteration: Iteration,
        trees: TreeConfig = LAN,
        on_activity: Callable[[bool], None] = lambda active: None,
    ) -> None:
        self._config = config
        self._trees = trees
        super().__init__(iteration, on_activity)

    def _new_core(self, clients: LocalClients) -> ScribeEngine:
        core = ScribeEngine(self, clients, self._config, self._trees, self._iteration, self._owing)
        core.clock_us = clock_us
        return core

    def serves(self, topic_filter: str) -> bool:
        return self.core.serves(topic_filter)

    def filter_added(self, topic_filter: str, done: Callable[[], None]) -> None:
        """A shared filter may still stand in a session from before; nothing comes for it."""
        if self.serves(topic_filter):
            super().filter_added(topic_filter, done)
        else:
            done()

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        on_its_way = self.core.forward(key, payload, next_hop)
        self._leave()
        return on_its_way

    def link_lost(self, peer: Peer) -> None:
        self.core.lost(peer)
        self._leave()
