"""Each check fires at what it is for, and only then."""

from __future__ import annotations

from random import Random

import pytest

from ringmq.experiments.simulator.checks import TOLD, Checks, InvariantBrokenError
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Dead, Peer
from ringmq.overlay.core.ring import Ring
from ringmq.overlay.core.timing import LAN

POINTS = [Id(1000 * number) for number in range(1, 9)]
GRACE_S = 10.0


class Nobody:
    """An application that does not listen."""

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None: ...
    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return True

    def receive(self, sender: Peer, payload: bytes) -> None: ...
    def undeliverable(self, key: Id, payload: bytes) -> None: ...
    def link_lost(self, peer: Peer) -> None: ...
    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None: ...
    def activity_changed(self, active: bool) -> None: ...


def peer(point: Id) -> Peer:
    return Peer(point, "h", 1, 0)


def ring_of(point: Id, *leaves: Id) -> Ring:
    ring = Ring(peer(point), LAN, Nobody(), half=8)
    ring.restore([peer(leaf) for leaf in leaves], (), 0.0)
    return ring


class Scene:
    """Eight peers that know each other, under the eyes of the checks."""

    def __init__(self, *, strict: bool = True, count: int = 8) -> None:
        self.checks = Checks(strict, GRACE_S)
        points = POINTS[:count]
        self.rings = [ring_of(point, *(other for other in points if other != point)) for point in points]
        with self.checks.looking_away():
            for ring in self.rings:
                self.checks.started(ring)
                self.checks.step(ring, 0.0)

    def step_all(self, now: float = 0.0) -> None:
        for ring in self.rings:
            self.checks.step(ring, now)

    def lapse(self, ring: int, *forgotten: int) -> None:
        for other in forgotten:
            self.rings[ring].leaves.remove(POINTS[other])


def test_a_perfect_ring_passes() -> None:
    scene = Scene()
    scene.step_all()
    assert scene.checks.whole()
    assert scene.checks.faults(8) == []
    assert scene.checks.active == 8
    assert scene.checks.checked == 16
    for ring in scene.rings:
        assert scene.checks.delivered(ring, ring.me.id)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_small_rings_are_rings(count: int) -> None:
    scene = Scene(count=count)
    scene.step_all()
    assert scene.checks.whole()
    assert scene.checks.faults(8) == []


@pytest.mark.parametrize(("low", "high"), [(0, 1), (3, 4), (7, 0)])
@pytest.mark.parametrize("looked_at", ["low", "high"])
def test_two_owners_are_seen_from_either_side(low: int, high: int, looked_at: str) -> None:
    scene = Scene()
    scene.lapse(low, high)
    with pytest.raises(InvariantBrokenError, match="two owners"):
        scene.checks.step(scene.rings[low if looked_at == "low" else high], 0.0)


def test_one_who_passes_over_an_active_peer_is_seen() -> None:
    scene = Scene()
    scene.lapse(0, 1)
    scene.rings[0].leaves.add(peer(Id(POINTS[0] + 2)))  # a phantom keeps the keys apart
    with pytest.raises(InvariantBrokenError, match="not one ring"):
        scene.checks.step(scene.rings[0], 0.0)


def test_an_asymmetry_without_a_failure_is_seen_at_once() -> None:
    scene = Scene()
    scene.lapse(0, 4)
    with pytest.raises(InvariantBrokenError, match="not symmetric"):
        scene.checks.step(scene.rings[4], 0.0)


def test_after_a_failure_an_asymmetry_has_its_time() -> None:
    scene = Scene()
    scene.checks.stopped(POINTS[7])
    scene.lapse(0, 4)
    scene.checks.step(scene.rings[4], 1.0)
    scene.checks.step(scene.rings[2], 1.0 + GRACE_S - 0.01)
    with pytest.raises(InvariantBrokenError, match="not symmetric"):
        scene.checks.step(scene.rings[2], 1.0 + GRACE_S)


def test_an_asymmetry_that_ends_in_time_is_none() -> None:
    scene = Scene()
    scene.checks.stopped(POINTS[7])
    scene.lapse(0, 4)
    scene.checks.step(scene.rings[4], 1.0)
    scene.rings[0].leaves.add(peer(POINTS[4]))
    scene.checks.step(scene.rings[0], 5.0)
    scene.checks.step(scene.rings[2], 1.0 + GRACE_S)
    scene.lapse(0, 4)
    scene.checks.step(scene.rings[4], 12.0)
    scene.checks.step(scene.rings[2], 12.0 + GRACE_S - 0.01)


def test_deliveries_by_the_wrong_peer_are_seen() -> None:
    scene = Scene()
    for key in (POINTS[2], POINTS[2] + 499, POINTS[2] + 500, POINTS[2] - 499):
        assert scene.checks.delivered(scene.rings[2], Id(key))
    for key in (POINTS[2] + 501, POINTS[2] - 500):
        with pytest.raises(InvariantBrokenError, match="wrong delivery"):
            scene.checks.delivered(scene.rings[2], Id(key))


def test_deliveries_by_an_inactive_peer_are_seen() -> None:
    scene = Scene()
    ring = scene.rings[2]
    ring.receive(scene.rings[3].me, Dead(ring.me, ()), 0.0)
    assert not ring.active
    with pytest.raises(InvariantBrokenError, match="inactive"):
        scene.checks.delivered(ring, ring.me.id)


def test_one_who_became_inactive_is_no_owner_any_more() -> None:
    scene = Scene()
    ring = scene.rings[2]
    ring.receive(scene.rings[3].me, Dead(ring.me, ()), 0.0)
    scene.checks.step(ring, 0.0)
    assert scene.checks.active == 7
    assert scene.checks.owner(POINTS[2]) == POINTS[1]
    assert not scene.checks.whole()
    assert "is not active" in scene.checks.faults(8)[0]


def test_the_stopped_are_out_of_everything() -> None:
    scene = Scene()
    scene.checks.stopped(POINTS[2])
    assert scene.checks.owner(POINTS[2]) == POINTS[1]
    assert len(scene.checks.faults(8)) == 7
    assert not scene.checks.whole()
    for ring in (scene.rings[place] for place in (0, 1, 3, 4, 5, 6, 7)):
        ring.leaves.remove(POINTS[2])
    assert scene.checks.faults(8) == []
    assert scene.checks.whole()


@pytest.mark.parametrize("forgotten", [1, 7, 4])
def test_faults_are_told_where_they_are(forgotten: int) -> None:
    scene = Scene()
    scene.lapse(0, forgotten)
    assert scene.checks.faults(8) == [f"{scene.rings[0].me}: 1 missing and 0 too many in its leaf set"]
    assert scene.checks.whole() == (forgotten == 4), "only the neighbours make it one ring"


def test_where_breaks_are_counted_nothing_is_raised() -> None:
    scene = Scene(strict=False)
    for _ in range(2 * TOLD):
        assert not scene.checks.delivered(scene.rings[2], POINTS[3])
    scene.lapse(0, 1)
    scene.checks.step(scene.rings[0], 0.0)
    assert scene.checks.breaks == {"wrong delivery": 2 * TOLD, "two owners": 1, "not one ring": 1}
    assert len(scene.checks.told) == TOLD


def test_looking_away_forgets_and_ends() -> None:
    scene = Scene()
    with scene.checks.looking_away():
        scene.checks.delivered(scene.rings[2], POINTS[3])
    assert not scene.checks.breaks
    assert scene.checks.told == []
    with pytest.raises(InvariantBrokenError):
        scene.checks.delivered(scene.rings[2], POINTS[3])


def test_the_owner_is_the_nearest_active() -> None:
    scene = Scene()
    for key in range(0, 10_000, 250):
        nearest = min(POINTS, key=lambda point: (min((point - key) % SPACE, (key - point) % SPACE), point > key))
        assert scene.checks.owner(Id(key)) == nearest
    assert scene.checks.owner(Id(SPACE - 1)) == POINTS[0]
    assert scene.checks.owner(Id(SPACE // 2)) == POINTS[7]
    assert Checks(True, GRACE_S).owner(Id(1)) is None


def test_any_active_peer_may_be_picked() -> None:
    scene, random = Scene(), Random(1)
    assert {scene.checks.pick(random) for _ in range(200)} == set(POINTS)
