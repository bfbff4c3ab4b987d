"""Signals as KeyboardInterrupt, at once or when it may be."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ringmq.collector.spark.interruption import NUMBERS, Interruption, interruptible


def send(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@contextmanager
def cleaned_up_badly() -> Iterator[None]:
    try:
        yield
    finally:
        raise ValueError("the connection is in a state that it should not be in")


@pytest.mark.parametrize("number", NUMBERS)
def test_what_an_interruption_tears_is_no_error(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible(), cleaned_up_badly():
        send(number)
    assert signal.getsignal(number) is before


def test_other_errors_stay() -> None:
    with pytest.raises(ValueError, match="by itself"), interruptible():
        raise ValueError("by itself")


def interrupted(steps: Callable[[Interruption], Iterator[str]]) -> list[str]:
    """How far the steps come."""
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), interruptible() as interruption:
        done.extend(steps(interruption))
    return done


@pytest.mark.parametrize("number", NUMBERS)
def test_while_it_is_held_it_is_noted_and_raised_afterwards(number: signal.Signals) -> None:
    def steps(interruption: Interruption) -> Iterator[str]:
        interruption.hold()
        interruption.check()
        yield "held"
        send(number)
        assert interruption.came
        yield "sent"
        interruption.release()
        yield "released"

    before = signal.getsignal(number)
    assert interrupted(steps) == ["held", "sent"]
    assert signal.getsignal(number) is before


def test_who_looks_need_not_wait_for_the_end() -> None:
    def steps(interruption: Interruption) -> Iterator[str]:
        interruption.hold()
        send()
        yield "sent"
        interruption.check()
        yield "checked"

    assert interrupted(steps) == ["sent"]


def test_an_error_while_it_is_held_is_the_interruption() -> None:
    def steps(interruption: Interruption) -> Iterator[str]:
        interruption.hold()
        send()
        yield "sent"
        raise ValueError("it was torn")

    assert interrupted(steps) == ["sent"]


def test_the_second_is_raised_at_once() -> None:
    def steps(interruption: Interruption) -> Iterator[str]:
        interruption.hold()
        send()
        yield "once"
        send()
        yield "twice"

    assert interrupted(steps) == ["once"]


def test_once_released_it_is_raised_at_once() -> None:
    def steps(interruption: Interruption) -> Iterator[str]:
        interruption.hold()
        interruption.release()
        yield "released"
        send()
        yield "sent"

    assert interrupted(steps) == ["released"]
