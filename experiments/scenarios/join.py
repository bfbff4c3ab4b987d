"""Many peers join at once: the cost, and whether crashes during the joins break an invariant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ringmq.experiments.scenarios.building import Progress, join_somewhere, silent
from ringmq.experiments.simulator.network import DELAYS_S, Weather
from ringmq.experiments.simulator.world import Node, World
from ringmq.overlay.core.timing import LAN, Timing

PATIENCE_S: Final = 60.0
"""Virtual time after which peers that are not one ring count as broken."""

QUIET_S: Final = 60.0
"""Time in which the leaf sets of one ring must become exact: six rounds of comparing them."""


@dataclass(frozen=True, slots=True)
class JoinFigures:
    """Figures of a ring of `nodes` peers that all joined through the first peer at the same moment."""

    nodes: int
    seed: int
    one_ring_after_s: float | None
    messages_per_join: float
    faults: int
    events: int
    events_per_s: float
    messages: dict[str, int]


def join_at_once(nodes: int, seed: int, timing: Timing = LAN, progress: Progress = silent) -> JoinFigures:
    """Run the joins. Raises InvariantBrokenError at the first broken invariant."""
    world = World(seed, timing, Weather(delay_s=DELAYS_S["lan"]))
    first = world.add()
    world.found(first)
    for _ in range(nodes - 1):
        world.join(world.add(), first)

    def whole() -> bool:
        progress(min(1.0, world.checks.active / nodes))
        return world.checks.whole()

    one_ring = world.run(PATIENCE_S, whole, 0.05)
    after_s, messages = world.now, world.messages
    kinds = dict(world.sent.most_common())
    world.run(world.now + QUIET_S)
    return JoinFigures(
        nodes=nodes,
        seed=seed,
        one_ring_after_s=round(after_s, 3) if one_ring else None,
        messages_per_join=round(messages / max(1, nodes - 1), 1),
        faults=len(world.checks.faults(world.half)),
        events=world.steps,
        events_per_s=round(world.events_per_s),
        messages=kinds,
    )


@dataclass(frozen=True, slots=True)
class StormFigures:
    """Figures of joins with crashes, restarts and pauses among them, for one seed."""

    seed: int
    joins: int
    crashes: int
    restarts: int
    pauses: int
    one_ring: bool
    faults: int
    digest: int
    events: int


class Storm:
    """Plans one storm from its seed, and runs it."""

    def __init__(self, seed: int, joins: int) -> None:
        weather = Weather(
            delay_s=DELAYS_S["lan"],
            jitter=(seed % 3) * 0.5,
            duplication=0.02 * (seed % 2),
            resets=bool(seed % 2),
        )
        self.world = World(seed, LAN, weather)
        random = self.world.random
        self.counts = {"join": joins, "crash": 0, "restart": 0, "pause": 0}
        span_s = random.choice((0.01, 1.0))
        plan = [(0.0, "join")] * random.choice((0, 3, 20))
        plan += [(1 + random.random() * span_s, "join") for _ in range(joins)]
        plan += [(1 + random.random() * 2, "crash") for _ in range(random.randrange(2, 14))]
        plan += [(1 + random.random() * 2, "pause") for _ in range(random.randrange(4))]
        plan += [(2 + random.random() * 4, "restart") for _ in range(random.randrange(4))]
        self._plan = sorted(plan)
        self._paused: list[tuple[float, Node]] = []

    def run(self) -> bool:
        """Run the storm. Returns whether the peers are one ring at the end."""
        world = self.world
        first = world.add()
        world.found(first)
        for moment, action in self._plan:
            world.run(max(moment, world.now))
            self._do(action, first)
        for moment, node in sorted(self._paused, key=lambda pause: pause[0]):
            world.run(max(moment, world.now))
            if node.alive:
                world.resume(node)
        one_ring = world.run(world.now + PATIENCE_S, self._whole, 0.5)
        world.run(world.now + QUIET_S)
        return one_ring

    def _whole(self) -> bool:
        """Whether the peers are one ring. A joining peer without any contact left gets new ones, as from its seeds."""
        for node in self.world.live():
            if not node.ring.active and not node.ring.leaves and self.world.checks.active:
                join_somewhere(self.world, node)
        return self.world.checks.whole()

    def _do(self, action: str, first: Node) -> None:
        world, random = self.world, self.world.random
        up = [node for node in world.live() if not node.paused and node is not first]
        down = [node for node in world.nodes.values() if not node.alive]
        if action == "join":
            join_somewhere(world, world.add())
        elif action == "restart" and down:
            self.counts[action] += 1
            again = world.restart(random.choice(down), first)
            join_somewhere(world, again)
        elif action == "crash" and up:
            self.counts[action] += 1
            world.crash(random.choice(up))
        elif action == "pause" and up:
            self.counts[action] += 1
            node = random.choice(up)
            world.pause(node)
            self._paused.append((world.now + random.choice((0.5, 3.0, 10.0)), node))


def join_storm(seed: int, joins: int = 50) -> StormFigures:
    """Run the joins. Raises InvariantBrokenError at the first broken invariant."""
    storm = Storm(seed, joins)
    one_ring = storm.run()
    world, counts = storm.world, storm.counts
    return StormFigures(
        seed=seed,
        joins=counts["join"],
        crashes=counts["crash"],
        restarts=counts["restart"],
        pauses=counts["pause"],
        one_ring=one_ring,
        faults=len(world.checks.faults(world.half)),
        digest=world.digest,
        events=world.steps,
    )
