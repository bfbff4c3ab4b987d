"""The virtual world: the same seed gives the same story, and a core that breaks a promise is caught."""

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
from ringmq.overlay.core.failure_detector import FailureDetector
from ringmq.overlay.core.forwarding import Forwarding
from ringmq.overlay.core.ids import ID_BITS, Id
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


# The same story


def test_the_same_seed_gives_the_same_story() -> None:
    space: dict[str, Callable[[int], World]] = {}
    exec(EVENTFUL, space)
    one, other, third = (space["eventful"](seed) for seed in (1, 1, 2))
    assert one.steps > 1000
    assert (one.digest, one.steps, one.sent, one.random.random()) == (
        other.digest,
        other.steps,
        other.sent,
        other.random.random(),
    )
    assert one.digest != third.digest


def test_the_same_seed_gives_the_same_story_in_another_process() -> None:
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


def test_one_event_more_or_later_is_another_story() -> None:
    worlds = [World(1, LAN) for _ in range(3)]
    for world in worlds:
        settled_ring(world, 5)
    worlds[1].route(worlds[1].live()[0], Id(0), b"x")
    worlds[2].network = type(worlds[2].network)(Weather(jitter=0.01), worlds[2].random)
    for world in worlds:
        world.run(2.0)
    assert len({world.digest for world in worlds}) == 3


# A broken core is caught


def activate_at_once(self: Membership, granter: Peer, grant: Grant) -> None:
    """The trap of concurrent joins: nobody has acknowledged."""
    self._state.leaves.fill(grant.leaves)
    self._changed(None, None)
    self._activate()


def grow(world: World) -> None:
    joined_ring(world, 20)


def test_the_core_as_it_is_does_all_that_follows() -> None:
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


def test_a_joiner_that_is_active_before_its_leaf_set_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "on_grant", activate_at_once)
    with pytest.raises(InvariantBrokenError, match=r"two owners|not one ring|not symmetric"):
        grow(World(1, LAN))


def test_an_owner_that_is_active_without_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """It drops its clockwise neighbour in the moment of becoming active."""
    activate = Membership._activate

    def careless(self: Membership) -> None:
        successor = self._state.leaves.successor
        if successor is not None and len(self._state.leaves) > 3:
            self._state.leaves.remove(successor.id)
        activate(self)

    monkeypatch.setattr(Membership, "_activate", careless)
    with pytest.raises(InvariantBrokenError, match="two owners"):
        grow(World(1, LAN))


def test_a_peer_that_delivers_what_it_does_not_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_advance", lambda self, route, avoided=(): self._arrive(route))
    with pytest.raises(InvariantBrokenError, match="wrong delivery"):
        lookups_in_a_settled_ring(World(1, LAN))


def test_a_peer_that_delivers_before_it_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_hold", Forwarding._arrive)
    with pytest.raises(InvariantBrokenError, match="delivered by an inactive peer"):
        grow_with_lookups(World(1, LAN))


def test_a_peer_that_delivers_for_a_suspect_without_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner lives and is slow to acknowledge: its acknowledgement takes longer than a hop may."""
    monkeypatch.setattr(Forwarding, "_hold", Forwarding._arrive)
    world = World(1, LAN, Weather(delay_s=(0.16, 0.18)))
    with pytest.raises(InvariantBrokenError, match="wrong delivery"):
        lookups_in_a_settled_ring(world)
    monkeypatch.undo()
    lookups_in_a_settled_ring(World(1, LAN, Weather(delay_s=(0.16, 0.18))))


def test_a_peer_that_acknowledges_without_taking_in(monkeypatch: pytest.MonkeyPatch) -> None:
    probed = Membership.on_probe

    def forgetful(self: Membership, sender: Peer, probe: object) -> None:
        if self._state.me.id & 3:
            probed(self, sender, probe)  # type: ignore[arg-type]
        else:
            self._state.post(sender, ProbeAck(self._state.leaves.peers, self.gate.renew(sender)))

    monkeypatch.setattr(Membership, "on_probe", forgetful)
    with pytest.raises(InvariantBrokenError, match=r"not symmetric|two owners"):
        grow(World(1, LAN))


def test_a_live_peer_struck_off_for_good_is_a_lasting_asymmetry(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_peer_that_never_finds_the_dead_does_not_become_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailureDetector, "_declare_dead", lambda self, suspicion: None)
    world = World(1, LAN, strict=False)
    settled_ring(world, 20)
    world.crash(world.live()[0])
    assert not whole_again(world, 30.0)
    assert world.checks.faults(world.half)


def story_of_a_stray() -> str:
    """Peer 1 hands peer 2 a message for peer 20, which it takes for its own."""
    world = World(77, LAN)
    settled_ring(world, 40)
    world.run(1.0)
    nodes = world.live()
    nodes[1].ring._state.post(nodes[2].peer, Route(nodes[1].peer, 1, nodes[20].peer.id, 0, b"x"))
    world._post(nodes[1])
    with pytest.raises(InvariantBrokenError) as caught:
        world.run(5.0)
    return "\n".join(caught.value.__notes__)


def test_a_failure_tells_its_seed_and_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_advance", lambda self, route, avoided=(): self._arrive(route))
    story = story_of_a_stray()
    assert story.startswith("seed 77, at 1.0")
    lines = story.splitlines()
    assert 10 < len(lines) <= 61
    assert any("<- clock: Tick" in line for line in lines)
    assert any(": Heartbeat()" in line for line in lines)
    assert story_of_a_stray() == story, "the seed tells it again"


def test_a_failure_tells_the_event_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "_advance", lambda self, route, avoided=(): self._arrive(route))
    last = story_of_a_stray().splitlines()[-1]
    assert "peer 2 <- " in last
    assert ": Route(" in last


# What can be done to peers


def pair(weather: Weather | None = None) -> tuple[World, Node, Node]:
    world = World(1, LAN, weather, strict=False)
    settled_ring(world, 2)
    one, other = world.live()
    return world, one, other


def test_a_silent_crash_is_found_by_silence() -> None:
    world, one, other = pair()
    world.run(1.0)
    world.crash(other)
    world.run(1.0 + LAN.silence_s)
    assert len(one.ring.leaves) == 1
    world.run(1.0 + LAN.silence_s + LAN.heartbeat_s + LAN.fastest_verdict_s)
    assert len(one.ring.leaves) == 0
    assert world.live() == [one]


def test_a_crash_with_resets_is_told_at_once() -> None:
    world, one, other = pair(Weather(resets=True))
    world.run(1.0)
    world.crash(other)
    world.run(1.0 + 0.02)
    assert len(one.ring.leaves) == 0


def test_who_sends_to_a_crashed_peer_is_told_by_a_reset() -> None:
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


def test_a_paused_peer_gets_its_messages_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[bytes] = []
    monkeypatch.setattr(Node, "receive", lambda self, sender, payload: got.append(payload))
    world, one, other = pair()
    world.pause(other)
    one.ring.send(other.peer, b"1")
    one.ring.send(other.peer, b"2")
    world._post(one)
    world.run(0.5)
    assert got == []
    assert world.checks.active == 1
    world.resume(other)
    world.run(0.6)
    assert got == [b"1", b"2"]
    assert whole_again(world)


def test_a_long_pause_is_noticed_before_anything_is_served() -> None:
    world = World(1, LAN, strict=False)
    settled_ring(world, 10)
    one, other = world.live()[:2]
    delivered: list[tuple[Node, bool]] = []
    world.on_delivery = lambda node, route: delivered.append((node, node.ring.active))
    world.run(1.0)
    world.pause(other)
    world.route(one, other.peer.id, b"x")
    world.run(1.0 + LAN.fence_s + 0.05)
    world.resume(other)
    assert not other.ring.active
    world.run(3.0)
    assert delivered == [(other, True)]


def test_of_two_the_one_that_paused_shortly_is_still_an_owner() -> None:
    world, one, other = pair()
    world.checks.strict = True
    world.run(1.0)
    other.ring.tick(world.now)
    world.pause(other)
    world.route(one, other.peer.id, b"x")
    world.run(1.0 + LAN.fence_s - 0.05)
    world.resume(other)
    world.run(5.0)
    assert not other.ring.statistics().counters["pauses"], "it was shorter than that"


def test_a_farewell_is_known_at_once() -> None:
    world, one, other = pair()
    world.leave(other)
    world.run(0.02)
    assert len(one.ring.leaves) == 0
    assert other not in world.live()


def test_a_restarted_peer_has_its_id_and_a_later_boot() -> None:
    world, one, other = pair()
    world.crash(other)
    again = world.restart(other, one)
    assert again.peer.id == other.peer.id
    assert again.peer.boot > other.peer.boot
    assert again.peer.host != other.peer.host
    assert whole_again(world)
    assert one.ring.leaves.get(again.peer.id) == again.peer
    with pytest.raises(AssertionError, match="is alive"):
        world.add(again.peer.id)


def test_a_split_ring_becomes_two_and_one_again() -> None:
    world = World(1, LAN, strict=False)
    settled_ring(world, 10)
    world.network.split(dict.fromkeys(list(world.nodes)[:5], 1))
    world.run(20.0)
    assert {len(node.ring.leaves) for node in world.live()} == {4}
    assert world.network.lost > 0
    world.network.heal()
    assert whole_again(world)


def test_peers_that_meet_from_two_rings_make_one_of_them() -> None:
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


def test_two_rings_that_know_of_each_other_only_by_their_tables_become_one() -> None:
    world = World(1, LAN, strict=False)
    peers = [world.add().peer for _ in range(20)]
    for ring in (peers[:10], peers[10:]):
        for peer in ring:
            world.settle(world.nodes[peer.id], [other for other in ring if other != peer], peers)
    assert whole_again(world, 20 * LAN.table_s)


# Time and figures


def test_time_passes_to_the_end_or_until_done() -> None:
    world, _, _ = pair()
    assert world.run(1.5)
    assert world.now == 1.5
    assert world.run(10.0, lambda: world.now >= 3.0, 0.25)
    assert world.now == 3.0
    assert not world.run(4.0, lambda: False, 0.3)
    assert world.now == 4.0


def test_changes_are_told_once_each() -> None:
    world = World(1, LAN)
    told: list[tuple[Node, bool, int]] = []
    world.on_change = lambda node: told.append((node, node.ring.active, len(node.ring.leaves)))
    first, second = world.add(), world.add()
    world.found(first)
    assert told == [(first, True, 0)]
    world.join(second, first)
    world.run(1.0)
    assert (first, True, 1) in told
    assert told[-1] == (second, True, 1)
    count = len(told)
    world.run(5.0)
    assert len(told) == count


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


def test_a_message_given_up_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailureDetector, "_declare_dead", lambda self, suspicion: None)
    world, one, other = pair()
    world.network.split({other.peer.id: 1})
    assert world.route(one, other.peer.id, b"x")
    world.run(LAN.receipt_s * LAN.receipt_tries + 1)
    assert one.undelivered == 1


# Sending takes time


class Arrivals:
    """When parcels come to a peer, by what they say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: dict[bytes, float] = {}
        monkeypatch.setattr(Node, "receive", lambda node, sender, payload: self._take(node, payload))

    def _take(self, node: Node, payload: bytes) -> None:
        self.at[payload] = round(node.world.now, 9)


def two_peers(**weather: float) -> tuple[World, Node, Node]:
    world = World(1, LAN, Weather(delay_s=(0.01, 0.01), **weather))  # type: ignore[arg-type]
    settled_ring(world, 2)
    one, other = world.live()
    return world, one, other


def test_parcels_of_one_peer_leave_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = Arrivals(monkeypatch)
    world, one, other = two_peers(gap_s=0.002)
    for word in (b"a", b"b", b"c"):
        one.ring.send(other.peer, word)
    other.ring.send(one.peer, b"mine")
    world._after(one)
    world._after(other)
    world.run(0.005)
    one.ring.send(other.peer, b"behind")
    world._after(one)
    world.run(0.02)
    one.ring.send(other.peer, b"later")
    world._after(one)
    world.run(0.1)
    assert arrivals.at == {
        b"a": 0.012, b"b": 0.014, b"c": 0.016, b"mine": 0.012, b"behind": 0.018, b"later": 0.032,
    }  # fmt: skip


def test_large_parcels_take_longer_and_the_rings_own_messages_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = Arrivals(monkeypatch)
    world, one, other = two_peers(uplink_bits_per_s=8_000.0)
    large = bytes(100)
    one.ring.send(other.peer, large)
    one.ring.send(other.peer, b"!")
    world.route(one, other.peer.id, b"routed")
    delivered: list[float] = []
    world.on_delivery = lambda node, route: delivered.append(world.now)
    world.run(1.0)
    assert arrivals.at == {large: 0.11, b"!": 0.111}
    assert delivered == [0.01]


def test_without_a_gap_all_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = Arrivals(monkeypatch)
    world, one, other = two_peers()
    for word in (b"a", b"b"):
        one.ring.send(other.peer, word)
    world._after(one)
    world.run(0.1)
    assert set(arrivals.at.values()) == {0.01}
