"""Connections between simulated peers, which delay and end as those of TCP do. Knows neither rings nor roles.

A network alone loses what is sent into a cut. A connection holds it, sends it again ever more rarely, and delivers it
in order some time after the healing, unless one of its ends has given up before: then everything that was held is lost,
and the other end learns of it when it sends something. A cut in one direction stops both, since acknowledgements are
lost. The times are those of `overlay/links/`, of Linux, and of its option TCP_USER_TIMEOUT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Message, Parcel, Peer

if TYPE_CHECKING:
    from ringmq.experiments.simulator.world import Node, World

FIRST_RETRANSMISSION_S: Final = 0.2
"""The least time after which Linux sends a segment again; doubled each time."""
SYN_AGAIN_S: Final = 1.0
HANDSHAKE_S: Final = 3.0
"""`OverlayConfig.handshake_s`: a dial that takes longer has failed."""
REDIAL_S: Final = 0.2
"""`OverlayConfig.redial_s`: parcels for a peer that could not be dialled are refused for this time."""
ROUND_TRIPS: Final = 1.5
"""From a SYN to the arrival of the HELLO behind it."""


class LinkBroke:
    """Event of a connection that was open and has ended without farewell."""


class Fin:
    """The process at the other end has ended."""


class DialFailed:
    """Event of a connection that could not be opened, with the parcels that waited for it."""

    __slots__ = ("parcels",)

    def __init__(self, parcels: list[bytes]) -> None:
        self.parcels = parcels


class Dial:
    """A connection that is being opened, with the messages that wait for it."""

    __slots__ = ("greeted", "node", "over", "peer", "queue")

    def __init__(self, node: Node, peer: Peer) -> None:
        self.node = node
        self.peer = peer
        self.queue: list[Message] = []
        self.greeted = False
        """Whether the HELLO has come to the other side."""
        self.over = False


class Hello:
    """Event of a HELLO that has come over a new connection."""

    __slots__ = ("dial",)

    def __init__(self, dial: Dial) -> None:
        self.dial = dial


class Welcome:
    """The HELLO that answers the HELLO of a dial."""

    __slots__ = ("dial",)

    def __init__(self, dial: Dial) -> None:
        self.dial = dial


class End:
    """One end of a connection, as its process and the kernel below it see it."""

    __slots__ = ("arrives_at", "held", "node", "open", "other", "peer", "unanswered_since")

    def __init__(self, node: Node, peer: Peer) -> None:
        self.node = node
        self.peer = peer
        self.other: End
        self.open = True
        self.held: list[object] = []
        """What was sent and has not arrived, in order."""
        self.unanswered_since: float | None = None
        """When the oldest segment was sent that is not acknowledged, if retransmissions run."""
        self.arrives_at = 0.0
        """When the last segment arrives: no later one overtakes it."""


class Segment:
    """Event of something that arrives at the other end."""

    __slots__ = ("content", "end")

    def __init__(self, end: End, content: object) -> None:
        self.end = end
        """The end that has sent it."""
        self.content = content


class Connections:
    """All connections of a world. `send` instead of the network's fates; `received`, `greeted` and `unheard` with the
    events that come of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ends: dict[tuple[Id, Id], End] = {}
        """The open end of each peer towards another."""
        self._dials: dict[tuple[Id, Id], Dial] = {}
        self._unreachable: dict[tuple[Id, Id], float] = {}
        timing = world.timing
        self._patience_s = timing.silence_s + timing.fastest_verdict_s
        """TCP_USER_TIMEOUT, as `overlay/links/link.py` sets it."""
        self.broken = self.lost = self.delayed = 0
        """Connections that ended in a cut or by a reset, messages lost with them, and messages that came late."""

    def send(self, node: Node, peer: Peer, message: Message) -> None:
        pair = (node.peer.id, peer.id)
        end = self._ends.get(pair)
        if end is not None and end.peer.boot >= peer.boot:
            self._transmit(end, message)
            return
        dial = self._dials.get(pair)
        if dial is None:
            if isinstance(message, Parcel) and self._unreachable.get(pair, 0.0) > self._world.now:
                self.lost += 1
                return
            dial = self._dials[pair] = Dial(node, peer)
            self._attempt(dial)
            self._later(node, SYN_AGAIN_S, lambda: self._attempt(dial))
            self._later(node, HANDSHAKE_S, lambda: self._fail(dial))
        dial.queue.append(message)

    def _later(self, node: Node, delay_s: float, call: Callable[[], None]) -> None:
        self._world.call_later(node, delay_s, call)

    # The network below

    def _whole(self, one: Id, other: Id) -> bool:
        network, now = self._world.network, self._world.now
        return not (network.is_cut(one, other, now) or network.is_cut(other, one, now))

    def _answers(self, node: Node) -> bool:
        """Whether the machine of a peer answers at all, if only by resets."""
        return node.alive or self._world.network.weather.resets

    def _transmit(self, end: End, content: object) -> None:
        world, me, peer = self._world, end.node.peer.id, end.peer.id
        if end.unanswered_since is None and self._whole(me, peer) and self._answers(end.other.node):
            self._put(end, content)
            return
        if end.unanswered_since is None:
            end.unanswered_since = world.now
            self._retransmit_later(end, world.now, FIRST_RETRANSMISSION_S)
        young = world.now - end.unanswered_since < FIRST_RETRANSMISSION_S
        if young and self._answers(end.other.node) and not end.held and not world.network.is_cut(me, peer, world.now):
            self._put(end, content)  # only its acknowledgement is lost
        else:
            end.held.append(content)

    def _put(self, end: End, content: object) -> None:
        world = self._world
        delay_s = world.network.segment_delay(end.node.peer.id, end.peer.id, FIRST_RETRANSMISSION_S)
        end.arrives_at = max(end.arrives_at, world.now + delay_s)
        world.push(end.arrives_at - world.now, end.other.node, end.node.peer, Segment(end, content))

    def _retransmit_later(self, end: End, since: float, wait_s: float) -> None:
        left_s = since + self._patience_s - self._world.now
        if wait_s < left_s:
            self._later(end.node, wait_s, lambda: self._retransmit(end, since, 2 * wait_s))
        else:
            self._later(end.node, left_s, lambda: self._give_up(end, since))

    def _retransmit(self, end: End, since: float, wait_s: float) -> None:
        if end.unanswered_since != since:
            return
        if not (self._whole(end.node.peer.id, end.peer.id) and self._answers(end.other.node)):
            self._retransmit_later(end, since, wait_s)
            return
        end.unanswered_since = None
        held, end.held = end.held, []
        self.delayed += len(held)
        for content in held:
            self._put(end, content)

    def _give_up(self, end: End, since: float) -> None:
        if end.unanswered_since == since:
            self._break(end)

    def _break(self, end: End) -> None:
        """An end is gone, with all that it held. Its process learns of it, unless it has closed it itself."""
        self.lost += len(end.held)
        end.held = []
        end.unanswered_since = None
        if end.open:
            end.open = False
            self.broken += 1
            self._forget(end)
            if end.node.alive:
                self._world.push(0.0, end.node, end.peer, LinkBroke)

    def _forget(self, end: End) -> None:
        pair = (end.node.peer.id, end.peer.id)
        if self._ends.get(pair) is end:
            del self._ends[pair]

    def _reset(self, end: End) -> None:
        """The other end does not exist: the kernel there says so."""
        if self._whole(end.node.peer.id, end.peer.id):
            delay_s = self._world.network.delay(end.node.peer.id, end.peer.id)
            self._later(end.node, delay_s, lambda: self._break(end))

    # Events

    def received(self, node: Node, segment: Segment) -> object | None:
        """What has come for the ring of a peer, if anything."""
        end, content = segment.end, segment.content
        if isinstance(content, Welcome):
            self._welcomed(end, content.dial)
            return None
        if not end.other.open:
            self._reset(end)
            return None
        if isinstance(content, Fin):
            self._break(end.other)
            return None
        return content

    def unheard(self, node: Node, event: object) -> None:
        """Something has come to a machine whose process has ended."""
        if isinstance(event, Segment) and not isinstance(event.content, Fin) and self._world.network.weather.resets:
            self._reset(event.end)

    # Dials

    def _attempt(self, dial: Dial) -> None:
        if dial.over or dial.greeted or not dial.node.alive:
            return
        world, me, target = self._world, dial.node.peer.id, dial.peer.id
        node = world.nodes.get(target)
        if node is None or not self._whole(me, target):
            return
        delay_s = world.network.delay(me, target)
        if node.alive:
            world.push(2 * ROUND_TRIPS * delay_s, node, dial.node.peer, Hello(dial))
        elif world.network.weather.resets:
            self._later(dial.node, 2 * delay_s, lambda: self._fail(dial))

    def greeted(self, node: Node, sender: Peer, dial: Dial) -> None:
        """A HELLO has come to a peer that runs."""
        me = node.peer.id
        if dial.over or dial.greeted or not self._whole(me, sender.id):
            return
        dial.greeted = True
        known = self._ends.get((me, sender.id))
        if known is not None:
            # It was asked, and the answer was a reset: the other side has another connection now.
            self._break(known)
        here, there = End(node, sender), End(dial.node, node.peer)
        here.other, there.other = there, here
        there.open = False
        self._ends[me, sender.id] = here
        self._transmit(here, Welcome(dial))
        own = self._dials.pop((me, sender.id), None)
        if own is not None:
            own.over = True
            for message in own.queue:
                self._transmit(here, message)

    def _welcomed(self, end: End, dial: Dial) -> None:
        if dial.over:
            self._reset(end)
            return
        self._end_dial(dial)
        here = end.other
        here.open = True
        known = self._ends.get((here.node.peer.id, here.peer.id))
        if known is not None:
            self._break(known)
        self._ends[here.node.peer.id, here.peer.id] = here
        for message in dial.queue:
            self._transmit(here, message)

    def _end_dial(self, dial: Dial) -> None:
        dial.over = True
        pair = (dial.node.peer.id, dial.peer.id)
        if self._dials.get(pair) is dial:
            del self._dials[pair]

    def _fail(self, dial: Dial) -> None:
        if dial.over:
            return
        self._end_dial(dial)
        pair = (dial.node.peer.id, dial.peer.id)
        self._unreachable[pair] = self._world.now + REDIAL_S
        self.lost += len(dial.queue)
        if dial.node.alive:
            parcels = [message.payload for message in dial.queue if isinstance(message, Parcel)]
            self._world.push(0.0, dial.node, dial.peer, DialFailed(parcels))

    def is_open(self, node: Node, peer: Peer) -> bool:
        return (node.peer.id, peer.id) in self._ends

    # Processes

    def crashed(self, node: Node) -> None:
        """A process has ended. Unless its machine has lost power, the kernel closes its connections."""
        me = node.peer.id
        for pair in [pair for pair in self._dials if pair[0] == me]:
            self._dials.pop(pair).over = True
        for pair in [pair for pair in self._ends if pair[0] == me]:
            end = self._ends.pop(pair)
            end.open = False
            if self._world.network.weather.resets:
                self._transmit(end, Fin())
