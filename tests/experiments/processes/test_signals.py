"""SIGTERM handled like Ctrl-C."""

from __future__ import annotations

import signal

import pytest

from ringmq.experiments.processes.signals import held_back, sigterm_interrupts


def test_sigterm_interrupts_while_the_context_lasts() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with sigterm_interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_that_is_held_back_arrives_at_the_end_of_the_context(number: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGTERM)
    done: list[str] = []

    def work() -> None:
        signal.raise_signal(number)
        done.append("all")

    with sigterm_interrupts():
        with pytest.raises(KeyboardInterrupt), held_back():
            work()
        assert done == ["all"]
        with held_back():
            done.clear()
    assert (done, signal.getsignal(signal.SIGTERM)) == ([], before)
