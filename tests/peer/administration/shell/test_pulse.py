"""The pulse: rates over the last seconds, and the delay of the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from ringmq.peer.administration.shell import pulse as pulse_module
from ringmq.peer.administration.shell.pulse import Pulse


async def until(pulse: Pulse, beats: int, condition: Callable[[], bool] = lambda: True) -> None:
    deadline = time.monotonic() + 10
    while len(pulse._beats) < beats or not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_rates_are_those_of_the_last_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_module, "BEAT_S", 0.02)
    counted = [0, 0]
    pulse = Pulse(lambda: (counted[0], counted[1]))
    assert pulse.per_second == (0.0, 0.0)
    pulse.start()
    try:
        assert pulse.per_second == (0.0, 0.0), "no time has passed"
        counted[:] = [100, 300]
        await until(pulse, 3)
        came, went = pulse.per_second
        assert came > 0
        assert went == pytest.approx(3 * came)
        await until(pulse, pulse_module.BEATS + 1)
        await until(pulse, 1, lambda: pulse._beats[0][1] == (100, 300))
        assert pulse.per_second == (0.0, 0.0), "the burst is over"
        assert pulse.counts == (100, 300)
    finally:
        pulse.stop()


async def test_a_blocked_event_loop_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_module, "BEAT_S", 0.02)
    pulse = Pulse(lambda: (0, 0))
    pulse.start()
    try:
        began = time.monotonic()
        while time.monotonic() < began + 0.2:
            pass
        await until(pulse, 2)
        assert 0.1 < pulse.late_s < 5
    finally:
        pulse.stop()


async def test_a_stopped_pulse_beats_no_more() -> None:
    pulse = Pulse(lambda: (0, 0))
    pulse.start()
    assert pulse._timer is not None
    timer = pulse._timer
    pulse.stop()
    pulse.stop()
    assert timer.cancelled()
