"""Settings of recording: the contents, amount and destinations of records, each with its unit and trade-off."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ringmq.logger.records import Run

DELIVERIES: Final = ("each", "histogram", "off")
LEAST_INTERVAL_S: Final = 0.1
"""A sample visits all links; shorter intervals would cost a noticeable share of the peer's time."""
MAX_RUN_CHARS: Final = 64
# The name of a ring may contain any character, and the name of a run becomes the name of a folder.
_NOT_IN_A_RUN: Final = re.compile(r"[^A-Za-z0-9._-]")

RANGES: Final[dict[str, tuple[float, float]]] = {
    "interval_s": (0, 86_400),
    "every": (1, 1_000_000_000),
}
"""The allowed range of each number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """The table `[record]` of the peer's file. A wrong value raises ValueError with one clear line."""

    run: str | None = None
    """The name that all peers of one experiment share: 1 to 64 letters, digits, dots, underscores and dashes, since it
    becomes the name of a folder. None: the ring's name."""
    interval_s: float = 1.0
    """Seconds from one sample to the next, which is also the period of a histogram; at least 0.1. Longer intervals cost
    less and show less. 0: no samples."""
    deliveries: str = "each"
    """each: one record per chosen message at every peer that it reaches. histogram: only the latencies of these
    messages, by topic and interval, which takes less space and says nothing about paths. off: neither. All peers of a
    ring must have the same value."""
    every: int = 500
    """One in `every` messages is chosen, by the peer whose client publishes it. 1 records all and costs the most."""
    mqtt: bool = True
    """Whether the records are published on this peer, below `ringmq/log`, for a collector and for any client with
    read access. They cross the ring like other messages, and use its capacity."""
    file: Path | None = None
    """Records are appended to this file, which no other peer may write to. With its older parts it takes at most about
    600 MB. None: no file is written."""
    metrics: tuple[str, int] | None = None
    """The host and port of an HTTP server with `/metrics` for Prometheus. Everybody who can reach it may read it. None:
    no server."""

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            # `not (least <= value)` instead of `value < least`, so that NaN is refused too: it fails every comparison.
            if not least <= value <= most:
                raise ValueError(f"{name} must be {least} to {most}, got {value}")
        if 0 < self.interval_s < LEAST_INTERVAL_S:
            raise ValueError(f"interval_s must be 0 (no samples) or at least {LEAST_INTERVAL_S}, got {self.interval_s}")
        if self.deliveries not in DELIVERIES:
            raise ValueError(f"deliveries must be one of {', '.join(DELIVERIES)}, got {self.deliveries!r}")
        # A histogram covers one interval, and 0 means that there are no intervals.
        if self.deliveries == "histogram" and not self.interval_s:
            raise ValueError("deliveries is histogram, which needs an interval_s above 0")
        if self.run is not None and not is_run(self.run):
            allowed = f"1 to {MAX_RUN_CHARS} letters, digits, dots, underscores and dashes"
            raise ValueError(f"run must be {allowed}, got {self.run!r}")

    def run_name(self, ring: str) -> str:
        """The run that records name: `run`, else the ring's name with underscores for disallowed characters."""
        return self.run if self.run is not None else _NOT_IN_A_RUN.sub("_", ring)[:MAX_RUN_CHARS]


def is_run(text: str) -> bool:
    """Whether this text is a valid name of a run."""
    try:
        msgspec.convert(text, Run)
    except msgspec.ValidationError:
        return False
    return True
