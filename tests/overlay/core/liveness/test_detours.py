"""Detours around broken pairs: ring cores on one clock, over a network in which pairs are cut."""

from __future__ import annotations

from itertools import permutations

import pytest

from ringmq.overlay.core.codec import wrap
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.liveness.detours import MAX_SERVED, QUIET
from ringmq.overlay.core.messages import MAX_RELAYS, Message, Parcel, Peer, Ping, PingRequest, Relay
from ringmq.overlay.core.ring import Ring
from ringmq.overlay.core.timing import LAN

A, B, C, D = (Peer(Id(number << 120), f"h{number}", 1, 0) for number in (10, 60, 120, 200))
STRANGER = Peer(Id(7), "nobody.example", 22, 0)
STEP_S = 0.01


class Kept:
    """An application that keeps the bytes that came."""

    def __init__(self) -> None:
        self.came: list[tuple[Peer, bytes]] = []
        self.lost: list[Peer] = []

    def receive(self, sender: Peer, payload: bytes) -> None:
        self.came.append((sender, payload))

    def link_lost(self, peer: Peer) -> None:
        self.lost.append(peer)

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None: ...
    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return True

    def undeliverable(self, key: Id, payload: bytes) -> None: ...
    def unsent(self, payload: bytes) -> None: ...
    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None: ...
    def leaves_changed(self) -> None: ...
    def activity_changed(self, active: bool) -> None: ...


class Site:
    """Peers that know each other. What one sends arrives after a step, unless the pair is cut in that direction."""

    def __init__(self, *peers: Peer) -> None:
        self.now = 0.0
        self.apps = {peer: Kept() for peer in peers}
        self.rings = {peer: Ring(peer, LAN, self.apps[peer]) for peer in peers}
        self.cuts: set[tuple[Peer, Peer]] = set()
        self.sent: list[tuple[Peer, Peer, Message]] = []
        for peer, ring in self.rings.items():
            ring.restore([other for other in peers if other != peer], (), 0.0)

    def cut(self, one: Peer, other: Peer) -> None:
        self.cuts |= {(one, other), (other, one)}

    def pass_time(self, span_s: float) -> None:
        until = self.now + span_s
        while self.now < until:
            self.now += STEP_S
            waiting = [(peer, to, message) for peer, ring in self.rings.items() for to, message in ring.take_outbox()]
            self.sent += waiting
            for sender, to, message in waiting:
                if to in self.rings and (sender, to) not in self.cuts:
                    self.rings[to].receive(sender, message, self.now)
            for ring in self.rings.values():
                if ring.deadline() <= self.now:
                    ring.tick(self.now)

    def deaths(self) -> int:
        return sum(ring.statistics().counters["deaths"] for ring in self.rings.values())

    def ways(self) -> dict[tuple[Peer, Id], Peer]:
        return {(peer, target): via for peer, ring in self.rings.items() for target, via in ring.detours.items()}


@pytest.fixture
def site() -> Site:
    return Site(A, B, C, D)


def search(site: Site, searcher: Peer, target: Peer, span_s: float = 0.2) -> None:
    site.rings[searcher].find_way(target, site.now)
    site.pass_time(span_s)


def test_a_broken_pair_goes_through_a_third_peer_in_both_directions(site: Site) -> None:
    site.cut(A, B)
    search(site, A, B)
    site.rings[A].send(B, b"there")
    site.pass_time(0.1)
    assert site.apps[B].came == [(A, b"there")]
    site.rings[B].send(A, b"and back")
    site.pass_time(0.1)
    assert site.apps[A].came == [(B, b"and back")]
    assert set(site.ways()) == {(A, B.id), (B, A.id)}
    assert site.rings[A].statistics().counters["detours"] == 1


@pytest.mark.parametrize(("deaf", "mute"), [(A, B), (B, A)])
def test_one_broken_direction_is_gone_around_as_well(site: Site, deaf: Peer, mute: Peer) -> None:
    site.cuts.add((mute, deaf))
    search(site, deaf, mute)
    site.rings[mute].send(deaf, b"heard")
    site.rings[deaf].send(mute, b"as before")
    site.pass_time(0.1)
    assert site.apps[deaf].came == [(mute, b"heard")]
    assert site.apps[mute].came == [(deaf, b"as before")]
    site.pass_time(2 * LAN.reunion_s)
    assert set(site.ways()) == {(deaf, mute.id), (mute, deaf.id)}, "messages in one direction do not end it"


def test_a_peer_that_answers_gets_no_detour(site: Site) -> None:
    search(site, A, B, 2.0)
    assert site.ways() == {}
    assert not any(isinstance(message, PingRequest) for _, _, message in site.sent)


@pytest.mark.parametrize(("one", "other"), list(permutations((A, B, C, D), 2)))
def test_nobody_dies_of_a_broken_pair(one: Peer, other: Peer) -> None:
    site = Site(A, B, C, D)
    site.cut(one, other)
    site.pass_time(30.0)
    assert site.deaths() == 0
    assert all(ring.active for ring in site.rings.values())
    assert all(len(ring.leaves) == 3 for ring in site.rings.values())


def test_the_detour_ends_when_the_pair_is_whole_again(site: Site) -> None:
    site.cut(A, B)
    search(site, A, B)
    site.pass_time(3 * LAN.reunion_s)
    assert len(site.ways()) == 2
    site.cuts.clear()
    site.pass_time(LAN.reunion_s + 1.0)
    assert site.ways() == {}
    site.sent.clear()
    site.rings[A].send(B, b"straight")
    site.pass_time(0.1)
    assert (A, B, Parcel(b"straight")) in site.sent


def test_another_helper_takes_over_when_the_first_dies(site: Site) -> None:
    site.cut(A, B)
    search(site, A, B)
    helper = site.ways()[A, B.id]
    del site.rings[helper]
    for ring in site.rings.values():
        ring.link_lost(helper, site.now, refused=True)
    site.pass_time(1.0)
    other = {C: D, D: C}[helper]
    assert site.ways() == {(A, B.id): other, (B, A.id): other}
    site.rings[A].send(B, b"still")
    site.pass_time(0.1)
    assert site.apps[B].came == [(A, b"still")]


def test_a_peer_that_dies_behind_a_detour_is_declared_dead(site: Site) -> None:
    site.cut(A, B)
    search(site, A, B)
    del site.rings[B]
    site.pass_time(10.0)
    assert site.ways() == {}
    assert all(B.id not in ring.leaves for ring in site.rings.values())


def test_a_failed_direct_try_is_no_news(site: Site) -> None:
    site.cut(A, B)
    search(site, A, B)
    site.rings[A].link_lost(B, site.now, refused=True)
    site.pass_time(1.0)
    assert site.apps[A].lost == []
    assert site.rings[A].statistics().suspects == 0


def test_a_detour_by_which_nothing_comes_ends(site: Site) -> None:
    site.cut(A, B)
    search(site, A, B)
    detours = site.rings[A].failure_detector.detours
    site.rings[A].tick(site.now + (QUIET + 2) * LAN.reunion_s)
    detours.try_directly()
    assert len(detours) == 0


def test_the_way_may_lead_through_two_helpers() -> None:
    site = Site(A, B, C, D)
    # C reaches B through D alone.
    site.cut(A, B)
    site.cut(A, D)
    site.cut(C, B)
    search(site, C, B)
    search(site, A, B, 1.0)
    site.rings[A].send(B, b"far")
    site.pass_time(0.2)
    assert site.apps[B].came == [(A, b"far")]
    site.rings[B].send(A, b"back")
    site.pass_time(0.2)
    assert site.apps[A].came == [(B, b"back")]


def relayed(ring: Ring, sender: Peer, relay: Relay) -> list[tuple[Peer, Message]]:
    ring.take_outbox()
    ring.receive(sender, relay, 0.0)
    return [(to, message) for to, message in ring.take_outbox() if isinstance(message, Relay)]


def test_nothing_is_passed_on_to_a_peer_that_nobody_has_asked_for(site: Site) -> None:
    ring = site.rings[C]
    assert relayed(ring, A, wrap(A, STRANGER, Parcel(b"x"))) == []
    assert relayed(ring, A, wrap(A, B, Parcel(b"x"))) == [], "a member, but not asked for"
    assert ring.statistics().counters["unrelayed"] == 2
    ring.receive(A, PingRequest(B), 0.0)
    ring.receive(B, Ping(), 0.0)
    [(to, relay)] = relayed(ring, A, wrap(A, B, Parcel(b"x")))
    assert to == B
    assert relay == Relay(A, B, 1, True, b"x")
    assert relayed(ring, D, wrap(A, B, Parcel(b"x"))) == [], "D is not the origin that it names"


def test_a_loop_of_helpers_ends(site: Site) -> None:
    ring = site.rings[C]
    ring.receive(A, PingRequest(B), 0.0)
    ring.receive(B, Ping(), 0.0)
    assert len(relayed(ring, D, Relay(A, B, MAX_RELAYS - 1, True, b"x"))) == 1
    assert relayed(ring, D, Relay(A, B, MAX_RELAYS, True, b"x")) == []


def test_a_helper_serves_a_bounded_number_of_peers(site: Site) -> None:
    detours = site.rings[C].failure_detector.detours
    for number in range(2 * MAX_SERVED):
        detours.serve(A, Peer(Id(number + 1), "h", 1, 0))
    assert len(detours._served) == MAX_SERVED


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", bytes(100)])
def test_an_unreadable_relay_is_counted(site: Site, body: bytes) -> None:
    ring = site.rings[B]
    ring.receive(C, Relay(A, B, 0, False, body), 0.0)
    assert ring.statistics().counters["unrelayed"] == 1
    assert site.ways() == {}


def test_no_relay_hides_in_a_relay(site: Site) -> None:
    ring = site.rings[B]
    inner = wrap(A, B, wrap(A, B, Ping()))
    ring.receive(C, inner, 0.0)
    assert ring.statistics().counters["unrelayed"] == 1


def test_a_helper_is_not_believed_that_a_member_has_another_boot(site: Site) -> None:
    ring = site.rings[B]
    ring.receive(C, wrap(Peer(A.id, A.host, A.port, A.boot + 1), B, Parcel(b"false")), 0.0)
    assert site.apps[B].came == []
    assert site.ways() == {}


def test_this_peer_gets_no_detour_to_itself(site: Site) -> None:
    ring = site.rings[B]
    ring.receive(C, wrap(B, B, Parcel(b"mine")), 0.0)
    ring.find_way(B, 0.0)
    assert site.ways() == {}
    assert site.apps[B].came == []
