"""Records as rows of a message, with a table of their homes: a home of a thousand filters is sent once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Final

from msgspec.structs import replace

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Row
from ringmq.peer.replication.record import SharedRecord

ROW_BYTES: Final = 48
"""An estimate of a row without its name and its body."""


class RowWriter:
    """Collects rows up to a size."""

    __slots__ = ("_homes", "rows", "size")

    def __init__(self) -> None:
        self._homes: dict[Peer, int] = {}
        self.rows: list[Row] = []
        self.size = 0

    def add(self, partition: int, record: SharedRecord) -> None:
        home = -1 if record.home is None else self._homes.setdefault(record.home, len(self._homes))
        self.rows.append(
            Row(
                partition, record.kind, record.name, home, record.number, record.gone, record.confirmed, record.flags,
                record.body,
            )
        )  # fmt: skip
        self.size += ROW_BYTES + len(record.name) + len(record.body)

    @property
    def homes(self) -> tuple[Peer, ...]:
        return tuple(self._homes)


def read_rows(
    homes: tuple[Peer, ...], rows: Iterable[Row], accepts: Callable[[int, SharedRecord], bool]
) -> Iterator[tuple[int, SharedRecord]]:
    """Each row's partition and record, without those that `accepts` refuses: their sender is faulty."""
    for row in rows:
        home = homes[row.home] if 0 <= row.home < len(homes) else None
        record = SharedRecord(row.kind, row.name, home, row.number, row.gone, row.confirmed, row.flags, row.body)
        if accepts(row.partition, record):
            yield row.partition, record


class Expiries:
    """When retained messages expire. Records are sent with the time that is left, as the clocks of peers differ."""

    __slots__ = ("_aged", "_ends_at", "_remaining")

    def __init__(self, remaining_of: Callable[[bytes], int | None], aged: Callable[[bytes, int], bytes]) -> None:
        """`remaining_of` reads the remaining seconds from a body, None if it does not expire; `aged` writes them."""
        self._remaining = remaining_of
        self._aged = aged
        self._ends_at: dict[str, float] = {}

    def changed(self, record: SharedRecord, now: float) -> None:
        """A record is valid from now on, or has ended."""
        remaining_s = None if record.gone else self._remaining(record.body)
        if remaining_s is not None:
            self._ends_at[record.name] = now + remaining_s
        elif self._ends_at:
            self._ends_at.pop(record.name, None)

    def forget(self, name: str) -> None:
        self._ends_at.pop(name, None)

    def due(self, now: float) -> list[str]:
        """The names of records that have expired."""
        return [name for name, at in self._ends_at.items() if at <= now]

    def told(self, record: SharedRecord, now: float) -> SharedRecord:
        """The record as it is sent to another peer."""
        ends_at = self._ends_at.get(record.name, inf) if self._ends_at and not record.gone else inf
        if ends_at == inf:
            return record
        remaining_s = round(ends_at - now)
        # A copy must not outlive the message because this peer has not looked at it since it expired.
        return replace(record, body=self._aged(record.body, remaining_s)) if remaining_s > 0 else record.ended()
