"""The shell of Scribe: that of the other roles, and what Scribe must hear of the ring beside.

It is told what passes through this peer, and whose link broke. It keeps nothing on the disk.
"""

from __future__ import annotations

from collections.abc import Callable

from overlay.ids import Id
from overlay.messages import Peer
from overlay.ring import Application, Ring
from overlay.timing import Timing
from peer.iteration import Iteration
from peer.pubsub.config import PubSubConfig
from peer.pubsub.shell import Shell, clock_us
from peer.pubsub.state import Clients
from peer.scribe.config import LAN, TreeConfig
from peer.scribe.core import Scribe


class TellingRing(Ring):
    """A ring core that tells Scribe first-hand whose links break."""

    __slots__ = ("_ports",)

    def __init__(self, me: Peer, timing: Timing, application: Application) -> None:
        super().__init__(me, timing, application)
        assert isinstance(application, ScribePorts), "nobody else wants to know"
        self._ports = application

    def link_lost(self, peer: Peer, now: float, refused: bool) -> None:
        super().link_lost(peer, now, refused)
        self._ports.lost(peer)


class ScribePorts(Shell[Scribe]):
    """What `Shell` says, with the ring that is named here."""

    ring = TellingRing

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

    def _new_core(self, clients: Clients) -> Scribe:
        core = Scribe(self, clients, self._config, self._trees, self._iteration, self._owing)
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

    def lost(self, peer: Peer) -> None:
        """The link to this peer broke."""
        self.core.lost(peer)
        self._leave()
