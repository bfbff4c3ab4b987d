"""Lookups: messages from random peers to random keys, and the fate of each."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ringmq.experiments.simulator.world import Node, World
from ringmq.overlay.core.ids import ID_BITS, Id
from ringmq.overlay.core.messages import Route


@dataclass(frozen=True, slots=True)
class LookupFigures:
    """Counts of lookups. Undelivered lookups are `lost` if their origin lives, and `orphaned` if it died."""

    issued: int
    delivered: int
    wrong: int
    twice: int
    orphaned: int
    lost: int
    pending: int
    mean_hops: float
    slowest_s: float


class Lookups:
    """Issues lookups at a rate, and checks where they are delivered."""

    def __init__(self, world: World, rate_per_s: float) -> None:
        self._world = world
        self._rate_per_s = rate_per_s
        self.next_at = self._later(world.now)
        self._issued = 0
        self._delivered = 0
        self._hops = 0
        self._wrong = 0
        self._twice = 0
        self._slowest_s = 0.0
        self._waiting: dict[int, tuple[Node, float]] = {}
        self._done: set[int] = set()
        world.on_delivery = self._arrived

    def _later(self, now: float) -> float:
        return now + self._world.random.expovariate(self._rate_per_s) if self._rate_per_s else inf

    def issue(self) -> None:
        """Issue one lookup from a random active peer. Call it at `next_at`."""
        world = self._world
        self.next_at = self._later(world.now)
        if not world.checks.active:
            return
        node = world.nodes[world.checks.pick(world.random)]
        number = self._issued
        self._issued += 1
        self._waiting[number] = (node, world.now)
        world.route(node, Id(world.random.getrandbits(ID_BITS)), number.to_bytes(8, "big"))

    def _arrived(self, node: Node, route: Route) -> None:
        assert isinstance(route.body, bytes)
        number = int.from_bytes(route.body, "big")
        right = self._world.checks.delivered(node.ring, route.key)
        self._wrong += not right
        if number in self._done:
            self._twice += 1
            return
        self._done.add(number)
        _, issued_at = self._waiting.pop(number)
        self._delivered += 1
        self._hops += route.hops
        self._slowest_s = max(self._slowest_s, self._world.now - issued_at)

    def figures(self) -> LookupFigures:
        patience_s = self._world.timing.receipt_s * self._world.timing.receipt_tries
        lost = orphaned = pending = 0
        for node, issued_at in self._waiting.values():
            if self._world.nodes.get(node.peer.id) is not node or not node.alive:
                orphaned += 1
            elif node.paused or self._world.now - issued_at < patience_s:
                pending += 1
            else:
                lost += 1
        return LookupFigures(
            issued=self._issued,
            delivered=self._delivered,
            wrong=self._wrong,
            twice=self._twice,
            orphaned=orphaned,
            lost=lost,
            pending=pending,
            mean_hops=self._hops / self._delivered if self._delivered else 0.0,
            slowest_s=self._slowest_s,
        )
