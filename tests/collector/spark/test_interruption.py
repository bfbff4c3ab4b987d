"""Signals as KeyboardInterrupt, at once or postponed."""

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
        raise ValueError("the connection is in an unexpected state")


@pytest.mark.parametrize("number", NUMBERS)
def test_error_after_a_signal_becomes_the_interruption(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible(), cleaned_up_badly():
        send(number)
    assert signal.getsignal(number) is before


def test_error_without_a_signal_is_raised() -> None:
    with pytest.raises(ValueError, match="by itself"), interruptible():
        raise ValueError("by itself")


def interrupted(steps: Callable[[Interruption], Iterator[str]]) -> list[str]:
    """The steps completed before the interruption."""
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), interruptible() as interruption:
        done.extend(steps(interruption))
    return done


@pytest.mark.parametrize("number", NUMBERS)
def test_postponed_signal_is_raised_by_resume(number: signal.Signals) -> None:
    def steps(interruption: Interruption) -> Iterator[str]:
        interruption.postpone()
        interruption.check()
        yield "postponed"
        send(number)
        assert interruption.received
        yield "sent"
        interruption.resume()
        yield "resumed"

    before = signal.getsignal(number)
    assert interrupted(steps) == ["postponed", "sent"]
    assert signal.getsignal(number) is before


def test_check_raises_a_postponed_signal() -> None:
    def steps(interruption: Interruption) -> Iterator[str]:
        interruption.postpone()
        send()
        yield "sent"
        interruption.check()
        yield "checked"

    assert interrupted(steps) == ["sent"]


def test_error_while_postponed_becomes_the_interruption() -> None:
    def steps(interruption: Interruption) -> Iterator[str]:
        interruption.postpone()
        send()
        yield "sent"
        raise ValueError("the step was interrupted")

    assert interrupted(steps) == ["sent"]


def test_second_signal_is_raised_at_once() -> None:
    def steps(interruption: Interruption) -> Iterator[str]:
        interruption.postpone()
        send()
        yield "once"
        send()
        yield "twice"

    assert interrupted(steps) == ["once"]


def test_signal_after_resume_is_raised_at_once() -> None:
    def steps(interruption: Interruption) -> Iterator[str]:
        interruption.postpone()
        interruption.resume()
        yield "resumed"
        send()
        yield "sent"

    assert interrupted(steps) == ["resumed"]
