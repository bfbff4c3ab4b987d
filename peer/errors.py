"""Errors of a peer's setup. They share one root, so the command line can turn each into one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class PeerError(Exception):
    """Root of the errors that `peer` raises on purpose. Its text is one line for the user."""


class ConfigError(PeerError):
    """Wrong settings: the user must change the command line or the file. The text is the first of `lines`."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lines[0])
        self.lines = lines
        """One line for each fault."""


class Faults:
    """Faults of the settings, collected so that the user sees all of them at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """Collect a ConfigError that is raised inside, and continue after the block."""
        try:
            yield
        except ConfigError as error:
            self.lines += error.lines

    def raise_any(self) -> None:
        """Raise ConfigError with all faults, if there are any."""
        if self.lines:
            raise ConfigError(*self.lines)


class DataFolderError(PeerError):
    """The data folder cannot be used. Nothing in it was changed."""
