"""State shared by the parts of the Scribe engine: that of every engine, and the sending of messages of the trees."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from ringmq.mqtt_front.iteration import Clock
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.codec import encode_tree
from ringmq.peer.engines.scribe.config import TreeConfig
from ringmq.peer.engines.scribe.messages import TreeMessage
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.context import Counters, MessagingContext
from ringmq.peer.messaging.engine import LocalClients, Overlay
from ringmq.peer.messaging.messages import Control
from ringmq.peer.messaging.publication import encode_control

MOST_AT_ONCE: Final = 500
"""Places in one message."""


@dataclass(slots=True)
class TreeCounters(Counters):
    """Counters since the start; each only grows. `reigns` counts the places this peer became the root of."""

    joins: int = 0
    """JOINs sent by this peer."""
    taken: int = 0
    """Children accepted."""
    orphaned: int = 0
    """Parents lost."""
    loops: int = 0
    """Parents left because they were below this peer."""
    forwarded: int = 0
    """Copies of messages sent to children."""
    overdue: int = 0
    """Messages sent again to a peer that held them, but did not report in time that all peers below it had them."""


class TreeContext(MessagingContext):
    """One per core."""

    __slots__ = ("hops", "said", "trees")
    counters: TreeCounters

    def __init__(
        self,
        overlay: Overlay,
        clients: LocalClients,
        config: PubSubConfig,
        trees: TreeConfig,
        clock: Clock | None = None,
        owing: Callable[[], None] | None = None,
        clock_us: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(overlay, clients, config, clock=clock, owing=owing, clock_us=clock_us)
        self.counters = TreeCounters()
        self.trees = trees
        self.hops = 0
        """The number of the last envelope sent from here."""
        self.said: deque[tuple[Peer, TreeMessage]] = deque()
        """Messages of this peer to itself."""

    def next_hop(self) -> int:
        """A number for an envelope."""
        self.hops += 1
        return self.hops

    def send(self, peer: Peer, message: Control) -> None:
        """Send a message without delay: acknowledgements are the only such messages here, one for each iteration."""
        self.overlay.send(peer, encode_control(message))

    def tell(self, peer: Peer, message: TreeMessage) -> None:
        if peer.id == self.overlay.me.id:
            # It is handled after the present call: no part must change its state within a call of another part.
            self.said.append((self.overlay.me, message))
        else:
            self.overlay.send(peer, encode_tree(message))

    def tell_owner(self, key: Id, message: TreeMessage) -> None:
        """Route a message to the owner of a key. A request is repeated by its sender until it is answered."""
        self.overlay.route(key, encode_tree(message))


class Orders:
    """The last message of each sequence that must stay in order, such as a publisher's to a topic. The sequences used
    longest ago are forgotten."""

    __slots__ = ("_last", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._last: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def fresh(self, sequence: Hashable, tag: tuple[int, int]) -> bool:
        """Whether a message is later than all before; it then is the last."""
        last = self._last.get(sequence)
        # A tag begins with the boot: a publisher that has restarted numbers its messages from 1 again.
        if last is not None and last >= tag:
            return False
        self._last[sequence] = tag
        self._last.move_to_end(sequence)
        if len(self._last) > self._most:
            self._last.popitem(last=False)
        return True
