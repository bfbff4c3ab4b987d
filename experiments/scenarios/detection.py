"""Time to detect a silent death: until the first peer finds it, and until all peers with it in their leaf sets know."""

from __future__ import annotations

from dataclasses import dataclass

from ringmq.experiments.simulator.world import Node, World
from ringmq.overlay.core.ids import Id


@dataclass(frozen=True, slots=True)
class DetectionFigures:
    """Seconds from the crash, over all crashes that were found by a peer."""

    deaths: int
    first_median_s: float
    first_worst_s: float
    all_median_s: float
    all_p99_s: float


class Death:
    """One crash, and the peers that have not noticed it yet."""

    __slots__ = ("at", "first_s", "peer_id", "unaware")

    def __init__(self, peer_id: Id, at: float, unaware: set[Id]) -> None:
        self.peer_id = peer_id
        self.at = at
        self.unaware = unaware
        self.first_s: float | None = None


class Detection:
    """Watches the leaf sets of the peers that knew a crashed peer."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._watching: dict[Id, list[Death]] = {}
        self._first_s: list[float] = []
        self._all_s: list[float] = []
        world.on_change = self._changed

    def crashing(self, node: Node) -> None:
        """Note a crash. Call it right before the crash."""
        nodes, dying = self._world.nodes, node.peer.id
        for death in self._watching.pop(dying, ()):
            self._aware(death, dying)
        unaware = {peer.id for peer in node.ring.leaves if nodes[peer.id].alive and dying in nodes[peer.id].ring.leaves}
        death = Death(dying, self._world.now, unaware)
        for watcher in sorted(unaware):
            self._watching.setdefault(watcher, []).append(death)

    def returned(self, peer_id: Id) -> None:
        """Forget the death of a peer that has started again: peers that missed it cannot notice it any more."""
        for watcher in list(self._watching):
            deaths = self._watching[watcher] = [death for death in self._watching[watcher] if death.peer_id != peer_id]
            if not deaths:
                del self._watching[watcher]

    def _changed(self, node: Node) -> None:
        deaths = self._watching.get(node.peer.id)
        if deaths is None:
            return
        known = node.ring.leaves.ids
        for death in [death for death in deaths if death.peer_id not in known]:
            deaths.remove(death)
            if death.first_s is None:
                death.first_s = self._world.now - death.at
                self._first_s.append(death.first_s)
            self._aware(death, node.peer.id)

    def _aware(self, death: Death, watcher: Id) -> None:
        death.unaware.discard(watcher)
        if not death.unaware and death.first_s is not None:
            self._all_s.append(self._world.now - death.at)

    def figures(self) -> DetectionFigures:
        return DetectionFigures(
            deaths=len(self._first_s),
            first_median_s=percentile(self._first_s, 0.5),
            first_worst_s=max(self._first_s, default=0.0),
            all_median_s=percentile(self._all_s, 0.5),
            all_p99_s=percentile(self._all_s, 0.99),
        )


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of the values lies; 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
