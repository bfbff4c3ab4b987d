"""The failure detector step by step, with a clock that is moved by hand."""

from collections.abc import Iterable

import pytest

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.liveness import failure_detector
from ringmq.overlay.core.liveness.detours import HELPERS, PING
from ringmq.overlay.core.liveness.failure_detector import HEARTBEAT, DeathSource, FailureDetector
from ringmq.overlay.core.messages import Message, Peer, Ping, PingRequest, PingResult
from ringmq.overlay.core.timing import LAN

ME = Peer(Id(1000), "me", 1, 0)
LEFT, NEXT, THIRD, FOURTH = (Peer(Id(peer_id), f"h{peer_id}", 1, 0) for peer_id in (900, 1100, 1200, 1300))
STRANGER = Peer(Id(1 << 100), "far", 1, 0)
PROBES_S = LAN.probe_s * LAN.probe_tries


def reborn(peer: Peer) -> Peer:
    return Peer(peer.id, "again", 1, peer.boot + 1)


class Watcher:
    """A failure detector among five peers; collects its deaths, returns and messages."""

    def __init__(self, leaves: Iterable[Peer] = (LEFT, NEXT, THIRD, FOURTH), half: int = 2) -> None:
        self.state = RingContext(ME, LAN, half)
        self.state.leaves.fill(leaves)
        self.died: list[tuple[Peer, DeathSource]] = []
        self.came_back: list[tuple[Peer, bool]] = []
        self.core = FailureDetector(
            self.state,
            lambda peer, source: self.died.append((peer, source)),
            lambda peer, was_dead: self.came_back.append((peer, was_dead)),
        )
        self.core.watch(self.state.leaves.successor)

    def at(self, now: float) -> list[tuple[Peer, Message]]:
        """Let time pass, with each timer at its own time. Returns the messages."""
        timers = self.state.timers
        while timers.next_at <= now:
            self.state.now = timers.next_at
            timers.run(self.state.now)
        self.state.now = now
        return self.sent()

    def sent(self) -> list[tuple[Peer, Message]]:
        outbox, self.state.outbox = self.state.outbox, []
        return outbox

    def heard(self, peer: Peer) -> None:
        self.core.heard(peer)


def receivers(sent: list[tuple[Peer, Message]], kind: type) -> list[Peer]:
    return [peer for peer, message in sent if isinstance(message, kind)]


def test_silence_leads_to_a_death() -> None:
    watcher = Watcher()
    watcher.core.start()
    deadline = LAN.silence_s + LAN.heartbeat_s + LAN.fastest_verdict_s + 0.01
    sent = watcher.at(LAN.silence_s - 0.01)
    assert {peer for peer, message in sent if message is HEARTBEAT} == {LEFT}, (
        "only the counterclockwise neighbour gets heartbeats"
    )
    assert len(sent) in (3, 4)
    assert receivers(sent, Ping) == []
    watcher.at(LAN.silence_s + LAN.heartbeat_s + 0.01)
    assert set(watcher.core.suspects) == {NEXT.id}
    while watcher.state.now < deadline:
        watcher.at(min(deadline, watcher.state.now + 0.1))
        for alive in (LEFT, THIRD, FOURTH):
            watcher.heard(alive)
    assert watcher.died == [(NEXT, DeathSource.FOUND)]


def test_heartbeats_keep_suspicion_away() -> None:
    watcher = Watcher()
    watcher.core.start()
    for step in range(100):
        watcher.at(step * LAN.heartbeat_s)
        watcher.heard(NEXT)
    assert watcher.state.counters.suspicions == 0
    assert watcher.died == []


def test_a_new_neighbour_is_given_its_time() -> None:
    watcher = Watcher()
    watcher.core.start()
    watcher.at(LAN.silence_s)
    watcher.core.watch(THIRD)
    watcher.at(2 * LAN.silence_s - 0.01)
    assert watcher.state.counters.suspicions == 0
    assert not watcher.core.heard_recently(THIRD)
    watcher.heard(THIRD)
    assert watcher.core.heard_recently(THIRD)
    assert not watcher.core.heard_recently(NEXT), "it is not the watched peer"


def test_a_suspect_is_asked_directly_then_indirectly_then_declared_dead() -> None:
    watcher = Watcher()
    watcher.core.suspect(FOURTH)
    assert watcher.sent() == [(FOURTH, PING)]
    assert watcher.at(LAN.probe_s) == [(FOURTH, PING)]
    sent = watcher.at(PROBES_S)
    helpers = receivers(sent, PingRequest)
    assert len(helpers) == HELPERS
    assert FOURTH not in helpers
    assert receivers(sent, Ping) == [FOURTH]
    assert watcher.at(LAN.fastest_verdict_s - 0.01) == []
    assert watcher.died == []
    watcher.at(LAN.fastest_verdict_s)
    assert watcher.died == [(FOURTH, DeathSource.FOUND)]
    assert watcher.core.considers_dead(FOURTH)
    assert watcher.core.suspects == {}
    watcher.core.suspect(FOURTH)
    assert watcher.core.suspects == {}, "the dead are not suspected"


@pytest.mark.parametrize("answer_s", [0.0, LAN.probe_s + 0.01, PROBES_S + 0.01, LAN.fastest_verdict_s - 0.01])
def test_any_message_at_any_stage_ends_the_suspicion(answer_s: float) -> None:
    watcher = Watcher()
    watcher.core.suspect(FOURTH)
    watcher.at(answer_s)
    watcher.heard(FOURTH)
    assert watcher.came_back == [(FOURTH, False)]
    watcher.at(60.0)
    assert watcher.died == []
    assert watcher.core.suspects == {}
    assert watcher.state.counters.refuted == 1


def test_an_answer_to_a_helper_ends_the_suspicion() -> None:
    watcher = Watcher()
    watcher.core.suspect(FOURTH)
    watcher.at(PROBES_S)
    watcher.core.on_ping_result(THIRD, PingResult(FOURTH, True))
    assert watcher.came_back == [(FOURTH, False)]
    watcher.at(60.0)
    assert watcher.died == []


def test_the_next_suspicion_is_not_ended_by_the_timers_of_the_first() -> None:
    watcher = Watcher()
    watcher.core.suspect(FOURTH)
    watcher.at(LAN.fastest_verdict_s - 0.1)
    watcher.heard(FOURTH)
    watcher.core.suspect(FOURTH)
    watcher.at(2 * LAN.fastest_verdict_s - 0.11)
    assert watcher.died == []
    watcher.at(2 * LAN.fastest_verdict_s - 0.09)
    assert len(watcher.died) == 1


def test_the_denial_of_all_helpers_is_enough() -> None:
    watcher = Watcher()
    watcher.core.suspect(FOURTH)
    helpers = receivers(watcher.at(PROBES_S), PingRequest)
    for helper in helpers[:-1]:
        watcher.core.on_ping_result(helper, PingResult(FOURTH, False))
        assert watcher.died == []
    watcher.core.on_ping_result(helpers[-1], PingResult(FOURTH, False))
    assert watcher.died == [(FOURTH, DeathSource.FOUND)]


def test_one_helper_that_denies_repeatedly_is_one_helper() -> None:
    watcher = Watcher()
    watcher.core.suspect(FOURTH)
    helper = receivers(watcher.at(PROBES_S), PingRequest)[0]
    for _ in range(HELPERS):
        watcher.core.on_ping_result(helper, PingResult(FOURTH, False))
    assert watcher.died == []


def test_denials_of_an_earlier_suspicion_do_not_count() -> None:
    watcher = Watcher()
    watcher.core.suspect(FOURTH)
    helpers = receivers(watcher.at(PROBES_S), PingRequest)
    watcher.heard(FOURTH)
    watcher.core.suspect(FOURTH)
    for helper in helpers[:-1]:
        watcher.core.on_ping_result(helper, PingResult(FOURTH, False))
    watcher.at(watcher.state.now + PROBES_S)
    watcher.core.on_ping_result(helpers[-1], PingResult(FOURTH, False))
    assert watcher.died == []


def test_a_result_without_a_suspicion_means_nothing() -> None:
    watcher = Watcher()
    watcher.core.on_ping_result(THIRD, PingResult(FOURTH, False))
    watcher.core.on_ping_result(THIRD, PingResult(FOURTH, True))
    assert watcher.died == watcher.came_back == []


def test_a_far_peer_is_declared_dead_without_helpers() -> None:
    watcher = Watcher()
    watcher.core.suspect(STRANGER)
    sent = watcher.at(PROBES_S)
    assert receivers(sent, PingRequest) == []
    assert watcher.died == [(STRANGER, DeathSource.FOUND)]


def test_without_helpers_the_suspicion_times_out() -> None:
    watcher = Watcher(leaves=(NEXT,))
    watcher.core.suspect(NEXT)
    watcher.at(LAN.fastest_verdict_s - 0.01)
    assert watcher.died == [], "a paused peer would not have noticed its pause yet"
    watcher.at(LAN.fastest_verdict_s)
    assert watcher.died == [(NEXT, DeathSource.FOUND)]


def test_a_refused_connection_asks_others_at_once() -> None:
    watcher = Watcher()
    watcher.core.link_refused(FOURTH)
    assert len(receivers(watcher.sent(), PingRequest)) == HELPERS
    watcher.core.link_refused(FOURTH)
    assert watcher.sent() == [], "they are asked once"
    watcher.at(LAN.verdict_s)
    assert watcher.died == [(FOURTH, DeathSource.FOUND)]
    watcher.core.link_refused(FOURTH)
    assert watcher.core.suspects == {}
    watcher.core.link_refused(STRANGER)
    assert watcher.died[-1] == (STRANGER, DeathSource.FOUND)


def test_a_refusal_shortens_a_suspicion_that_is_there() -> None:
    watcher = Watcher()
    watcher.core.suspect(FOURTH)
    watcher.core.link_refused(FOURTH)
    watcher.at(LAN.verdict_s)
    assert watcher.died == [(FOURTH, DeathSource.FOUND)]
    assert watcher.state.counters.suspicions == 1


def test_suspects_are_the_last_choice_as_helpers() -> None:
    far = [Peer(Id(peer_id), f"h{peer_id}", 1, 0) for peer_id in (1400, 1500, 1600)]
    watcher = Watcher((LEFT, NEXT, THIRD, FOURTH, *far), half=8)
    watcher.core.suspect(THIRD)
    watcher.sent()
    watcher.core.link_refused(NEXT)
    assert receivers(watcher.sent(), PingRequest) == [LEFT, FOURTH, far[0]]


def test_an_unreachable_helper_is_replaced_by_another() -> None:
    far = Peer(Id(1400), "far", 1, 0)
    watcher = Watcher((LEFT, NEXT, THIRD, FOURTH, far), half=8)
    watcher.core.link_refused(NEXT)
    assert receivers(watcher.sent(), PingRequest) == [THIRD, LEFT, FOURTH]
    watcher.core.link_refused(THIRD)
    asked = [(peer, message.target) for peer, message in watcher.sent() if isinstance(message, PingRequest)]
    assert (far, NEXT) in asked
    for helper in (LEFT, FOURTH, far):
        assert not watcher.died
        watcher.core.on_ping_result(helper, PingResult(NEXT, False))
    assert watcher.died == [(NEXT, DeathSource.FOUND)]


def test_helpers_that_cannot_be_reached_do_not_deny_anything() -> None:
    watcher = Watcher((NEXT, THIRD, FOURTH))
    watcher.core.link_refused(NEXT)
    for helper in (THIRD, FOURTH):
        watcher.core.link_refused(helper)
    assert NEXT not in [peer for peer, _ in watcher.died], "it may be this peer that is cut off"
    watcher.at(LAN.verdict_s)
    assert NEXT in [peer for peer, _ in watcher.died]


def test_one_denial_counts_when_the_other_helpers_have_died() -> None:
    watcher = Watcher((NEXT, THIRD, FOURTH))
    watcher.core.link_refused(NEXT)
    watcher.core.on_ping_result(THIRD, PingResult(NEXT, False))
    watcher.core.link_refused(FOURTH)
    assert NEXT in [peer for peer, _ in watcher.died]


def test_hearsay_is_checked_but_not_spread() -> None:
    watcher = Watcher()
    watcher.core.suspect(FOURTH, hearsay=True)
    watcher.at(LAN.fastest_verdict_s)
    assert watcher.died == [(FOURTH, DeathSource.CHECKED)]


def test_the_peers_behind_a_silent_neighbour_are_asked() -> None:
    watcher = Watcher()
    watcher.core.suspect(NEXT)
    watcher.sent()
    assert set(receivers(watcher.at(LAN.probe_s), Ping)) == {NEXT, THIRD}, "the rest of the clockwise side"
    watcher.at(2 * LAN.probe_s)
    assert set(watcher.core.suspects) == {NEXT.id, THIRD.id}
    quiet = Watcher()
    quiet.core.suspect(NEXT)
    quiet.at(LAN.probe_s)
    quiet.heard(THIRD)
    quiet.at(2 * LAN.probe_s)
    assert set(quiet.core.suspects) == {NEXT.id}


def test_a_reported_death_needs_no_proof() -> None:
    watcher = Watcher()
    watcher.core.suspect(FOURTH)
    watcher.core.report_dead(FOURTH)
    assert watcher.died == [(FOURTH, DeathSource.REPORTED)]
    watcher.core.report_dead(FOURTH)
    watcher.core.report_dead(ME)
    watcher.at(60.0)
    assert len(watcher.died) == 1
    assert watcher.state.counters.deaths == 1


def test_any_message_from_a_dead_peer_brings_it_back() -> None:
    watcher = Watcher()
    watcher.core.report_dead(FOURTH)
    watcher.heard(FOURTH)
    assert watcher.came_back == [(FOURTH, True)]
    assert not watcher.core.considers_dead(FOURTH)
    watcher.heard(FOURTH)
    assert len(watcher.came_back) == 1


def test_a_newer_boot_is_not_held_for_dead() -> None:
    watcher = Watcher()
    watcher.core.report_dead(reborn(FOURTH))
    assert watcher.core.considers_dead(FOURTH)
    assert watcher.core.considers_dead(reborn(FOURTH))
    again = reborn(reborn(FOURTH))
    assert not watcher.core.considers_dead(again)
    watcher.core.suspect(again)
    assert again.id in watcher.core.suspects
    watcher.at(LAN.fastest_verdict_s)
    assert watcher.core.considers_dead(again)


def test_a_peer_does_not_suspect_itself() -> None:
    watcher = Watcher()
    watcher.core.suspect(ME)
    assert watcher.core.suspects == {}


def test_dead_peers_are_tried_in_turn_and_forgotten_in_the_end() -> None:
    watcher = Watcher(leaves=())
    dead = [Peer(Id(number), "dead", 1, 0) for number in range(3)]
    watcher.core.start()
    for peer in dead:
        watcher.core.report_dead(peer)
    tried = receivers(watcher.at(5.5 * LAN.reunion_s), Ping)
    assert tried == [*dead, *dead]
    watcher.at(LAN.forget_s - 0.01)
    assert len(watcher.core.dead) == 3
    assert receivers(watcher.at(LAN.forget_s + 3 * LAN.reunion_s), Ping) == []
    assert watcher.core.dead == {}


def test_the_list_of_the_dead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_detector, "MAX_DEAD", 3)
    watcher = Watcher(leaves=())
    for number in range(5):
        watcher.core.report_dead(Peer(Id(number), "dead", 1, 0))
    assert set(watcher.core.dead) == {2, 3, 4}


def test_who_has_left_is_known_until_it_dies_another_way() -> None:
    watcher = Watcher(leaves=())
    gone, dead = Peer(Id(1), "gone", 1, 0), Peer(Id(2), "dead", 1, 0)
    watcher.core.report_left(gone)
    watcher.core.report_dead(dead)
    assert watcher.core.left == {gone.id}
    # It comes back, and dies.
    watcher.heard(reborn(gone))
    watcher.core.report_dead(reborn(gone))
    assert watcher.core.left == set()
    watcher.core.report_left(dead)
    assert watcher.core.left == {dead.id}, "it said so later"


def test_an_indirect_probe_asks_once_and_answers_all_askers() -> None:
    watcher = Watcher()
    watcher.core.on_ping_request(LEFT, PingRequest(FOURTH))
    watcher.core.on_ping_request(NEXT, PingRequest(FOURTH))
    watcher.core.on_ping_request(NEXT, PingRequest(FOURTH))
    assert watcher.sent() == [(FOURTH, PING)]
    watcher.heard(reborn(FOURTH))
    assert watcher.sent() == [(LEFT, PingResult(reborn(FOURTH), True)), (NEXT, PingResult(reborn(FOURTH), True))]
    watcher.heard(FOURTH)
    assert watcher.sent() == []


def test_an_indirect_probe_of_a_refusing_peer_is_a_denial() -> None:
    watcher = Watcher()
    watcher.core.on_ping_request(LEFT, PingRequest(FOURTH))
    watcher.core.link_refused(FOURTH)
    assert (LEFT, PingResult(FOURTH, False)) in watcher.sent()


def test_an_indirect_probe_of_itself_or_of_a_dead_peer_is_answered_at_once() -> None:
    watcher = Watcher()
    watcher.core.on_ping_request(LEFT, PingRequest(ME))
    watcher.core.report_dead(FOURTH)
    watcher.core.on_ping_request(LEFT, PingRequest(FOURTH))
    assert watcher.sent() == [(LEFT, PingResult(ME, True)), (LEFT, PingResult(FOURTH, False))]


def test_indirect_probes_end_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_detector, "MAX_INDIRECT_PROBES", 2)
    watcher = Watcher()
    for peer in (NEXT, THIRD, FOURTH):
        watcher.core.on_ping_request(LEFT, PingRequest(peer))
    assert receivers(watcher.sent(), Ping) == [NEXT, THIRD]
    assert watcher.state.counters.overflowed == 1
    watcher.at(LAN.verdict_s)
    watcher.heard(NEXT)
    assert watcher.sent() == [], "too late to be of use"
    watcher.core.on_ping_request(LEFT, PingRequest(FOURTH))
    assert watcher.sent() == [(FOURTH, PING)]


def test_a_second_indirect_probe_has_its_own_time() -> None:
    watcher = Watcher()
    watcher.core.on_ping_request(LEFT, PingRequest(FOURTH))
    watcher.heard(FOURTH)
    watcher.at(LAN.verdict_s - 0.1)
    watcher.core.on_ping_request(NEXT, PingRequest(FOURTH))
    watcher.at(LAN.verdict_s + 0.1)
    watcher.heard(FOURTH)
    assert watcher.sent()[-1] == (NEXT, PingResult(FOURTH, True))


def test_an_earlier_incarnation_is_not_suspected() -> None:
    watcher = Watcher(leaves=(reborn(FOURTH), NEXT))
    watcher.core.suspect(FOURTH)
    watcher.core.link_refused(FOURTH)
    assert watcher.core.suspects == {}
    watcher.core.suspect(reborn(FOURTH))
    assert set(watcher.core.suspects) == {FOURTH.id}


def test_withdrawing_suspicions_ends_all_of_them() -> None:
    watcher = Watcher()
    watcher.core.start()
    watcher.core.suspect(NEXT)
    watcher.at(LAN.fastest_verdict_s - 0.1)
    watcher.core.withdraw_suspicions()
    watcher.at(LAN.fastest_verdict_s + 0.1)
    assert watcher.died == []
    watcher.at(watcher.state.now + LAN.silence_s + LAN.heartbeat_s + LAN.fastest_verdict_s)
    assert (NEXT, DeathSource.FOUND) in watcher.died, "the silence counts again"


def test_starting_twice_is_starting_once() -> None:
    watcher = Watcher()
    watcher.core.start()
    watcher.core.start()
    assert len(watcher.state.timers) == 2
