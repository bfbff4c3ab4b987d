"""The virtual world: equal seeds give equal traces, and a core that breaks an invariant is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.experiments.scenarios.building import join_somewhere, joined_ring, settled_ring
from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.world import InvariantBrokenError, Node, World
from ringmq.overlay.core.forwarding import Forwarding
from ringmq.overlay.core.ids import ID_BITS, Id
from ringmq.overlay.core.liveness.failure_detector import FailureDetector
from ringmq.overlay.core.membership import Membership
from ringmq.overlay.core.messages import Grant, Peer, ProbeAck, Route
from ringmq.overlay.core.timing import LAN

ROOT = Path(__file__).resolve().parents[3]
ROUGH = Weather(jitter=0.5, loss=0.02, burst_loss=0.02, duplication=0.02, resets=True)

EVENTFUL = """
from ringmq.experiments.scenarios.building import join_somewhere, settled_ring
from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.world import World
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.timing import LAN

def eventful(seed):
    world = World(seed, LAN, Weather(jitter=.5, loss=.02, burst_loss=.02, duplication=.02, resets=True), strict=False)
    settled_ring(world, 40)
    nodes = list(world.nodes.values())
    world.crash(nodes[3])
    world.pause(nodes[5])
    world.leave(nodes[7])
    join_somewhere(world, world.add())
    for node in nodes[10:30]:
        world.route(node, Id(world.random.getrandbits(128)), b"x")
    world.run(4.0)
    world.resume(nodes[5])
    join_somewhere(world, world.restart(nodes[3], nodes[0]))
    world.run(8.0)
    return world
"""


def lookups(world: World, count: int) -> None:
    for _ in range(count):
        node = world.nodes[world.checks.pick(world.random)]
        world.route(node, Id(world.random.getrandbits(ID_BITS)), b"x")


def whole_again(world: World, patience_s: float = 60.0) -> bool:
    return world.run(world.now + patience_s, world.checks.whole, 0.5)


# Traces


def test_the_same_seed_gives_the_same_trace() -> None:
    space: dict[str, Callable[[int], World]] = {}
    exec(EVENTFUL, space)
    first, again, other_seed = (space["eventful"](seed) for seed in (1, 1, 2))
    assert first.steps > 1000
    assert (first.digest, first.steps, first.sent, first.random.random()) == (
        again.digest,
        again.steps,
        again.sent,
        again.random.random(),
    )
    assert first.digest != other_seed.digest


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    space: dict[str, Callable[[int], World]] = {}
    exec(EVENTFUL, space)
    code = f"{EVENTFUL}\nworld = eventful(1)\nprint(world.digest, world.steps, world.random.random())"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("0", "1", "4242")
    ]
    world = space["eventful"](1)
    expected = f"{world.digest} {world.steps} {world.random.random()}\n"
    assert [process.communicate(timeout=60)[0] for process in running] == [expected] * 3


def test_one_more_or_later_event_changes_the_digest() -> None:
    worlds = [World(1, LAN) for _ in range(3)]
    for world in worlds:
        settled_ring(world, 5)
    worlds[1].route(worlds[1].live()[0], Id(0), b"x")
    worlds[2].network = type(worlds[2].network)(Weather(jitter=0.01), worlds[2].random)
    for world in worlds:
        world.run(2.0)
    assert len({world.digest for world in worlds}) == 3


# Broken cores are found


def activate_at_once(self: Membership, granter: Peer, grant: Grant) -> None:
    """Become active without any acknowledgement, the fault of concurrent joins."""
    self._state.leaves.fill(grant.leaves)
    self._changed(None, None)
    self._activate()


def grow(world: World) -> None:
    joined_ring(world, 20)


def test_correct_core_passes_all_scenes_below() -> None:
    for scene in (grow, grow_with_lookups, crash_some, lookups_in_a_settled_ring):
        scene(World(1, LAN))


def grow_with_lookups(world: World) -> None:
    world.found(world.add())
    for _ in range(12):
        join_somewhere(world, world.add())
        for _ in range(20):
            lookups(world, 5)
            world.run(world.now + 0.01)
    assert whole_again(world)


def crash_some(world: World) -> None:
    settled_ring(world, 40)
    world.run(1.0)
    for node in world.live()[::5]:
        world.crash(node)
    for _ in range(100):
        lookups(world, 3)
        world.run(world.now + 0.1)
    assert whole_again(world)
    world.run(world.now + 20)


def lookups_in_a_settled_ring(world: World) -> None:
    settled_ring(world, 40)
    lookups(world, 200)
    world.run(5.0)


def test_joining_peer_that_is_active_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "on_grant", activate_at_once)
    with pytest.raises(InvariantBrokenError, match=r"two owners|not one ring|not symmetric"):
        grow(World(1, LAN))


def test_owner_that_drops_its_neighbour_when_it_becomes_active_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    activate = Membership._activate

    def careless(self: Membership) -> None:
        successor = self._state.leaves.successor
        if successor is not None and len(self._state.leaves) > 3:
            self._state.leaves.remove(successor.id)
        activate(self)

    monkeypatch.setattr(Membership, "_activate", careless)
    with pytest.raises(InvariantBrokenError, match="two owners"):
        grow(World(1, LAN))


def test_delivery_of_a_key_that_the_peer_does_not_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_advance", lambda self, route, avoided=(): self._arrive(route))
    with pytest.raises(InvariantBrokenError, match="wrong delivery"):
        lookups_in_a_settled_ring(World(1, LAN))


def test_delivery_by_a_peer_that_is_not_active_yet_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_hold", Forwarding._arrive)
    with pytest.raises(InvariantBrokenError, match="delivered by an inactive peer"):
        grow_with_lookups(World(1, LAN))


def test_delivery_in_the_place_of_a_suspect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner lives, but its acknowledgement takes longer than the timeout of a hop."""
    monkeypatch.setattr(Forwarding, "_hold", Forwarding._arrive)
    world = World(1, LAN, Weather(delay_s=(0.16, 0.18)))
    with pytest.raises(InvariantBrokenError, match="wrong delivery"):
        lookups_in_a_settled_ring(world)
    monkeypatch.undo()
    lookups_in_a_settled_ring(World(1, LAN, Weather(delay_s=(0.16, 0.18))))


def test_peer_that_acknowledges_a_probe_without_adding_its_sender_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    probed = Membership.on_probe

    def forgetful(self: Membership, sender: Peer, probe: object) -> None:
        if self._state.me.id & 3:
            probed(self, sender, probe)  # type: ignore[arg-type]
        else:
            self._state.post(sender, ProbeAck(self._state.leaves.peers, self.gate.renew(sender)))

    monkeypatch.setattr(Membership, "on_probe", forgetful)
    with pytest.raises(InvariantBrokenError, match=r"not symmetric|two owners"):
        grow(World(1, LAN))


def test_live_peer_that_is_removed_for_good_is_a_lasting_asymmetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "_add_heard", lambda self, peer: None)
    world = World(1, LAN)
    settled_ring(world, 40)
    nodes = sorted(world.live(), key=lambda node: node.peer.id)
    world.run(1.0)
    world.crash(nodes[30])
    victim, forgetful = nodes[3], nodes[8]
    forgetful.ring.leaves.remove(victim.peer.id)
    victim.ring._state.version += 1
    world.run(1.0 + LAN.stabilise_s)
    world.crash(nodes[20])
    with pytest.raises(InvariantBrokenError, match=f"not symmetric: {victim.peer} has {forgetful.peer}"):
        world.run(world.now + 2 * LAN.stabilise_s)


def test_ring_that_never_detects_deaths_does_not_become_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailureDetector, "_declare_dead", lambda self, suspicion: None)
    world = World(1, LAN, strict=False)
    settled_ring(world, 20)
    world.crash(world.live()[0])
    assert not whole_again(world, 30.0)
    assert world.checks.faults(world.half)


def trace_of_a_wrong_delivery() -> str:
    """Peer 1 sends peer 2 a message for peer 20, and peer 2 delivers it."""
    world = World(77, LAN)
    settled_ring(world, 40)
    world.run(1.0)
    nodes = world.live()
    nodes[1].ring._state.post(nodes[2].peer, Route(nodes[1].peer, 1, nodes[20].peer.id, 0, b"x"))
    world._post(nodes[1])
    with pytest.raises(InvariantBrokenError) as caught:
        world.run(5.0)
    return "\n".join(caught.value.__notes__)


def test_failure_has_a_note_with_its_seed_and_the_last_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_advance", lambda self, route, avoided=(): self._arrive(route))
    trace = trace_of_a_wrong_delivery()
    assert trace.startswith("seed 77, at 1.0")
    lines = trace.splitlines()
    assert 10 < len(lines) <= 61
    assert any("<- clock: Tick" in line for line in lines)
    assert any(": Heartbeat()" in line for line in lines)
    assert trace_of_a_wrong_delivery() == trace, "the seed reproduces it"


def test_last_event_of_the_trace_is_the_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_advance", lambda self, route, avoided=(): self._arrive(route))
    last = trace_of_a_wrong_delivery().splitlines()[-1]
    assert "peer 2 <- " in last
    assert ": Route(" in last


# Failures and repairs


def pair(weather: Weather | None = None) -> tuple[World, Node, Node]:
    world = World(1, LAN, weather, strict=False)
    settled_ring(world, 2)
    first, second = world.live()
    return world, first, second


def test_silent_crash_is_detected_by_silence() -> None:
    world, survivor, victim = pair()
    world.run(1.0)
    world.crash(victim)
    world.run(1.0 + LAN.silence_s)
    assert len(survivor.ring.leaves) == 1
    world.run(1.0 + LAN.silence_s + LAN.heartbeat_s + LAN.fastest_verdict_s)
    assert len(survivor.ring.leaves) == 0
    assert world.live() == [survivor]


def test_crash_with_resets_is_detected_at_once() -> None:
    world, survivor, victim = pair(Weather(resets=True))
    world.run(1.0)
    world.crash(victim)
    world.run(1.0 + 0.02)
    assert len(survivor.ring.leaves) == 0


def test_sender_to_a_crashed_peer_is_notified_by_a_reset() -> None:
    world = World(1, LAN, Weather(resets=True), strict=False)
    settled_ring(world, 60)
    world.run(1.0)
    nodes = sorted(world.live(), key=lambda node: node.peer.id)
    world.crash(nodes[30])
    nodes[0].ring.send(nodes[30].peer, b"x")
    world._post(nodes[0])
    assert nodes[30].peer.id not in nodes[0].ring.leaves
    world.run(1.1)
    assert nodes[0].ring.failure_detector.considers_dead(nodes[30].peer)


def test_paused_peer_gets_its_messages_when_it_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[bytes] = []
    monkeypatch.setattr(Node, "receive", lambda self, sender, payload: got.append(payload))
    world, sender, paused = pair()
    world.pause(paused)
    sender.ring.send(paused.peer, b"1")
    sender.ring.send(paused.peer, b"2")
    world._post(sender)
    world.run(0.5)
    assert got == []
    assert world.checks.active == 1
    world.resume(paused)
    world.run(0.6)
    assert got == [b"1", b"2"]
    assert whole_again(world)


def test_peer_notices_a_long_pause_before_it_serves_keys() -> None:
    world = World(1, LAN, strict=False)
    settled_ring(world, 10)
    sender, paused = world.live()[:2]
    delivered: list[tuple[Node, bool]] = []
    world.on_delivery = lambda node, route: delivered.append((node, node.ring.active))
    world.run(1.0)
    world.pause(paused)
    world.route(sender, paused.peer.id, b"x")
    world.run(1.0 + LAN.fence_s + 0.05)
    world.resume(paused)
    assert not paused.ring.active
    world.run(3.0)
    assert delivered == [(paused, True)]


def test_peer_of_a_pair_still_owns_its_keys_after_a_short_pause() -> None:
    world, sender, paused = pair()
    world.checks.strict = True
    world.run(1.0)
    paused.ring.tick(world.now)
    world.pause(paused)
    world.route(sender, paused.peer.id, b"x")
    world.run(1.0 + LAN.fence_s - 0.05)
    world.resume(paused)
    world.run(5.0)
    assert not paused.ring.statistics().counters["pauses"], "the pause was shorter than fence_s"


def test_good_bye_removes_a_peer_from_leaf_sets_at_once() -> None:
    world, remaining, leaving = pair()
    world.leave(leaving)
    world.run(0.02)
    assert len(remaining.ring.leaves) == 0
    assert leaving not in world.live()


def test_restarted_peer_has_its_id_and_a_later_boot() -> None:
    world, contact, crashed = pair()
    world.crash(crashed)
    again = world.restart(crashed, contact)
    assert again.peer.id == crashed.peer.id
    assert again.peer.boot > crashed.peer.boot
    assert again.peer.host != crashed.peer.host
    assert whole_again(world)
    assert contact.ring.leaves.get(again.peer.id) == again.peer
    with pytest.raises(AssertionError, match="is alive"):
        world.add(again.peer.id)


def test_split_ring_becomes_two_rings_and_one_again() -> None:
    world = World(1, LAN, strict=False)
    settled_ring(world, 10)
    world.network.split(dict.fromkeys(list(world.nodes)[:5], 1))
    world.run(20.0)
    assert {len(node.ring.leaves) for node in world.live()} == {4}
    assert world.network.lost > 0
    world.network.heal()
    assert whole_again(world)


def test_two_rings_become_one_when_two_of_their_peers_meet() -> None:
    world = World(1, LAN, strict=False)
    for first in (world.add(), world.add()):
        world.found(first)
        for _ in range(4):
            world.join(world.add(), first)
        world.run(world.now + 10.0)
    nodes = list(world.nodes.values())
    assert {len(node.ring.leaves) for node in nodes} == {4}
    world.meet(nodes[2], nodes[7])
    assert whole_again(world)


def test_two_rings_that_are_linked_by_routing_tables_alone_become_one() -> None:
    world = World(1, LAN, strict=False)
    peers = [world.add().peer for _ in range(20)]
    for ring in (peers[:10], peers[10:]):
        for peer in ring:
            world.settle(world.nodes[peer.id], [other for other in ring if other != peer], peers)
    assert whole_again(world, 20 * LAN.table_s)


# Time and figures


def test_run_advances_to_the_end_or_until_done() -> None:
    world, _, _ = pair()
    assert world.run(1.5)
    assert world.now == 1.5
    assert world.run(10.0, lambda: world.now >= 3.0, 0.25)
    assert world.now == 3.0
    assert not world.run(4.0, lambda: False, 0.3)
    assert world.now == 4.0


def test_on_change_is_called_once_for_each_change() -> None:
    world = World(1, LAN)
    changes: list[tuple[Node, bool, int]] = []
    world.on_change = lambda node: changes.append((node, node.ring.active, len(node.ring.leaves)))
    first, second = world.add(), world.add()
    world.found(first)
    assert changes == [(first, True, 0)]
    world.join(second, first)
    world.run(1.0)
    assert (first, True, 1) in changes
    assert changes[-1] == (second, True, 1)
    count = len(changes)
    world.run(5.0)
    assert len(changes) == count


def test_messages_are_counted_by_their_kind() -> None:
    world = World(1, LAN)
    first, second = world.add(), world.add()
    world.found(first)
    world.join(second, first)
    world.run(1.0)
    world.route(first, second.peer.id, b"x")
    world.run(2.0)
    assert world.sent["Join"] == world.sent["Grant"] == world.sent["Joined"] == world.sent["Lookup"] == 1
    assert world.sent["Heartbeat"] >= 4
    assert world.messages == sum(world.sent.values()) == first.sent + second.sent
    assert world.events_per_s > 0


def test_message_that_is_given_up_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailureDetector, "_declare_dead", lambda self, suspicion: None)
    world, sender, unreachable = pair()
    world.network.split({unreachable.peer.id: 1})
    assert world.route(sender, unreachable.peer.id, b"x")
    world.run(LAN.receipt_s * LAN.receipt_tries + 1)
    assert sender.undelivered == 1


# Sending takes time


class Arrivals:
    """Times of arrival of parcels, by payload."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: dict[bytes, float] = {}
        monkeypatch.setattr(Node, "receive", lambda node, sender, payload: self._take(node, payload))

    def _take(self, node: Node, payload: bytes) -> None:
        self.at[payload] = round(node.world.now, 9)


def two_peers(**weather: float) -> tuple[World, Node, Node]:
    world = World(1, LAN, Weather(delay_s=(0.01, 0.01), **weather))  # type: ignore[arg-type]
    settled_ring(world, 2)
    first, second = world.live()
    return world, first, second


def test_parcels_of_a_peer_leave_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = Arrivals(monkeypatch)
    world, first, second = two_peers(gap_s=0.002)
    for word in (b"a", b"b", b"c"):
        first.ring.send(second.peer, word)
    second.ring.send(first.peer, b"mine")
    world._after(first)
    world._after(second)
    world.run(0.005)
    first.ring.send(second.peer, b"behind")
    world._after(first)
    world.run(0.02)
    first.ring.send(second.peer, b"later")
    world._after(first)
    world.run(0.1)
    assert arrivals.at == {
        b"a": 0.012, b"b": 0.014, b"c": 0.016, b"mine": 0.012, b"behind": 0.018, b"later": 0.032,
    }  # fmt: skip


def test_large_parcels_take_longer_and_the_rings_own_messages_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = Arrivals(monkeypatch)
    world, sender, receiver = two_peers(uplink_bits_per_s=8_000.0)
    large = bytes(100)
    sender.ring.send(receiver.peer, large)
    sender.ring.send(receiver.peer, b"!")
    world.route(sender, receiver.peer.id, b"routed")
    delivered: list[float] = []
    world.on_delivery = lambda node, route: delivered.append(world.now)
    world.run(1.0)
    assert arrivals.at == {large: 0.11, b"!": 0.111}
    assert delivered == [0.01]


def test_all_parcels_leave_at_once_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = Arrivals(monkeypatch)
    world, sender, receiver = two_peers()
    for word in (b"a", b"b"):
        sender.ring.send(receiver.peer, word)
    world._after(sender)
    world.run(0.1)
    assert set(arrivals.at.values()) == {0.01}
