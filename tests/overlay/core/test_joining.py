"""The gatekeeper by hand: one gap, one guest at a time."""

import pytest

from ringmq.overlay.core import joining
from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.joining import Gatekeeper
from ringmq.overlay.core.messages import MAX_HOPS, Admit, Grant, Message, Peer
from ringmq.overlay.core.timing import LAN

ME = Peer(Id(1000), "me", 1, 0)
BEHIND, NEXT, FAR = (Peer(Id(peer_id), f"h{peer_id}", 1, 0) for peer_id in (900, 2000, 3000))
JOINERS = [Peer(Id(1100 + number), "joiner", 1, 0) for number in range(8)]


class Gate:
    """An active gatekeeper with neighbours, and its clock."""

    def __init__(self, *, active: bool = True, leaves: tuple[Peer, ...] = (BEHIND, NEXT, FAR)) -> None:
        self.state = RingContext(ME, LAN, half=4)
        self.state.leaves.fill(leaves)
        self.state.active = active
        self.keeper = Gatekeeper(self.state)

    def at(self, now: float) -> list[tuple[Peer, Message]]:
        """Let time pass. Returns the messages."""
        self.state.now = now
        self.state.timers.run(now)
        return self.sent()

    def admit(self, joiner: Peer, *, back: bool = False, hops: int = 0) -> list[tuple[Peer, Message]]:
        self.keeper.admit(Admit(joiner, (FAR,), hops, back))
        return self.sent()

    def sent(self) -> list[tuple[Peer, Message]]:
        outbox, self.state.outbox = self.state.outbox, []
        return outbox


def grant(joiner: Peer) -> tuple[Peer, Grant]:
    return joiner, Grant((NEXT, FAR, BEHIND), (FAR,))


def test_the_first_is_granted_the_others_wait_in_their_order() -> None:
    gate = Gate()
    assert gate.admit(JOINERS[0]) == [grant(JOINERS[0])]
    for joiner in JOINERS[1:4]:
        assert gate.admit(joiner) == []
    for number in range(3):
        gate.keeper.release(JOINERS[number].id)
        assert gate.sent() == [grant(JOINERS[number + 1])]
    gate.keeper.release(JOINERS[3].id)
    assert gate.sent() == []
    assert gate.state.counters.joins_granted == 4


def test_who_asks_again_is_granted_again_and_waits_once() -> None:
    gate = Gate()
    gate.admit(JOINERS[0])
    assert gate.admit(JOINERS[0]) == [grant(JOINERS[0])]
    gate.admit(JOINERS[1])
    gate.admit(JOINERS[1])
    gate.keeper.release(JOINERS[0].id)
    assert gate.sent() == [grant(JOINERS[1])]
    gate.keeper.release(JOINERS[1].id)
    assert gate.sent() == []


def test_only_the_guest_releases_the_gap() -> None:
    gate = Gate()
    gate.admit(JOINERS[0])
    gate.admit(JOINERS[1])
    gate.keeper.release(JOINERS[1].id)
    gate.keeper.release(None)
    assert gate.sent() == []


def test_a_silent_guest_runs_out_of_time() -> None:
    gate = Gate()
    gate.admit(JOINERS[0])
    gate.admit(JOINERS[1])
    assert gate.at(LAN.grant_s - 0.01) == []
    assert gate.at(LAN.grant_s) == [grant(JOINERS[1])]
    assert not gate.keeper.renew(JOINERS[0])


def test_each_confirmation_gives_the_guest_another_while() -> None:
    gate = Gate()
    gate.admit(JOINERS[0])
    gate.admit(JOINERS[1])
    for now in (1.5, 3.0, 4.5):
        assert gate.at(now) == []
        assert gate.keeper.renew(JOINERS[0])
        assert not gate.keeper.renew(JOINERS[1])
    assert gate.at(4.5 + LAN.grant_s - 0.01) == []
    assert gate.at(4.5 + LAN.grant_s) == [grant(JOINERS[1])]


def test_nothing_is_confirmed_late_or_by_an_inactive_peer() -> None:
    gate = Gate()
    gate.admit(JOINERS[0])
    gate.state.active = False
    assert not gate.keeper.renew(JOINERS[0])
    gate.state.active = True
    assert gate.keeper.renew(JOINERS[0])
    gate.state.now = LAN.grant_s
    assert not gate.keeper.renew(JOINERS[0]), "its time was over before the agenda noticed"


def test_a_gap_whose_time_is_over_goes_to_the_next_who_asks() -> None:
    gate = Gate()
    gate.admit(JOINERS[0])
    gate.state.now = LAN.grant_s
    assert gate.admit(JOINERS[1]) == [grant(JOINERS[1])]
    assert gate.at(LAN.grant_s) == [], "the end of the first grant is not that of the second"
    assert gate.keeper.renew(JOINERS[1])


def test_the_gap_of_another_is_handed_on() -> None:
    gate = Gate()
    beyond = Peer(Id(2500), "joiner", 1, 0)
    assert gate.admit(beyond, hops=3) == [(NEXT, Admit(beyond, (FAR,), 4, False))]
    before = Peer(Id(950), "joiner", 1, 0)
    assert gate.admit(before) == [(BEHIND, Admit(before, (FAR,), 1, False))]


def test_what_comes_back_is_not_sent_forth_again() -> None:
    gate = Gate()
    beyond = Peer(Id(2500), "joiner", 1, 0)
    assert gate.admit(beyond, back=True) == [grant(beyond)], "who stands before it is not active"


def test_an_inactive_peer_hands_on_backwards() -> None:
    gate = Gate(active=False)
    assert gate.admit(JOINERS[0]) == [(BEHIND, Admit(JOINERS[0], (FAR,), 1, True))]
    assert gate.admit(BEHIND) == [(FAR, Admit(BEHIND, (FAR,), 1, True))], "never to the joiner itself"
    alone = Gate(active=False, leaves=())
    assert alone.admit(JOINERS[0]) == []


def test_a_restarted_member_is_not_told_of_itself() -> None:
    gate = Gate()
    again = Peer(NEXT.id, "elsewhere", 1, 5)
    assert gate.admit(again) == [(again, Grant((FAR, BEHIND), (FAR,)))]


def test_my_own_request_is_ignored() -> None:
    assert Gate().admit(ME) == []


def test_a_request_does_not_go_round_for_ever() -> None:
    gate = Gate()
    beyond = Peer(Id(2500), "joiner", 1, 0)
    assert gate.admit(beyond, hops=MAX_HOPS - 1) != []
    assert gate.admit(beyond, hops=MAX_HOPS) == []
    assert gate.state.counters.looped == 1


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "MAX_WAITING", 2)
    gate = Gate()
    for joiner in JOINERS[:5]:
        gate.admit(joiner)
    assert gate.state.counters.overflowed == 2
    gate.admit(JOINERS[2])
    assert gate.state.counters.overflowed == 2, "who waits already has its place"
    for number in range(3):
        gate.keeper.release(JOINERS[number].id)
    assert [peer for peer, _ in gate.sent()] == [JOINERS[1], JOINERS[2]]


def test_having_become_active_it_looks_at_all_who_wait() -> None:
    gate = Gate()
    for joiner in JOINERS[:3]:
        gate.admit(joiner)
    gate.state.active = False
    gate.keeper.release(JOINERS[0].id)
    assert gate.sent() == [(BEHIND, Admit(joiner, (FAR,), 1, True)) for joiner in JOINERS[1:3]]
    gate.state.active = True
    gate.keeper.serve()
    assert gate.sent() == []


def test_those_who_now_come_after_the_guest_are_sent_to_it() -> None:
    gate = Gate()
    gate.admit(JOINERS[1])
    gate.admit(JOINERS[0])
    gate.admit(JOINERS[2])
    gate.state.leaves.add(JOINERS[1])
    gate.keeper.release(JOINERS[1].id)
    sent = gate.sent()
    assert (JOINERS[1], Admit(JOINERS[2], (FAR,), 1, False)) in sent
    assert [peer for peer, message in sent if isinstance(message, Grant)] == [JOINERS[0]]
