"""Due actions run in the order of their times, once."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.timers import TimerQueue

times = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 7.0]), max_size=30)


@given(times)
def test_what_is_due_first_is_done_first_and_equals_in_their_order(dues: list[float]) -> None:
    timers, done = TimerQueue(), []
    assert timers.next_at == inf
    for number, due in enumerate(dues):
        timers.at(due, lambda now, subject: done.append((now, subject)), number)
    assert len(timers) == len(dues)
    assert timers.next_at == min(dues, default=inf)
    timers.run(inf)
    assert [subject for _, subject in done] == sorted(range(len(dues)), key=lambda number: (dues[number], number))
    assert len(timers) == 0


@given(times, st.lists(st.floats(0, 8), min_size=1, max_size=5))
def test_nothing_is_done_before_its_time_or_twice(dues: list[float], looks: list[float]) -> None:
    timers, done = TimerQueue(), []
    for number, due in enumerate(dues):
        timers.at(due, lambda now, subject: done.append((now, subject)), number)
    for now in sorted(looks):
        timers.run(now)
        late = {number for number, due in enumerate(dues) if due <= now}
        assert {subject for _, subject in done} == late
        assert all(dues[subject] <= at <= now for at, subject in done)
        assert timers.next_at > now
    assert len(done) == len(set(done))


def test_an_action_may_plan_for_now_and_for_later() -> None:
    timers, done = TimerQueue(), []

    def act(now: float, subject: object) -> None:
        done.append(subject)
        if subject == "first":
            timers.at(now, act, "at once")
            timers.at(now + 1, act, "later")

    timers.at(1.0, act, "first")
    timers.at(2.0, act, "second")
    timers.run(2.0)
    assert done == ["first", "second", "at once"]
    assert timers.next_at == 3.0
    timers.run(3.0)
    assert done[-1] == "later"


def test_no_more_is_done_at_once_than_is_allowed() -> None:
    timers, done = TimerQueue(), []
    for number in range(5):
        timers.at(number, lambda now, subject: done.append(subject), number)
    timers.run(3.0, 2)
    assert done == [0, 1]
    assert timers.next_at == 2
    timers.run(3.0, 5)
    assert done == [0, 1, 2, 3]


def test_subjects_need_not_be_comparable() -> None:
    timers, done = TimerQueue(), []
    subjects = [object(), {}, None, "x"]
    for subject in subjects:
        timers.at(1.0, lambda now, subject: done.append(subject), subject)
    timers.run(1.0)
    assert done == subjects
