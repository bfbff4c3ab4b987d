"""Registrations on their way: fewer while answers are slow, and the oldest first."""

from __future__ import annotations

from ringmq.peer.engines.partitioned.messages import Register
from ringmq.peer.engines.partitioned.subscribing.registrations import (
    FEWEST_UNANSWERED,
    LARGER,
    MOST_UNANSWERED,
    SLOW_S,
    Window,
)
from tests.peer.engines.partitioned.homes import Home

SLOW = 2 * SLOW_S


def test_slow_answers_make_the_window_smaller_once_for_what_was_asked_together() -> None:
    window = Window()
    now = 0.0
    for _ in range(10):
        window.answered(now, now + SLOW)
    assert FEWEST_UNANSWERED < window.size < MOST_UNANSWERED
    before = window.size
    window.answered(now + SLOW / 2, now + 2 * SLOW)
    assert window.size == before, "it was asked before the last change"
    for _ in range(30):
        now += SLOW
        window.answered(now, now + SLOW)
    assert window.size == FEWEST_UNANSWERED


def test_the_window_grows_again_up_to_its_bound() -> None:
    window = Window()
    window.answered(0.0, SLOW)
    before = window.size
    window.answered(SLOW, SLOW + SLOW_S / 2)
    assert window.size == before + LARGER
    for number in range(1, 100):
        window.answered(SLOW + number, SLOW + number)
    assert window.size == MOST_UNANSWERED


def test_a_crowd_is_registered_in_smaller_parts_when_answers_are_slow() -> None:
    """Whatever is registered lies before acknowledgements and leases of others, so its work must not take long."""
    home = Home(3)
    names = [f"t/{number}" for number in range(20 * MOST_UNANSWERED)]
    done = home.subscribe(*names)
    unanswered = []
    for _ in range(20):
        home.run(SLOW, work=False)
        unanswered.append(home_sent(home) - len(done))
        home.work()
        home.grant()
        home.hear()
    assert unanswered[0] >= MOST_UNANSWERED
    # Filters of one partition are registered together.
    assert 0 < unanswered[-1] < 2 * FEWEST_UNANSWERED


def home_sent(home: Home) -> int:
    return sum(len(item.entries) for _, item in home.items(Register) if isinstance(item, Register))


def test_the_oldest_filters_are_registered_first() -> None:
    """A client gets its SUBACK with the last of its filters, so it must not wait for those that came later."""
    home = Home(3)
    first = [f"first/{number}" for number in range(MOST_UNANSWERED)]
    middle = [f"middle/{number}" for number in range(200)]
    last = [f"last/{number}" for number in range(200)]
    home.subscribe(*first)
    home.subscriber.flush()
    home.subscribe(*middle)
    home.subscriber.flush()
    home.subscribe(*last)
    for _ in range(20):
        home.settle()
        home.run(0.05)
    order = [entry.filter for _, item in home.items(Register) if isinstance(item, Register) for entry in item.entries]
    places = {name: place for place, name in enumerate(order)}
    assert sum(places[name] for name in middle) < sum(places[name] for name in last)
