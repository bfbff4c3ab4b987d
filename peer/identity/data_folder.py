"""Identity of a peer across restarts: its id, its boot number and its known peers, in the data folder.

Owns `peer.json` and `lock` there, and no other file; the overlay serves `control.sock`. Knows nothing of sockets; the
caller passes the time.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Self

import msgspec
from msgspec import Meta

from ringmq.logger.errors import LoggerError
from ringmq.logger.folder_lock import FolderLock
from ringmq.overlay.config import Address, show
from ringmq.overlay.core.ids import ID_BITS, Id, key_of
from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity.durable_file import replace_durably
from ringmq.peer.settings.addresses import parse_address

STORED: Final = "peer.json"
CONTROL: Final = "control.sock"
"""The socket for `ringmq status` and commands on the same machine."""
MAX_REMEMBERED: Final = 32
"""A restart needs one address that still answers, and neighbours in the leaf set are spread over the machines."""
MAX_BOOT: Final = (1 << 63) - 1

Text = Annotated[str, Meta(max_length=300)]


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `peer.json`."""

    id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    boot: Annotated[int, Meta(ge=0, lt=MAX_BOOT)]
    peers: Annotated[tuple[Text, ...], Meta(max_length=MAX_REMEMBERED)] = ()


def passing_id(host: str, port: int) -> Id:
    """The id of a peer without a data folder: the key of its address, or a random id if the system chooses the port."""
    return key_of(f"{host}:{port}") if port else Id(secrets.randbits(ID_BITS))


def check_folder(folder: Path) -> tuple[Address, ...]:
    """Check that a peer could use this data folder, without changing it. Raises DataFolderError.

    Returns the addresses of the peers that were known last.
    """
    # The lock is not checked: the peer that holds it may be the peer whose settings are checked.
    _check_location(folder)
    stored = _read(folder / STORED)
    return () if stored is None else tuple(map(parse_address, stored.peers))


class DataFolder:
    """The data folder of a running peer, locked until `close`. Every method raises DataFolderError with one line."""

    def __init__(self, folder: Path, now_ms: int) -> None:
        """Lock the folder, create it if missing, and raise the boot number, even if the clock went back."""
        self.folder = folder
        self._file = folder / STORED
        self._lock = self._acquire_lock()
        try:
            stored = _read(self._file)
            if stored is None:
                stored = Stored(id=Id(secrets.randbits(ID_BITS)).hex(), boot=0)
            self._write(Stored(id=stored.id, boot=max(stored.boot + 1, now_ms), peers=stored.peers))
        except DataFolderError:
            # The user may repair the file and try again, so the lock must not outlive the failed attempt.
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the folder for another process. Idempotent."""
        self._lock.close()

    @property
    def id(self) -> Id:
        return Id.parse(self._stored.id)

    @property
    def boot(self) -> int:
        return self._stored.boot

    @property
    def remembered(self) -> tuple[Address, ...]:
        """Addresses of the peers that were known last."""
        return tuple(map(parse_address, self._stored.peers))

    def take_id(self, peer_id: Id) -> None:
        """Be the peer with this id from now on, as its certificate says."""
        if peer_id.hex() != self._stored.id:
            self._write(Stored(id=peer_id.hex(), boot=self._stored.boot, peers=self._stored.peers))

    def remember(self, peers: Iterable[Address]) -> bool:
        """Save the first MAX_REMEMBERED addresses for the next start. Returns whether the file was written.

        It is written only if the set of addresses has changed. An empty list changes nothing: a peer that is alone for
        a while must still find its ring after a restart.
        """
        texts = tuple(dict.fromkeys(map(show, peers)))[:MAX_REMEMBERED]
        if not texts or set(texts) == set(self._stored.peers):
            return False
        self._write(Stored(id=self._stored.id, boot=self._stored.boot, peers=texts))
        return True

    def _acquire_lock(self) -> FolderLock:
        _check_location(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataFolderError(f"data: cannot use {self.folder}: {error.strerror}") from error
        try:
            return FolderLock(self.folder, "lock", "peer")
        except LoggerError as error:
            raise DataFolderError(str(error)) from error

    def _write(self, stored: Stored) -> None:
        """Replace the file atomically and durably: after a power cut it has the old or the new content."""
        replace_durably(self._file, msgspec.json.format(msgspec.json.encode(stored)) + b"\n")
        self._stored = stored


def _check_location(folder: Path) -> None:
    """Raise DataFolderError unless the folder is writable, or could be created in the nearest folder that exists."""
    paths = (folder.absolute(), *folder.absolute().parents)
    nearest = next(path for path in paths if os.path.lexists(path))
    try:
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(nearest, os.W_OK | os.X_OK):
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
        # Checked here, so that a damaged file fails the start and not a later use of `remembered`.
        for text in stored.peers:
            parse_address(text)
    except (msgspec.DecodeError, ValueError) as error:
        advice = "restore it, or remove it to give this peer a new id"
        raise DataFolderError(f"data: {file} is damaged ({error}): {advice}") from error
    return stored
