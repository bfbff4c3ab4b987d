"""Each check finds the fault that it is for, and no others."""

from __future__ import annotations

from random import Random

import pytest

from ringmq.experiments.simulator.checks import MOST_TEXTS, Checks, InvariantBrokenError
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Dead, Peer
from ringmq.overlay.core.ring import Ring
from ringmq.overlay.core.timing import LAN

IDS = [Id(1000 * number) for number in range(1, 9)]
GRACE_S = 10.0


class IgnoringApplication:
    """An application that ignores all calls."""

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None: ...
    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return True

    def receive(self, sender: Peer, payload: bytes) -> None: ...
    def undeliverable(self, key: Id, payload: bytes) -> None: ...
    def link_lost(self, peer: Peer) -> None: ...
    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None: ...
    def leaves_changed(self) -> None: ...
    def activity_changed(self, active: bool) -> None: ...


def peer(peer_id: Id) -> Peer:
    return Peer(peer_id, "h", 1, 0)


def ring_of(peer_id: Id, *leaves: Id) -> Ring:
    ring = Ring(peer(peer_id), LAN, IgnoringApplication(), half=8)
    ring.restore([peer(leaf) for leaf in leaves], (), 0.0)
    return ring


class Scene:
    """Eight peers that know each other, and their checks."""

    def __init__(self, *, strict: bool = True, count: int = 8) -> None:
        self.checks = Checks(strict, GRACE_S)
        ids = IDS[:count]
        self.rings = [ring_of(peer_id, *(other for other in ids if other != peer_id)) for peer_id in ids]
        with self.checks.suspended():
            for ring in self.rings:
                self.checks.started(ring)
                self.checks.step(ring, 0.0)

    def step_all(self, now: float = 0.0) -> None:
        for ring in self.rings:
            self.checks.step(ring, now)

    def forget(self, ring: int, *forgotten: int) -> None:
        for other in forgotten:
            self.rings[ring].leaves.remove(IDS[other])


def test_perfect_ring_passes_all_checks() -> None:
    scene = Scene()
    scene.step_all()
    assert scene.checks.whole()
    assert scene.checks.faults(8) == []
    assert scene.checks.active == 8
    assert scene.checks.checked == 16
    for ring in scene.rings:
        assert scene.checks.delivered(ring, ring.me.id)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_small_rings_pass_all_checks(count: int) -> None:
    scene = Scene(count=count)
    scene.step_all()
    assert scene.checks.whole()
    assert scene.checks.faults(8) == []


@pytest.mark.parametrize(("low", "high"), [(0, 1), (3, 4), (7, 0)])
@pytest.mark.parametrize("checked", ["low", "high"])
def test_two_owners_are_found_from_either_side(low: int, high: int, checked: str) -> None:
    scene = Scene()
    scene.forget(low, high)
    with pytest.raises(InvariantBrokenError, match="two owners"):
        scene.checks.step(scene.rings[low if checked == "low" else high], 0.0)


def test_peer_that_passes_over_an_active_peer_is_found() -> None:
    scene = Scene()
    scene.forget(0, 1)
    scene.rings[0].leaves.add(peer(Id(IDS[0] + 2)))  # a made-up neighbour keeps the key ranges disjoint
    with pytest.raises(InvariantBrokenError, match="not one ring"):
        scene.checks.step(scene.rings[0], 0.0)


def test_asymmetry_without_a_failure_is_found_at_once() -> None:
    scene = Scene()
    scene.forget(0, 4)
    with pytest.raises(InvariantBrokenError, match="not symmetric"):
        scene.checks.step(scene.rings[4], 0.0)


def test_asymmetry_after_a_failure_is_found_after_its_grace() -> None:
    scene = Scene()
    scene.checks.stopped(IDS[7])
    scene.forget(0, 4)
    scene.checks.step(scene.rings[4], 1.0)
    scene.checks.step(scene.rings[2], 1.0 + GRACE_S - 0.01)
    with pytest.raises(InvariantBrokenError, match="not symmetric"):
        scene.checks.step(scene.rings[2], 1.0 + GRACE_S)


def test_asymmetry_that_ends_within_its_grace_is_no_break() -> None:
    scene = Scene()
    scene.checks.stopped(IDS[7])
    scene.forget(0, 4)
    scene.checks.step(scene.rings[4], 1.0)
    scene.rings[0].leaves.add(peer(IDS[4]))
    scene.checks.step(scene.rings[0], 5.0)
    scene.checks.step(scene.rings[2], 1.0 + GRACE_S)
    scene.forget(0, 4)
    scene.checks.step(scene.rings[4], 12.0)
    scene.checks.step(scene.rings[2], 12.0 + GRACE_S - 0.01)


def test_delivery_by_a_wrong_peer_is_found() -> None:
    scene = Scene()
    for key in (IDS[2], IDS[2] + 499, IDS[2] + 500, IDS[2] - 499):
        assert scene.checks.delivered(scene.rings[2], Id(key))
    for key in (IDS[2] + 501, IDS[2] - 500):
        with pytest.raises(InvariantBrokenError, match="wrong delivery"):
            scene.checks.delivered(scene.rings[2], Id(key))


def test_delivery_by_an_inactive_peer_is_found() -> None:
    scene = Scene()
    ring = scene.rings[2]
    ring.receive(scene.rings[3].me, Dead(ring.me, ()), 0.0)
    assert not ring.active
    with pytest.raises(InvariantBrokenError, match="inactive"):
        scene.checks.delivered(ring, ring.me.id)


def test_peer_that_became_inactive_is_no_owner() -> None:
    scene = Scene()
    ring = scene.rings[2]
    ring.receive(scene.rings[3].me, Dead(ring.me, ()), 0.0)
    scene.checks.step(ring, 0.0)
    assert scene.checks.active == 7
    assert scene.checks.owner(IDS[2]) == IDS[1]
    assert not scene.checks.whole()
    assert "is not active" in scene.checks.faults(8)[0]


def test_stopped_peer_is_no_owner_and_no_neighbour() -> None:
    scene = Scene()
    scene.checks.stopped(IDS[2])
    assert scene.checks.owner(IDS[2]) == IDS[1]
    assert len(scene.checks.faults(8)) == 7
    assert not scene.checks.whole()
    for ring in (scene.rings[position] for position in (0, 1, 3, 4, 5, 6, 7)):
        ring.leaves.remove(IDS[2])
    assert scene.checks.faults(8) == []
    assert scene.checks.whole()


@pytest.mark.parametrize("forgotten", [1, 7, 4])
def test_faults_name_the_peer_with_the_wrong_leaf_set(forgotten: int) -> None:
    scene = Scene()
    scene.forget(0, forgotten)
    assert scene.checks.faults(8) == [f"{scene.rings[0].me}: 1 missing and 0 too many in its leaf set"]
    assert scene.checks.whole() == (forgotten == 4), "one ring depends on the direct neighbours alone"


def test_breaks_are_counted_and_not_raised_unless_strict() -> None:
    scene = Scene(strict=False)
    for _ in range(2 * MOST_TEXTS):
        assert not scene.checks.delivered(scene.rings[2], IDS[3])
    scene.forget(0, 1)
    scene.checks.step(scene.rings[0], 0.0)
    assert scene.checks.breaks == {"wrong delivery": 2 * MOST_TEXTS, "two owners": 1, "not one ring": 1}
    assert len(scene.checks.break_texts) == MOST_TEXTS


def test_suspended_checks_forget_breaks_and_resume() -> None:
    scene = Scene()
    with scene.checks.suspended():
        scene.checks.delivered(scene.rings[2], IDS[3])
    assert not scene.checks.breaks
    assert scene.checks.break_texts == []
    with pytest.raises(InvariantBrokenError):
        scene.checks.delivered(scene.rings[2], IDS[3])


def test_owner_is_the_nearest_active_peer() -> None:
    scene = Scene()
    for key in range(0, 10_000, 250):
        nearest = min(IDS, key=lambda own: (min((own - key) % SPACE, (key - own) % SPACE), own > key))
        assert scene.checks.owner(Id(key)) == nearest
    assert scene.checks.owner(Id(SPACE - 1)) == IDS[0]
    assert scene.checks.owner(Id(SPACE // 2)) == IDS[7]
    assert Checks(True, GRACE_S).owner(Id(1)) is None


def test_every_active_peer_can_be_picked() -> None:
    scene, random = Scene(), Random(1)
    assert {scene.checks.pick(random) for _ in range(200)} == set(IDS)
