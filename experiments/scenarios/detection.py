"""How long a silent death stays unknown: to the first that finds it, and to all who had the peer in their leaf set."""

from __future__ import annotations

from dataclasses import dataclass

from ringmq.experiments.simulator.world import Node, World
from ringmq.overlay.core.ids import Id


@dataclass(frozen=True, slots=True)
class DetectionFigures:
    """Seconds from the crash, over all crashes that had somebody left to find them."""

    deaths: int
    first_median_s: float
    first_worst_s: float
    all_median_s: float
    all_p99_s: float


class Death:
    """One crash, and who has yet to take note of it."""

    __slots__ = ("at", "first_s", "point", "unaware")

    def __init__(self, point: Id, at: float, unaware: set[Id]) -> None:
        self.point = point
        self.at = at
        self.unaware = unaware
        self.first_s: float | None = None


class Detection:
    """Watches the leaf sets of those who knew a crashed peer."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._watching: dict[Id, list[Death]] = {}
        self._first_s: list[float] = []
        self._all_s: list[float] = []
        world.on_change = self._changed

    def crashing(self, node: Node) -> None:
        """To be called right before the crash."""
        nodes, point = self._world.nodes, node.peer.id
        for death in self._watching.pop(point, ()):
            self._aware(death, point)
        unaware = {peer.id for peer in node.ring.leaves if nodes[peer.id].alive and point in nodes[peer.id].ring.leaves}
        death = Death(point, self._world.now, unaware)
        for watcher in sorted(unaware):
            self._watching.setdefault(watcher, []).append(death)

    def returned(self, point: Id) -> None:
        """The peer has started again under its id: who had not noticed its death will not any more."""
        for watcher in list(self._watching):
            deaths = self._watching[watcher] = [death for death in self._watching[watcher] if death.point != point]
            if not deaths:
                del self._watching[watcher]

    def _changed(self, node: Node) -> None:
        deaths = self._watching.get(node.peer.id)
        if deaths is None:
            return
        known = node.ring.leaves.ids
        for death in [death for death in deaths if death.point not in known]:
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
    """The value below which this share of them lies; 0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
