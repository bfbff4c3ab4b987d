"""Ranges of partitions, also false ones."""

from __future__ import annotations

from ringmq.peer.replication.space import PARTITIONS, partitions_in, runs_of


def test_ranges_hold_each_partition_once() -> None:
    assert list(partitions_in(runs_of([5, 3, 4, 9]))) == [3, 4, 5, 9]


def test_false_ranges_repeat_nothing_and_leave_nothing() -> None:
    assert list(partitions_in([(2, 4), (3, 5), (9, 8), (1, 1), (-3, 1), (7, 7)])) == [2, 3, 4, 5, 7]
    assert len(list(partitions_in([(0, PARTITIONS + 7)] * 1000))) == PARTITIONS
