"""Crashes at any step of a process: its callbacks, each change of its journals, and before and after each commit.

The stores are those of a peer, on files in memory. What they have committed is there when the process starts again, and
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from ringmq.experiments.simulator.machines.machine_loop import CrashError
from ringmq.mqtt_front.sessions.shell.sqlite_journal import Store
from ringmq.peer.engines.partitioned.shell.record_store import Change, RecordStore, Subject


class CrashPoints:
    """The steps of one process that it may end at."""

    def __init__(self) -> None:
        self.ends_in: int | None = None
        """After so many further steps the process ends; None: it does not."""
        self.on_end: Callable[[str], None] = _nothing

    def passed(self, step: str) -> None:
        """Raises CrashError if this is the last step."""
        if self.ends_in is None:
            return
        self.ends_in -= 1
        if self.ends_in < 0:
            self.ends_in = None
            self.on_end(step)
            raise CrashError


class SimulatedStore(Store):
    """The journal of a front."""

    points: CrashPoints

    def commit(self) -> None:
        if self.pending:
            self.points.passed("before the commit of the clients")
        super().commit()
        self.points.passed("after the commit of the clients")

    def _do(self, change: str, *values: object) -> None:
        self.points.passed("within changes of the clients")
        super()._do(change, *values)


class SimulatedRecordStore(RecordStore):
    """The disk of the records that a peer keeps for others."""

    points: CrashPoints

    def commit(self) -> None:
        if self.pending:
            self.points.passed("before the commit of the records")
        super().commit()
        self.points.passed("after the commit of the records")

    def _do(self, subject: Subject, *changes: Change) -> None:
        self.points.passed("within changes of the records")
        super()._do(subject, *changes)


def _nothing(step: str) -> None:
    pass
