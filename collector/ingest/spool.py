"""Moves batches of lines into the landing folder, each record exactly once, even if the process or the power fails.

Owns the folders `spool`, `landing` and `dead` of the data folder, and the state `ingest.json`: the records seen and the
number of landed batches. Knows nothing about the source of the lines.

A batch is landed in three steps. First its files are written into the spool, beside the landing folder. Then the state
is replaced by a state that includes the batch and its records. Then the files are moved. So at a start, files in the
spool that the state includes must still be moved. Any other file was never acknowledged: it is removed, and the peers
send its records again.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.collector.errors import CollectorError
from ringmq.collector.ingest.durable_files import Disk
from ringmq.collector.ingest.intake import Batch
from ringmq.collector.ingest.seen import MAX_COUNT, Seen, Source

STATE_FILE: Final = "ingest.json"
STATE_VERSION: Final = 1
"""The version of the state file. Raise it whenever the format changes."""
LANDING: Final = "landing"
DEAD: Final = "dead"
SPOOL: Final = "spool"
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]

_NAME: Final = re.compile(r"([0-9a-f]{12})-([0-9]{12,19})\.jsonl")


class _Versioned(msgspec.Struct):
    v: int


class State(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The content of the state file."""

    v: int = STATE_VERSION
    id: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
    """The permanent id of this folder, part of the names of its files and of its MQTT client ids."""
    batches: Count = 0
    """The number of landed batches. Files of these batches that are still in the spool must be moved."""
    given_up: Count = 0
    sources: list[Source] = []


class Spool:
    """Writes into the data folder of one ingest, which must hold its lock. All methods raise CollectorError with one
    line; after an error the spool must not be used again.
    """

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        """Create missing folders, and finish or remove the batches that an earlier process left in the spool."""
        self.folder = folder
        self.files = 0
        """Landed files with records."""
        self._disk = disk or Disk()
        self._make_folders()
        state = self._read_state()
        self.id = state.id
        self._batches = state.batches
        try:
            self.seen = Seen(state.sources, state.given_up)
        except ValueError as error:
            raise self._damaged(error) from error
        self._recover()

    def land(self, batch: Batch) -> None:
        """Land a batch. On return its lines are in their folders, and the state of `seen` is on the disk."""
        contents = [(kind, lines) for kind, lines in ((LANDING, batch.records), (DEAD, batch.dead)) if lines]
        if not contents:
            return
        name = f"{self.id}-{self._batches + 1:012}.jsonl"
        for kind, lines in contents:
            self._disk.write(self._spool_folder(kind) / name, lines)
            self._disk.sync(self._spool_folder(kind))
        # The commit: before this write a restart removes the files, after it a restart moves them.
        self._batches += 1
        self._write_state()
        for kind, _ in contents:
            self._move(kind, name)
            self._disk.sync(self.folder / kind)
        self.files += bool(batch.records)

    def _spool_folder(self, kind: str) -> Path:
        return self.folder / SPOOL / kind

    def _move(self, kind: str, name: str) -> None:
        self._disk.move(self._spool_folder(kind) / name, self.folder / kind / name)

    def _make_folders(self) -> None:
        for kind in (LANDING, DEAD):
            self._disk.make(self.folder / kind)
            self._disk.make(self._spool_folder(kind))

    def _read_state(self) -> State:
        """The state on the disk. Without a state file, writes and returns a new state."""
        raw = self._disk.read(self.folder / STATE_FILE)
        if raw is None:
            # Written at once: the id must be permanent before a peer creates a session under it.
            self.id, self._batches, self.seen = secrets.token_hex(6), 0, Seen()
            self._write_state()
            return State(id=self.id)
        try:
            # The version is read alone first, since a state of another version need not fit the type `State`.
            version = msgspec.json.decode(raw, type=_Versioned).v
            if version == STATE_VERSION:
                return msgspec.json.decode(raw, type=State)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._damaged(error) from error
        advice = "use the ringmq that wrote it, or another folder"
        raise CollectorError(
            f"data: {self.folder / STATE_FILE} must have version {STATE_VERSION}, got {version}: {advice}"
        )

    def _damaged(self, error: Exception) -> CollectorError:
        advice = "restore it, or remove it: records that peers send again are then landed again"
        return CollectorError(f"data: {self.folder / STATE_FILE} is damaged ({str(error)[:200]}): {advice}")

    def _write_state(self) -> None:
        state = State(id=self.id, batches=self._batches, given_up=self.seen.given_up, sources=self.seen.sources)
        file = self.folder / STATE_FILE
        fresh = file.with_suffix(".new")
        self._disk.write(fresh, [msgspec.json.encode(state), b"\n"])
        self._disk.move(fresh, file)
        self._disk.sync(self.folder)

    def _recover(self) -> None:
        for kind in (LANDING, DEAD):
            for name in self._disk.names(self._spool_folder(kind)):
                match = _NAME.fullmatch(name)
                if match is None:
                    continue
                # A file with another id was written under a state that was removed, which may have included it: its
                # records may already be acknowledged, so they are better landed twice than never.
                if match[1] != self.id or int(match[2]) <= self._batches:
                    self._move(kind, name)
                else:
                    self._disk.remove(self._spool_folder(kind) / name)
            self._disk.sync(self.folder / kind)
