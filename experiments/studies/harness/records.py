"""What peers wrote about one trial, taken into the landing folder of a data folder: only the time that is measured.

Knows the lines of `logger.records` as far as to tell when each was, and where the collector looks for files.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from ringmq.collector.ingest.spool import LANDING

SUFFIX: Final = ".jsonl"


class _Line(msgspec.Struct, gc=False):
    at: float
    sent_ns: int = 0
    """Of a delivery: when its message was published."""


def land(files: Iterable[Path], data: Path, run: str, since: float, until: float) -> int:
    """Take the records of this time, in seconds since 1970, from the files; returns how many.

    Deliveries count by when their message was published, so that of each message all or none are taken.
    """
    landing = data / LANDING
    landing.mkdir(parents=True, exist_ok=True)
    taken = 0
    for number, file in enumerate(files):
        lines = [line for line in _lines(file) if _is_within(line, since, until)]
        fresh = landing / f"{run}-{number}.part"
        fresh.write_bytes(b"".join(lines))
        fresh.replace(fresh.with_suffix(SUFFIX))
        taken += len(lines)
    return taken


def _lines(file: Path) -> list[bytes]:
    """Whole ones: a peer that was killed may have left half of one."""
    try:
        lines = file.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [line for line in lines if line.endswith(b"\n")]


_decoder: Final = msgspec.json.Decoder(_Line)


def _is_within(line: bytes, since: float, until: float) -> bool:
    one = _decoder.decode(line)
    return since <= (one.sent_ns / 1e9 or one.at) <= until
