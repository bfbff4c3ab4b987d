"""Lasting entries: the filters of sessions that outlive the process of their home.

They are live while their home renews its lease, as all entries are. A home that falls silent for longer is *away*: its
lasting entries have lapsed, so that no publisher waits for it, and their records stay at all copies and on their disks
until the home registers again or ends them, or for `LASTING_S`. Knows neither homes' leases nor disks.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ringmq.peer.engines.partitioned.messages import EntryFlag
from ringmq.peer.replication.record import RecordKind, SharedRecord

LASTING_S: Final = 7 * 86_400
"""How long the entries of a home that is away are kept: a site that is closed for some days finds them. A home that
never returns must not take room for ever."""
# Operators of an IntFlag take longer than the rest of a check.
LASTING: Final = int(EntryFlag.LASTING)
OF_HOMES: Final = int(EntryFlag.LASTING | EntryFlag.WIDE)
"""Flags that a home may set."""
_AWAY: Final = int(EntryFlag.LASTING | EntryFlag.LAPSED)
_TIME_BYTES: Final = 8


def is_lasting(record: SharedRecord) -> bool:
    """Whether the record of an entry must be on the disk: it is live, or its home is away."""
    return record.kind is RecordKind.ENTRY and bool(record.flags & LASTING)


def is_away(record: SharedRecord) -> bool:
    """Whether the home of a lasting entry has been silent for longer than its lease."""
    return record.gone and is_lasting(record)


def lapsed(record: SharedRecord, wall_s: int) -> SharedRecord:
    """What remains of a live entry when the lease of its home runs out: of a lasting one, that its home is away."""
    if not is_lasting(record):
        return record.ended(EntryFlag.LAPSED)
    # With the time, all copies forget the record together, however often it is copied meanwhile.
    return replace(record.ended(_AWAY), body=wall_s.to_bytes(_TIME_BYTES, "big"))


def away_since(record: SharedRecord) -> int:
    """The time at which the lease of a home that is away ran out, in seconds of the wall clock."""
    return int.from_bytes(record.body[:_TIME_BYTES], "big")


def is_over(record: SharedRecord, wall_s: int) -> bool:
    """Whether a home has been away for longer than its entries are kept."""
    return is_away(record) and away_since(record) + LASTING_S <= wall_s
