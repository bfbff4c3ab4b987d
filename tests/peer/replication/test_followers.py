"""A call is made when all followers have applied every message that it waits for, in whatever order they confirm."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.replication.followers import Call, Follower, Waiter


def follower(number: int = 1) -> Follower:
    return Follower(Peer(Id(number), "10.0.0.1", 4883, 1))


def nothing() -> None: ...


def test_follower_that_is_not_behind_is_not_waited_for() -> None:
    waiter = Waiter()
    follower().await_by(waiter)
    assert not waiter.missing


@given(st.permutations(range(1, 8)), st.integers(1, 7))
def test_waiter_needs_all_messages_up_to_its_own(order: list[int], position: int) -> None:
    shadow, waiter = follower(), Waiter()
    for _ in range(position):
        shadow.sends()
    shadow.await_by(waiter)
    for _ in range(7 - position):
        shadow.sends()
    applied: set[int] = set()
    for number in order:
        complete = shadow.has_applied(number)
        before = set(range(1, position + 1)) <= applied
        applied.add(number)
        now = set(range(1, position + 1)) <= applied
        assert complete == ([waiter] if now and not before else [])


def test_waiter_needs_all_followers() -> None:
    first, second, waiter = follower(1), follower(2), Waiter()
    for shadow in (first, second):
        shadow.sends()
        shadow.await_by(waiter)
    assert first.has_applied(1) == []
    assert second.has_applied(1) == [waiter]


def test_waiter_that_waits_for_a_later_message_ignores_the_earlier_one() -> None:
    shadow, waiter = follower(), Waiter()
    shadow.sends()
    shadow.await_by(waiter)
    shadow.sends()
    shadow.await_by(waiter)
    assert shadow.has_applied(1) == []
    assert shadow.has_applied(2) == [waiter]


def test_follower_that_is_gone_is_not_waited_for_and_reports_each_waiter_once() -> None:
    shadow, waiter = follower(), Waiter()
    for _ in range(2):
        shadow.sends()
        shadow.await_by(waiter)
    assert shadow.gone() == [waiter]
    assert not shadow.behind
    assert shadow.has_applied(2) == []


def test_forgotten_messages_need_no_confirmation() -> None:
    shadow, waiter = follower(), Waiter()
    for _ in range(3):
        shadow.sends()
    shadow.await_by(waiter)
    shadow.has_applied(3)
    assert shadow.forget(2) == [waiter]
    assert not shadow.behind


def test_released_followers_complete_a_waiter_once() -> None:
    first, second, waiter = follower(1), follower(2), Waiter()
    for shadow in (first, second):
        shadow.sends()
        shadow.await_by(waiter)
    assert not waiter.released([first])
    assert waiter.released([second])
    assert not waiter.released([second])


def test_calls_of_stopped_partitions_are_taken_out() -> None:
    waiter, made = Waiter(), []
    for partition in (1, 2):
        waiter.partitions.add(partition)
        waiter.calls.append(Call(partition, lambda partition=partition: made.append(partition), True, nothing))
    assert [call.partition for call in waiter.without({2, 3})] == [2]
    assert waiter.partitions == {1}
    waiter.call()
    waiter.call()
    assert made == [1]
