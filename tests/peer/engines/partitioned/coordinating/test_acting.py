"""A silent peer stops nobody: the next one acts for a coordinator, and a coordinator goes on without a shadow."""

from __future__ import annotations

import pytest

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.silence import TRIES
from ringmq.peer.engines.partitioned.messages import (
    Acting,
    Append,
    Claim,
    Deposed,
    Elsewhere,
    Hold,
    Holders,
    Registered,
    Renew,
    Renewed,
    Routes,
    Silent,
    State,
    StateRequest,
    TakeOver,
)
from ringmq.peer.messaging.config import LAN
from ringmq.peer.replication.record import Epoch
from tests.peer.engines.partitioned.fake_homes import PARTITION, Coordinating, peer_near

HOME = peer_near(PARTITION, 90)
RUNS = ((PARTITION, PARTITION),)


def wait_for_silence(peer: Coordinating) -> None:
    """Until one more peer is silent."""
    before = len(peer.coordinator.silence.peers)
    for _ in range(TRIES + 1):
        peer.later(LAN.silent_s / TRIES)
        if len(peer.coordinator.silence.peers) > before:
            return


def requests(peer: Coordinating) -> dict[Peer, StateRequest]:
    """The requests about the partition that are on their way."""
    found = {}
    for to, item, _ in peer.streams.sent:
        assert not isinstance(item, StateRequest) or item.runs
        if isinstance(item, StateRequest) and any(first <= PARTITION <= last for first, last in item.runs):
            found[to] = item
    return found


def answer(peer: Coordinating, other: Peer, request: StateRequest) -> None:
    peer.coordinator.takeover.state(other, State(request.ident, (), (), (), ()))
    peer.coordinator.flush()


def next_of_a_silent_one(shadows: int = 2) -> tuple[Coordinating, Peer]:
    """A peer that has found the coordinator silent, as somebody has asked it to look."""
    peer = Coordinating(2, 1, 3, 4, 5, shadows=shadows)
    silent = peer.others[0]
    assert peer.neighbourhood.owners(PARTITION)[:2] == (silent, peer.me)
    peer.coordinator.silent(HOME, Silent(silent, PARTITION, HOME))
    wait_for_silence(peer)
    return peer, silent


def test_the_next_peer_acts_when_all_other_owners_have_answered() -> None:
    peer, silent = next_of_a_silent_one()
    asked = requests(peer)
    assert set(asked) == set(peer.others)
    assert {request.silent for request in asked.values()} == {silent}
    for other in peer.others[1:]:
        assert not peer.coordinator.store.acting[PARTITION]
        # Not even a spare owner is given up: it may be a shadow of the silent one by now.
        peer.later(2 * LAN.slow_retry_s)
        answer(peer, other, asked[other])
    assert peer.coordinator.store.acting[PARTITION]
    told = [to for to, item, _ in peer.streams.take(Acting) if isinstance(item, Acting)]
    assert HOME in told


def test_nobody_acts_for_a_peer_that_needs_no_shadow() -> None:
    peer, silent = next_of_a_silent_one(shadows=0)
    assert peer.coordinator.silence.peers == [silent]
    assert requests(peer) == {}


def test_nobody_acts_while_a_second_owner_is_silent() -> None:
    peer, _ = next_of_a_silent_one()
    peer.coordinator.suspect(peer.others[2])
    wait_for_silence(peer)
    for other, request in requests(peer).items():
        answer(peer, other, request)
    assert not peer.coordinator.store.acting[PARTITION]


def confirm(peer: Coordinating, *others: Peer) -> None:
    """These shadows have applied everything."""
    for kind in (Holders, Append):
        peer.confirm(kind, *others)


def begin(peer: Coordinating) -> None:
    peer.begin()
    confirm(peer, *peer.others)


def granted(peer: Coordinating) -> bool:
    return any(isinstance(item, Registered) and item.in_force for _, item, _ in peer.streams.sent)


def test_a_coordinator_goes_on_without_a_silent_shadow_and_takes_the_next() -> None:
    peer = Coordinating(1, 2, 3, 4, 5)
    begin(peer)
    peer.register(HOME, 1)
    silent, present, spare = peer.others[:3]
    confirm(peer, present)
    assert not granted(peer)
    peer.later(LAN.doubt_s)
    wait_for_silence(peer)
    assert peer.coordinator.silence.peers == [silent]
    assert not granted(peer), "the next one has no copy yet"
    confirm(peer, spare)
    assert granted(peer)


def test_a_coordinator_without_another_owner_waits_for_the_ring() -> None:
    peer = Coordinating(1, 2)
    begin(peer)
    peer.register(HOME, 1)
    peer.later(LAN.doubt_s)
    wait_for_silence(peer)
    assert peer.coordinator.silence.peers == peer.others
    assert not granted(peer)
    peer.leaves()
    assert granted(peer)


@pytest.mark.parametrize("deposed", [False, True])
def test_who_comes_back_refers_to_the_acting_peer_until_it_gives_back(deposed: bool) -> None:
    peer = Coordinating(1, 2, 3, 4, 5)
    peer.begin()
    acting = peer.others[0]
    if deposed:
        epoch = Epoch(peer.coordinator.store.epoch(PARTITION).number + 1, acting.id)
        peer.coordinator.copying.deposed(peer.others[1], Deposed(((PARTITION, PARTITION, epoch),)))
    else:
        peer.coordinator.takeover.state_request(acting, StateRequest(1, RUNS, (), peer.me))
    peer.later(LAN.look_s)
    reminded = [to for to, item, _ in peer.streams.take(TakeOver) if to == acting]
    assert reminded, "the acting peer may have forgotten it"
    peer.register(HOME, 1)
    referred = [item for to, item, _ in peer.streams.take(Elsewhere) if to == HOME]
    assert referred == [Elsewhere(RUNS, acting)]
    assert not peer.coordinator.store.acting[PARTITION]
    assert requests(peer) == {}
    # Another shadow reminds it all the time.
    peer.coordinator.takeover.take_over(peer.others[1], TakeOver(RUNS))
    assert requests(peer) == {}
    peer.coordinator.takeover.take_over(acting, TakeOver(RUNS, back=True))
    for other, request in requests(peer).items():
        answer(peer, other, request)
    assert peer.coordinator.store.acting[PARTITION]


def test_who_does_not_act_for_a_peer_that_believes_so_gives_back() -> None:
    peer = Coordinating(2, 1, 3, 4, 5)
    nearest = peer.others[0]
    peer.coordinator.takeover.take_over(nearest, TakeOver(RUNS))
    assert [(to, item) for to, item, _ in peer.streams.take(TakeOver)] == [(nearest, TakeOver(RUNS, back=True))]


def test_a_lease_is_given_on_the_word_of_all_shadows() -> None:
    peer = Coordinating(1, 2, 3, 4, 5)
    holder = peer_near(PARTITION, 80)
    begin(peer)
    peer.coordinator.hold(holder, Hold(RUNS, False))
    peer.coordinator.flush()
    peer.confirm(Holders, *peer.others)
    peer.confirm(Routes, holder)
    peer.coordinator.renew(holder, Renew(1.0))
    peer.streams.take(Renewed)
    peer.later(LAN.lease_s)
    peer.streams.take(Claim)
    for follower in peer.coordinator.copying._followers.values():
        follower.claiming = False
    peer.coordinator.renew(holder, Renew(2.0))
    claims = [to for to, item, _ in peer.streams.sent if isinstance(item, Claim)]
    assert set(claims) >= set(peer.others[:2])
    peer.later(0.5)
    peer.confirm(Claim, peer.others[0])
    assert not peer.streams.take(Renewed)
    peer.confirm(Claim, *peer.others)
    (renewed,) = [item for _, item, _ in peer.streams.take(Renewed)]
    assert isinstance(renewed, Renewed)
    assert renewed.lag_s == 0.0
    peer.later(0.5)
    peer.coordinator.renew(holder, Renew(3.0))
    (renewed,) = [item for _, item, _ in peer.streams.take(Renewed)]
    assert isinstance(renewed, Renewed)
    assert renewed.lag_s == pytest.approx(1.0)


def test_a_shadow_that_obeys_another_says_so_before_it_confirms() -> None:
    peer = Coordinating(3, 1, 2, 4)
    former, acting = peer.others[:2]
    peer.coordinator.copying.claimed(former, Claim(((PARTITION, PARTITION, 1),)))
    assert peer.streams.held == 0
    peer.coordinator.takeover.state_request(acting, StateRequest(1, RUNS, (), former))
    peer.coordinator.copying.claimed(former, Claim(((PARTITION, PARTITION, 1),)))
    assert peer.streams.held == 1
    ((to, item, _),) = peer.streams.take(Deposed)
    assert to == former
    assert isinstance(item, Deposed)
    assert item.epochs[0][2].actor == acting.id


def begun(peer: Coordinating) -> list[bool]:
    """Whether each beginning of the partition that was sent to a holder is said to be complete."""
    routes = [item for _, item, _ in peer.streams.take(Routes)]
    runs = [run for item in routes if isinstance(item, Routes) for run in item.begun]
    return [run.complete for run in runs if run.first <= PARTITION <= run.last]


@pytest.mark.parametrize("died", [False, True])
def test_a_coordinator_that_met_no_copy_of_a_dead_one_says_so(died: bool) -> None:
    peer = Coordinating(3, 1, 2, 4, 5)
    if died:
        peer.coordinator.takeover.wake()
        peer.later(LAN.entry_s)
    else:
        peer.leaves(*peer.others[3:])
        peer.later(LAN.entry_s)
    peer.streams.take(StateRequest)
    peer.leaves(*peer.others[3:])
    peer.begin()
    confirm(peer, *peer.others)
    peer.coordinator.hold(HOME, Hold(RUNS, False))
    peer.coordinator.flush()
    confirm(peer, *peer.others)
    assert begun(peer) == [not died]
    peer.register(HOME, 1)
    confirm(peer, *peer.others)
    peer.later(LAN.void_s + 0.1)
    (registered,) = [item for _, item, _ in peer.streams.take(Registered)]
    assert isinstance(registered, Registered)
    assert registered.incomplete == died
    peer.coordinator.hold(HOME, Hold(RUNS, False))
    peer.coordinator.flush()
    for _ in range(6):
        peer.later(LAN.entry_s / 5)
        confirm(peer, *peer.others)
        peer.coordinator.renew(HOME, Renew(1.0))
    assert begun(peer) == ([False, True] if died else [True])
