"""What is due is done, in the order of its time, once."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.timers import Agenda

times = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 7.0]), max_size=30)


@given(times)
def test_what_is_due_first_is_done_first_and_equals_in_their_order(dues: list[float]) -> None:
    agenda, done = Agenda(), []
    assert agenda.next_at == inf
    for number, due in enumerate(dues):
        agenda.at(due, lambda now, subject: done.append((now, subject)), number)
    assert len(agenda) == len(dues)
    assert agenda.next_at == min(dues, default=inf)
    agenda.run(inf)
    assert [subject for _, subject in done] == sorted(range(len(dues)), key=lambda number: (dues[number], number))
    assert len(agenda) == 0


@given(times, st.lists(st.floats(0, 8), min_size=1, max_size=5))
def test_nothing_is_done_before_its_time_or_twice(dues: list[float], looks: list[float]) -> None:
    agenda, done = Agenda(), []
    for number, due in enumerate(dues):
        agenda.at(due, lambda now, subject: done.append((now, subject)), number)
    for now in sorted(looks):
        agenda.run(now)
        late = {number for number, due in enumerate(dues) if due <= now}
        assert {subject for _, subject in done} == late
        assert all(dues[subject] <= at <= now for at, subject in done)
        assert agenda.next_at > now
    assert len(done) == len(set(done))


def test_an_action_may_plan_for_now_and_for_later() -> None:
    agenda, done = Agenda(), []

    def act(now: float, subject: object) -> None:
        done.append(subject)
        if subject == "first":
            agenda.at(now, act, "at once")
            agenda.at(now + 1, act, "later")

    agenda.at(1.0, act, "first")
    agenda.at(2.0, act, "second")
    agenda.run(2.0)
    assert done == ["first", "second", "at once"]
    assert agenda.next_at == 3.0
    agenda.run(3.0)
    assert done[-1] == "later"


def test_no_more_is_done_at_once_than_is_allowed() -> None:
    agenda, done = Agenda(), []
    for number in range(5):
        agenda.at(number, lambda now, subject: done.append(subject), number)
    agenda.run(3.0, 2)
    assert done == [0, 1]
    assert agenda.next_at == 2
    agenda.run(3.0, 5)
    assert done == [0, 1, 2, 3]


def test_subjects_need_not_be_comparable() -> None:
    agenda, done = Agenda(), []
    subjects = [object(), {}, None, "x"]
    for subject in subjects:
        agenda.at(1.0, lambda now, subject: done.append(subject), subject)
    agenda.run(1.0)
    assert done == subjects
