"""The partitions of the key space: every record lives in one of them, and each has a key with an owner and shadows.

Their keys are evenly spaced, so a peer owns a contiguous range, and messages name ranges. Knows no records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeVar

from ringmq.overlay.core.ids import ID_BITS, Id

PARTITION_BITS: Final = 12
PARTITIONS: Final = 1 << PARTITION_BITS
"""A constant of the protocol. With 4,096 the shares of the owners are as even as those of single topics: what remains
is the randomness of the peers' ids."""
_SHIFT: Final = ID_BITS - PARTITION_BITS

NUMBERS: Final = tuple(range(PARTITIONS))
"""Every partition. A slice of it shares the integers: sets of thousands of partitions would take twice the memory."""
Runs = tuple[tuple[int, int], ...]
"""Ranges of partitions, each with its first and its last, in ascending order."""
ALL: Final[Runs] = ((0, PARTITIONS - 1),)

Value = TypeVar("Value")


def partition_of_key(key: int) -> int:
    return key >> _SHIFT


def key_of_partition(partition: int) -> Id:
    """The middle of the partition's range of keys."""
    return Id((2 * partition + 1) << (_SHIFT - 1))


def runs_of(partitions: Iterable[int]) -> Runs:
    """The ranges of these partitions, which need not be sorted."""
    runs: list[tuple[int, int]] = []
    first = last = -2
    for partition in sorted(partitions):
        if partition == last + 1:
            last = partition
        elif partition != last:
            if first >= 0:
                runs.append((first, last))
            first = last = partition
    if first >= 0:
        runs.append((first, last))
    return tuple(runs)


def partitions_in(runs: Iterable[tuple[int, int]]) -> Iterator[int]:
    """All partitions of these ranges, each once. The ranges may come from another peer: what lies outside is left out,
    and what is not in ascending order."""
    beyond = 0
    for first, last in runs:
        if beyond <= last and first <= last:
            yield from NUMBERS[max(beyond, first) : last + 1]
            beyond = last + 1


def equal_runs(partitions: Iterable[int], state_of: Callable[[int], Value]) -> list[tuple[int, int, Value]]:
    """Ranges of neighbouring partitions in the same state; the partitions are in ascending order."""
    steps = ((partition - index, state_of(partition), partition) for index, partition in enumerate(partitions))
    runs = []
    for (_, state), group in groupby(steps, itemgetter(0, 1)):
        members = [partition for _, _, partition in group]
        runs.append((members[0], members[-1], state))
    return runs


def numbered_runs(numbered: list[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Ranges of neighbouring partitions with the same number; the partitions are in ascending order."""
    return tuple(equal_runs([partition for partition, _ in numbered], dict(numbered).__getitem__))


def ones_of(flags: bytearray) -> list[int]:
    """The partitions whose flag is 1."""
    found, at = [], flags.find(1)
    while at >= 0:
        found.append(at)
        at = flags.find(1, at + 1)
    return found
