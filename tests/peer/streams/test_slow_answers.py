"""A pair whose answers have become slow: what gets lost then must not be waited for as long as they took."""

from __future__ import annotations

import pytest

from ringmq.peer.streams.outgoing_stream import LATE_S
from ringmq.peer.streams.streams import FEW_BYTES
from tests.peer.streams.test_streams import A, B, Line


def _slow_line() -> Line:
    """Each answer has taken 2 s."""
    line = Line()
    for _ in range(20):
        line.a.streams.send(B, "x", lambda: None)
        batches = line.a.end()
        line.clock.now += 2.0
        line.b.take(A, batches)
        line.a.take(B, line.b.end())
    assert line.a.streams.answer_s(B) > 2.0
    return line


@pytest.mark.parametrize(("size_bytes", "most_s"), [(1, LATE_S), (FEW_BYTES, 5.0)])
def test_after_slow_answers_few_bytes_are_repeated_soon(size_bytes: int, most_s: float) -> None:
    """If they were lost, nobody waits for long. To repeat many would make a busy receiver slower."""
    line = _slow_line()
    line.a.streams.send(B, "y" * size_bytes, lambda: None)
    line.a.end()
    sent_at = line.clock.now
    while not line.a.streams.counters.resent:
        line.clock.now = line.a.context.timers.next_at
        line.a.context.timers.run(line.clock.now)
    assert most_s / 2 < line.clock.now - sent_at <= most_s
