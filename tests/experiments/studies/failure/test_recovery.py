"""The effect of a kill, measured on made-up deliveries."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace

import pytest

from ringmq.experiments.studies.failure.recovery import (
    BIN_S,
    ON_TIME_S,
    STEP_S,
    Recovery,
    measure_recovery,
    rate_over_time,
)
from ringmq.experiments.studies.harness.traffic import Arrivals, Traffic
from tests.experiments.studies.making import traffic

EVERY_S = 0.02
END_S = 20.0
KILL_S = 10.0
MESSAGES = round(END_S / EVERY_S)
PUBLISHERS = (0, 1, 2, 3, 4)
SUBSCRIBERS = (0, 1, 2, 3)
DEAD = {4, 0}


def played(lost_s: float, late: bool = False, of_dead: bool = True) -> Traffic:
    """Publishers 0 to 4 take turns; peers 4 and 0 die.

    For `lost_s` after the kill, messages to live clients are lost or, if `late`, arrive at the end of that time.
    """
    numbers = list(range(MESSAGES))
    publisher_of = [PUBLISHERS[number % len(PUBLISHERS)] for number in numbers]
    if of_dead:
        numbers = [number for number in numbers if publisher_of[number] not in DEAD or number * EVERY_S < KILL_S]
    published_at = [number * EVERY_S for number in numbers]
    publishers = [publisher_of[number] for number in numbers]
    came: dict[int, list[tuple[int, float]]] = {position: [] for position in SUBSCRIBERS}
    for position in SUBSCRIBERS:
        for number, sent in enumerate(published_at):
            held = KILL_S <= sent < KILL_S + lost_s
            if (position in DEAD and sent >= KILL_S) or (held and not late):
                continue
            came[position].append((number, KILL_S + lost_s if held else sent + 0.005))
    return traffic(publishers, published_at, list(came.items()))


def recovery_after(lost_s: float, late: bool = False) -> Recovery:
    return measure_recovery(played(lost_s, late), DEAD, KILL_S)


def test_without_a_fall_the_recovery_takes_no_time() -> None:
    found = recovery_after(0.0)
    assert found.recovered_s == 0
    assert found.lowest == found.lowest_before == 1
    assert found.lost_live == found.lost_after == 0
    assert found.share == pytest.approx(1 - 3 / 5 * 3 / 4)


@pytest.mark.parametrize("lost_s", [0.5, 1.5, 4.0])
def test_a_fall_lasts_until_the_rate_is_back(lost_s: float) -> None:
    found = recovery_after(lost_s)
    assert found.recovered_s == pytest.approx(lost_s, abs=STEP_S)
    assert found.lowest == 0
    assert found.lost_live == found.lost_after == pytest.approx(3 * 3 / 5 * lost_s / EVERY_S, abs=6)


def test_late_deliveries_are_a_fall_of_the_rate_but_not_lost() -> None:
    found = recovery_after(1.5, late=True)
    assert found.lost_live == 0
    assert found.lowest == 0
    assert found.recovered_s == pytest.approx(1.5 - ON_TIME_S, abs=STEP_S)
    assert recovery_after(ON_TIME_S, late=True).recovered_s == 0


def keep_only(arrivals: Arrivals, kept: Callable[[int], bool]) -> None:
    """Remove the arrivals of all other message numbers."""
    pairs = [(number, at) for number, at in zip(arrivals.numbers, arrivals.times, strict=True) if kept(number)]
    arrivals.numbers = array("L", [number for number, _ in pairs])
    arrivals.times = array("d", [at for _, at in pairs])


def test_disturbances_long_before_or_after_the_kill_do_not_extend_the_recovery() -> None:
    observed = played(0.5)
    for arrivals in observed.arrivals:
        for index, number in enumerate(arrivals.numbers):
            sent = observed.published_at[number]
            if 5.0 <= sent < 5.2 or 15.0 <= sent < 15.2:
                arrivals.times[index] += 2 * ON_TIME_S
    found = measure_recovery(observed, DEAD, KILL_S)
    assert found.recovered_s == pytest.approx(0.5, abs=STEP_S)
    assert found.lowest_before == 0
    assert measure_recovery(observed, DEAD, 15.0).recovered_s == pytest.approx(0.2, abs=STEP_S)


def test_loss_of_a_message_in_flight_at_the_kill_is_a_fall() -> None:
    observed = played(0.0)
    published_at, publishers = observed.published_at, observed.publishers
    last = max(number for number, at in enumerate(published_at) if at < KILL_S and publishers[number] == 3)
    for arrivals in observed.arrivals:
        keep_only(arrivals, lambda number: number != last)
    found = measure_recovery(observed, DEAD, published_at[last] + 0.001)
    assert found.recovered_s == pytest.approx(STEP_S)
    assert found.lost_live == found.lost_after == 3
    assert measure_recovery(observed, DEAD, published_at[last] + 0.1).lost_after == 0


def test_rate_that_never_comes_back_has_no_recovery_time() -> None:
    assert recovery_after(END_S).recovered_s is None


def test_losses_of_dead_clients_do_not_count() -> None:
    """Neither the messages that they published nor those that they would have received."""
    observed = played(0.0, of_dead=False)
    for arrivals in observed.arrivals:
        keep_only(arrivals, lambda number: observed.publishers[number] != 4)
    found = measure_recovery(observed, DEAD, KILL_S)
    assert found.lost_live == 0
    assert found.due_live == 3 * sum(position not in DEAD for position in observed.publishers)
    assert measure_recovery(observed, {0}, KILL_S).lost_live > 0


def test_duplicates_count_once_at_their_first_arrival() -> None:
    observed = traffic([0], [5.0], [(1, [(0, 5.1), (0, 9.0)])])
    assert measure_recovery(observed, (), 5.0).recovered_s == 0
    observed = traffic([0], [0.0], [(1, [(0, 0.1), (0, 0.2)]), (2, [])])
    assert measure_recovery(observed, (), 5.0).delivered == 1


def test_rate_over_time_has_all_deliveries_in_their_bins() -> None:
    arrivals = [(1, [(0, 0.01), (1, 0.11), (2, 0.21), (3, 0.31)]), (2, [(3, 99.0)])]
    rates = rate_over_time(traffic([0] * 4, [0.0, 0.1, 0.2, 0.3], arrivals), 1.0)
    assert rates == [(BIN_S / 2, 3 / BIN_S), (1.5 * BIN_S, 1 / BIN_S), (2.5 * BIN_S, 0.0), (3.5 * BIN_S, 0.0)]


def test_trial_without_messages_has_no_fall() -> None:
    found = measure_recovery(traffic([], [], []), (), 1.0)
    assert replace(found, share=0.0) == Recovery(0.0, 1.0, 1.0, 0.0, 0, 0, 0, 0)
