"""What a kill did: from deliveries that are made up."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from ringmq.experiments.studies.failure.recovery import BIN_S, ON_TIME_S, STEP_S, Recovery, rate_over_time, recovery
from ringmq.experiments.studies.harness.traffic import Traffic
from tests.experiments.studies.making import traffic

EVERY_S = 0.02
END_S = 20.0
KILL_S = 10.0
MESSAGES = round(END_S / EVERY_S)
PUBLISHERS = (0, 1, 2, 3, 4)
SUBSCRIBERS = (0, 1, 2, 3)
DEAD = {4, 0}


def played(lost_s: float, late: bool = False, of_dead: bool = True) -> Traffic:
    """Publishers 0 to 4 take turns; peers 4 and 0 die. Live clients get nothing for so long, or get it all then."""
    numbers = list(range(MESSAGES))
    who = [PUBLISHERS[number % len(PUBLISHERS)] for number in numbers]
    if of_dead:
        numbers = [one for one in numbers if who[one] not in DEAD or one * EVERY_S < KILL_S]
    at = [one * EVERY_S for one in numbers]
    by = [who[one] for one in numbers]
    came: dict[int, list[tuple[int, float]]] = {place: [] for place in SUBSCRIBERS}
    for place in SUBSCRIBERS:
        for number, sent in enumerate(at):
            held = KILL_S <= sent < KILL_S + lost_s
            if (place in DEAD and sent >= KILL_S) or (held and not late):
                continue
            came[place].append((number, KILL_S + lost_s if held else sent + 0.005))
    return traffic(by, at, list(came.items()))


def found(lost_s: float, late: bool = False) -> Recovery:
    return recovery(played(lost_s, late), DEAD, KILL_S)


def test_without_a_fall_there_is_nothing_to_recover() -> None:
    one = found(0.0)
    assert one.recovered_s == 0
    assert one.lowest == one.lowest_before == 1
    assert one.lost_live == one.lost_after == 0
    assert one.share == pytest.approx(1 - 3 / 5 * 3 / 4)


@pytest.mark.parametrize("lost_s", [0.5, 1.5, 4.0])
def test_a_fall_lasts_until_the_rate_is_back(lost_s: float) -> None:
    one = found(lost_s)
    assert one.recovered_s == pytest.approx(lost_s, abs=STEP_S)
    assert one.lowest == 0
    assert one.lost_live == one.lost_after == pytest.approx(3 * 3 / 5 * lost_s / EVERY_S, abs=6)


def test_what_comes_late_is_not_lost_and_still_a_fall() -> None:
    one = found(1.5, late=True)
    assert one.lost_live == 0
    assert one.lowest == 0
    assert one.recovered_s == pytest.approx(1.5 - ON_TIME_S, abs=STEP_S)
    assert found(ON_TIME_S, late=True).recovered_s == 0


def test_what_disturbs_the_machine_later_or_before_is_not_the_doing_of_the_kill() -> None:
    told = played(0.5)
    for one in told.arrivals:
        for place, number in enumerate(one.numbers):
            sent = told.published_at[number]
            if 5.0 <= sent < 5.2 or 15.0 <= sent < 15.2:
                one.times[place] += 2 * ON_TIME_S
    what = recovery(told, DEAD, KILL_S)
    assert what.recovered_s == pytest.approx(0.5, abs=STEP_S)
    assert what.lowest_before == 0
    assert recovery(told, DEAD, 15.0).recovered_s == pytest.approx(0.2, abs=STEP_S)


def test_what_was_on_its_way_when_the_peers_died_is_a_fall() -> None:
    told = played(0.0)
    last = max(number for number, at in enumerate(told.published_at) if at < KILL_S and told.publishers[number] == 3)
    for one in told.arrivals:
        kept = [(number, at) for number, at in zip(one.numbers, one.times, strict=True) if number != last]
        one.numbers, one.times = array("L", [number for number, _ in kept]), array("d", [at for _, at in kept])
    what = recovery(told, DEAD, told.published_at[last] + 0.001)
    assert what.recovered_s == pytest.approx(STEP_S)
    assert what.lost_live == what.lost_after == 3
    assert recovery(told, DEAD, told.published_at[last] + 0.1).lost_after == 0


def test_what_does_not_come_back_is_said() -> None:
    assert found(END_S).recovered_s is None


def test_what_the_dead_lose_is_theirs() -> None:
    """All that they published, and all that they would have got."""
    told = played(0.0, of_dead=False)
    for one in told.arrivals:
        kept = [(number, at) for number, at in zip(one.numbers, one.times, strict=True) if told.publishers[number] != 4]
        one.numbers, one.times = array("L", [number for number, _ in kept]), array("d", [at for _, at in kept])
    what = recovery(told, DEAD, KILL_S)
    assert what.lost_live == 0
    assert what.due_live == 3 * sum(place not in DEAD for place in told.publishers)
    assert recovery(told, {0}, KILL_S).lost_live > 0


def test_delivered_counts_each_once_and_all() -> None:
    """What comes twice came when it came first."""
    told = traffic([0], [5.0], [(1, [(0, 5.1), (0, 9.0)])])
    assert recovery(told, (), 5.0).recovered_s == 0
    told = traffic([0], [0.0], [(1, [(0, 0.1), (0, 0.2)]), (2, [])])
    assert recovery(told, (), 5.0).delivered == 1


def test_the_rate_over_time() -> None:
    told = traffic([0] * 4, [0.0, 0.1, 0.2, 0.3], [(1, [(0, 0.01), (1, 0.11), (2, 0.21), (3, 0.31)]), (2, [(3, 99.0)])])
    rates = rate_over_time(told, 1.0)
    assert rates == [(BIN_S / 2, 3 / BIN_S), (1.5 * BIN_S, 1 / BIN_S), (2.5 * BIN_S, 0.0), (3.5 * BIN_S, 0.0)]


def test_nobody_at_all() -> None:
    one = recovery(traffic([], [], []), (), 1.0)
    assert replace(one, share=0.0) == Recovery(0.0, 1.0, 1.0, 0.0, 0, 0, 0, 0)
