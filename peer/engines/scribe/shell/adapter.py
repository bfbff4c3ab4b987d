"""The shell of the Scribe engine: creates it. Scribe keeps nothing on the disk."""

from __future__ import annotations

from collections.abc import Callable

from ringmq.peer.engines.scribe.config import LAN, TreeConfig
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.engine import LocalClients
from ringmq.peer.messaging.shell.adapter import EngineAdapter, clock_us


class ScribeAdapter(EngineAdapter[ScribeEngine]):
    """See `EngineAdapter`."""

    def __init__(
        self,
        config: PubSubConfig,
        iteration: Iteration,
        trees: TreeConfig = LAN,
        on_activity: Callable[[bool], None] | None = None,
    ) -> None:
        self._config = config
        self._trees = trees
        super().__init__(iteration, on_activity)

    def _new_engine(self, clients: LocalClients) -> ScribeEngine:
        return ScribeEngine(self, clients, self._config, self._trees, self._iteration, self._owing, clock_us)
