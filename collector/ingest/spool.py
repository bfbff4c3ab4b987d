"""Puts batches of lines into the landing folder: each record once, whenever the process or the power ends.

Owns the folders `spool`, `landing` and `dead` of the data folder, and the state `ingest.json`: what was seen, and how
many batches were landed. Knows nothing of where the lines come from.

A batch is landed in three steps. Its files are written into the spool, beside the landing folder; then the state is
replaced by one that counts the batch and what was seen in it; then the files are moved. So at a start a file in the
spool that the state counts is to be moved still, and any other was never acknowledged: it is removed, and sent again.
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
"""To be raised whenever the state changes."""
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
    """Of this folder, for ever: in the names of its files, and of its sessions at peers."""
    batches: Count = 0
    """How many were landed: files of these that are still in the spool are to be moved."""
    given_up: Count = 0
    sources: list[Source] = []


class Spool:
    """One ingest's way into its data folder, which nobody else may use meanwhile. All methods raise CollectorError, one
    line each; after that it is not to be used any more.
    """

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        """Make what is missing, and bring what an earlier one left in the spool to its end."""
        self.folder = folder
        self.files = 0
        """That were landed with records in them."""
        self._disk = disk or Disk()
        self._make_folders()
        state = self._read()
        self.id = state.id
        self._batches = state.batches
        try:
            self.seen = Seen(state.sources, state.given_up)
        except ValueError as error:
            raise self._damaged(error) from error
        self._recover()

    def land(self, batch: Batch) -> None:
        """When this returns, its lines are in the landing folder, and what `seen` has seen is remembered."""
        wanted = [(kind, lines) for kind, lines in ((LANDING, batch.records), (DEAD, batch.dead)) if lines]
        if not wanted:
            return
        name = f"{self.id}-{self._batches + 1:012}.jsonl"
        for kind, lines in wanted:
            self._disk.write(self._spool(kind) / name, lines)
            self._disk.sync(self._spool(kind))
        self._batches += 1
        self._write()
        for kind, _ in wanted:
            self._move(kind, name)
            self._disk.sync(self.folder / kind)
        self.files += bool(batch.records)

    def _spool(self, kind: str) -> Path:
        return self.folder / SPOOL / kind

    def _move(self, kind: str, name: str) -> None:
        self._disk.move(self._spool(kind) / name, self.folder / kind / name)

    def _make_folders(self) -> None:
        for kind in (LANDING, DEAD):
            self._disk.make(self.folder / kind)
            self._disk.make(self._spool(kind))

    def _read(self) -> State:
        """The state as it was left; a new one, which is written, if there is none."""
        raw = self._disk.read(self.folder / STATE_FILE)
        if raw is None:
            self.id, self._batches, self.seen = secrets.token_hex(6), 0, Seen()
            self._write()
            return State(id=self.id)
        try:
            version = msgspec.json.decode(raw, type=_Versioned).v
            if version == STATE_VERSION:
                return msgspec.json.decode(raw, type=State)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._damaged(error) from error
        advice = "use the ringmq that wrote it, or another folder"
        raise CollectorError(f"data: {self.folder / STATE_FILE} is of version {version}, not {STATE_VERSION}: {advice}")

    def _damaged(self, error: Exception) -> CollectorError:
        advice = "restore it, or remove it: what peers send again is then landed again"
        return CollectorError(f"data: {self.folder / STATE_FILE} is damaged ({str(error)[:200]}): {advice}")

    def _write(self) -> None:
        state = State(id=self.id, batches=self._batches, given_up=self.seen.given_up, sources=self.seen.sources)
        file = self.folder / STATE_FILE
        fresh = file.with_suffix(".new")
        self._disk.write(fresh, [msgspec.json.encode(state), b"\n"])
        self._disk.move(fresh, file)
        self._disk.sync(self.folder)

    def _recover(self) -> None:
        for kind in (LANDING, DEAD):
            for name in self._disk.names(self._spool(kind)):
                match = _NAME.fullmatch(name)
                if match is None:
                    continue
                # What a state that is gone may have counted is better landed twice than never.
                if match[1] != self.id or int(match[2]) <= self._batches:
                    self._move(kind, name)
                else:
                    self._disk.remove(self._spool(kind) / name)
            self._disk.sync(self.folder / kind)
