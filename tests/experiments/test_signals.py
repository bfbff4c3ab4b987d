"""SIGTERM as Ctrl-C."""

from __future__ import annotations

import signal

import pytest

from experiments.signals import sigterm_interrupts


def test_sigterm_interrupts_as_long_as_the_context_lasts() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with sigterm_interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
