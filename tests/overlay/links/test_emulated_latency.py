"""Emulated latency: the same on both ends, in every run."""

from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.links.emulated_latency import SLACK_S, DelayLine, pair_delay_s

ids = st.integers(0, SPACE - 1).map(Id)


@given(ids, ids, st.integers(-(2**63), 2**63))
def test_both_ends_agree_within_the_range(first: Id, other: Id, seed: int) -> None:
    delay = pair_delay_s(first, other, (0.001, 0.010), seed)
    assert delay == pair_delay_s(other, first, (0.001, 0.010), seed)
    assert 0.001 <= delay <= 0.010


def test_every_run_gives_the_same() -> None:
    assert round(pair_delay_s(Id(1), Id(2), (0.0, 1.0), 7), 6) == 0.957055


def test_pairs_and_seeds_differ_and_fill_the_range() -> None:
    delays = [pair_delay_s(Id(1), Id(other), (0.0, 1.0), 0) for other in range(2, 1002)]
    assert 0.45 < sum(delays) / len(delays) < 0.55
    assert min(delays) < 0.01
    assert max(delays) > 0.99
    assert pair_delay_s(Id(1), Id(2), (0.0, 1.0), 0) != pair_delay_s(Id(1), Id(2), (0.0, 1.0), 1)


def test_first_in_first_out_after_the_delay() -> None:
    line = DelayLine(0.010)
    line.push(b"one", 1.000)
    line.push(b"two!", 1.004)
    assert line.held_bytes == 7
    assert line.deadline == 1.010
    assert line.due(1.009) == []
    assert line.due(1.010) == [b"one"]
    assert line.held_bytes == 4
    assert line.due(1.014 - SLACK_S) == [b"two!"]
    assert line.deadline is None
    assert line.held_bytes == 0


def test_flush_gives_all_at_once() -> None:
    line = DelayLine(5.0)
    line.push(b"one", 0.0)
    line.push(b"two", 1.0)
    assert line.flush() == [b"one", b"two"]
    assert (line.held_bytes, line.deadline, line.flush()) == (0, None, [])
