"""Locks of a data folder: each user of it (ingest, stream, reduce) runs in one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ringmq.collector.data_folder import local_path
from ringmq.collector.errors import CollectorError
from ringmq.collector.ingest.durable_files import Disk
from ringmq.logger.errors import LoggerError
from ringmq.logger.folder_lock import FolderLock


def lock_folder(folder: Path, user: str) -> FolderLock:
    """Lock `folder` for `user`, and create it if it is missing. Other users have locks of their own.

    Raises CollectorError if another process holds the lock, or if the folder cannot be used.
    """
    Disk().make(folder)
    try:
        return FolderLock(folder, f"{user}.lock", user)
    except LoggerError as error:
        raise CollectorError(str(error)) from error


@contextmanager
def hold(data: str, user: str) -> Iterator[None]:
    """Lock a data folder for `user` if it is on this machine.

    Raises CollectorError if another process holds the lock, or if the folder does not exist.
    """
    folder = local_path(data)
    with ExitStack() as stack:
        if folder is not None:
            # `lock_folder` would create the folder, and hide a mistyped path.
            if not folder.is_dir():
                raise CollectorError(f"data: there is no folder {folder}: run ringmq collect ingest first")
            stack.enter_context(lock_folder(folder, user))
        yield
