"""Who this peer is, over restarts: its id, its boot number and whom it knew, in the data folder.

Owns `peer.json` and `lock` there, and nothing else in it. Knows nothing of sockets; the clock is given.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Self

import msgspec
from msgspec import Meta

from ringmq.overlay.config import Address, show
from ringmq.overlay.core.ids import ID_BITS, Id, key_of
from ringmq.peer.errors import DataFolderError
from ringmq.peer.settings.addresses import parse_address

STORED: Final = "peer.json"
MAX_REMEMBERED: Final = 32
"""One that still answers is enough; a leaf set of neighbours scattered over the machines gives plenty."""
MAX_BOOT: Final = (1 << 63) - 1

Text = Annotated[str, Meta(max_length=300)]


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `peer.json`."""

    id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    boot: Annotated[int, Meta(ge=0, lt=MAX_BOOT)]
    peers: Annotated[tuple[Text, ...], Meta(max_length=MAX_REMEMBERED)] = ()


def passing_id(host: str, port: int) -> Id:
    """The id of a peer without a data folder: that of its address, or a random one where the port is not chosen."""
    return key_of(f"{host}:{port}") if port else Id(secrets.randbits(ID_BITS))


def check_folder(folder: Path) -> None:
    """Look whether a peer could use this data folder, and leave it as it is. Raises DataFolderError.

    That another peer has it is no fault: it may be the one whose settings are looked at.
    """
    _check_place(folder)
    _read(folder / STORED)


class DataFolder:
    """One peer's hold on its data folder, until `close`. Every method raises DataFolderError, one line each."""

    def __init__(self, folder: Path, now_ms: int) -> None:
        """Lock the folder, made if missing, and count this start. The boot number grows even if the clock went back."""
        self.folder = folder
        self._file = folder / STORED
        self._lock = self._take_lock()
        try:
            stored = _read(self._file)
            if stored is None:
                stored = Stored(id=Id(secrets.randbits(ID_BITS)).hex(), boot=0)
            self._write(Stored(id=stored.id, boot=max(stored.boot + 1, now_ms), peers=stored.peers))
        except DataFolderError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the folder. The lock file stays: removing it would let two in."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def id(self) -> Id:
        return Id.parse(self._stored.id)

    @property
    def boot(self) -> int:
        return self._stored.boot

    @property
    def remembered(self) -> tuple[Address, ...]:
        """Where the peers were that this one knew last."""
        return tuple(map(parse_address, self._stored.peers))

    def remember(self, peers: Iterable[Address]) -> bool:
        """Keep the first MAX_REMEMBERED of these for the next start; an empty list forgets nobody.

        Returns whether they are others than before: only then is anything written.
        """
        texts = tuple(dict.fromkeys(map(show, peers)))[:MAX_REMEMBERED]
        if not texts or set(texts) == set(self._stored.peers):
            return False
        self._write(Stored(id=self._stored.id, boot=self._stored.boot, peers=texts))
        return True

    def _take_lock(self) -> int:
        _check_place(self.folder)
        path = self.folder / "lock"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DataFolderError(f"data: cannot use {self.folder}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise DataFolderError(f"data: {self.folder} is in use by another peer: each needs its own") from error
        return lock

    def _write(self, stored: Stored) -> None:
        """Atomically, and on the disk when it returns: after a power cut the old or the new content is there."""
        fresh = self._file.with_suffix(".new")
        try:
            with fresh.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(stored)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._file)
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise DataFolderError(f"data: cannot write {self._file}: {error.strerror}") from error
        self._stored = stored


def _check_place(folder: Path) -> None:
    """Whether it is a folder that can be written to, or can be made."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
    try:
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise DataFolderError(f"data: cannot use {folder}: {error.strerror}") from error


def _read(file: Path) -> Stored | None:
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataFolderError(f"data: cannot read {file}: {error.strerror}") from error
    try:
        stored = msgspec.json.decode(raw, type=Stored)
        for text in stored.peers:
            parse_address(text)
    except (msgspec.DecodeError, ValueError) as error:
        advice = "restore it, or remove it to give this peer a new id"
        raise DataFolderError(f"data: {file} is damaged ({error}): {advice}") from error
    return stored
