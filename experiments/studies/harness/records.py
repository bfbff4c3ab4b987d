"""Copies the records of one trial's peers into the landing folder of a data folder, limited to the measured time.

Knows the times in the lines of `logger.records`, and the folder where the collector looks for files.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from ringmq.collector.ingest.spool import LANDING

SUFFIX: Final = ".jsonl"


class _RecordTimes(msgspec.Struct, gc=False):
    at: float
    sent_ns: int = 0
    """When the message of a delivery was published; 0 in other records."""


def land(files: Iterable[Path], data: Path, run: str, since: float, until: float) -> int:
    """Copy the records between two times, in seconds since 1970, and return their number.

    A delivery counts at the time when its message was published, so all deliveries of a message are copied, or none.
    """
    landing = data / LANDING
    landing.mkdir(parents=True, exist_ok=True)
    landed = 0
    for number, file in enumerate(files):
        lines = [line for line in _lines(file) if _is_within(line, since, until)]
        # The stream reads only *.jsonl, so it never sees an incomplete file.
        fresh = landing / f"{run}-{number}.part"
        fresh.write_bytes(b"".join(lines))
        fresh.replace(fresh.with_suffix(SUFFIX))
        landed += len(lines)
    return landed


def _lines(file: Path) -> list[bytes]:
    """The complete lines of a file. A killed peer may have left an incomplete last line."""
    try:
        lines = file.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [line for line in lines if line.endswith(b"\n")]


_decoder: Final = msgspec.json.Decoder(_RecordTimes)


def _is_within(line: bytes, since: float, until: float) -> bool:
    times = _decoder.decode(line)
    return since <= (times.sent_ns / 1e9 or times.at) <= until
