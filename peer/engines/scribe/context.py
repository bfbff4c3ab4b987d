"""What the parts of one Scribe core share: the state of any pub/sub core, and how to talk along the trees."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from ringmq.mqtt_front.iteration import Clock
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Control
from ringmq.peer.engines.scribe.codec import encode_tree
from ringmq.peer.engines.scribe.config import TreeConfig
from ringmq.peer.engines.scribe.messages import TreeMessage
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.context import Counters, LocalClients, MessagingContext, Overlay
from ringmq.peer.messaging.publication import encode_control

MOST_AT_ONCE: Final = 500
"""Places in one message."""


@dataclass(slots=True)
class TreeCounters(Counters):
    """What happened here since the start; each only grows. `reigns` counts the places this peer became the root of."""

    joins: int = 0
    """JOINs sent from here."""
    taken: int = 0
    """Children taken."""
    orphaned: int = 0
    """Parents lost."""
    loops: int = 0
    """Parents left because they turned out to be below this peer."""
    forwarded: int = 0
    """Copies of messages sent to children."""
    overdue: int = 0
    """Messages sent to a peer again, because it had them but did not report in time that all below had."""


class TreeContext(MessagingContext):
    """One per core."""

    __slots__ = ("clock_us", "hops", "said", "trees")
    counters: TreeCounters

    def __init__(
        self,
        overlay: Overlay,
        clients: LocalClients,
        config: PubSubConfig,
        trees: TreeConfig,
        clock: Clock | None = None,
        owing: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(overlay, clients, config, clock=clock, owing=owing)
        self.counters = TreeCounters()
        self.trees = trees
        self.hops = 0
        """The number of the last envelope sent from here."""
        self.said: deque[tuple[Peer, TreeMessage]] = deque()
        """What this peer says to itself."""
        self.clock_us: Callable[[], int] = lambda: int(self.clock.now * 1e6)
        """The time of the world, for the order of retained messages."""

    def send(self, peer: Peer, message: Control) -> None:
        """At once: acknowledgements are all that these roles have of the others'."""
        self.overlay.send(peer, encode_control(message))

    def tell(self, peer: Peer, message: TreeMessage) -> None:
        if peer.id == self.overlay.me.id:
            self.said.append((self.overlay.me, message))
        else:
            self.overlay.send(peer, encode_tree(message))

    def tell_owner(self, key: Id, message: TreeMessage) -> None:
        """To the owner of a key; who wants an answer asks again."""
        self.overlay.route(key, encode_tree(message))


class Orders:
    """The last message of each line; a line is what must stay in order. The lines used longest ago are forgotten."""

    __slots__ = ("_last", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._last: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def fresh(self, line: Hashable, tag: tuple[int, int]) -> bool:
        """Whether this one is later than all before; then it is the last."""
        last = self._last.get(line)
        if last is not None and last >= tag:
            return False
        self._last[line] = tag
        self._last.move_to_end(line)
        if len(self._last) > self._most:
            self._last.popitem(last=False)
        return True
