"""The errors of a peer's own set-up: one root, so that the command line can turn each into one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class PeerError(Exception):
    """The root of everything `peer` raises on purpose; its text is one line for the user."""


class ConfigError(PeerError):
    """Settings are wrong: the user must change the command line or the file. The text is the first of `lines`."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lines[0])
        self.lines = lines
        """What is wrong, one line for each."""


class Faults:
    """What is wrong with settings, gathered so that the user hears of all at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """A ConfigError from inside is kept, and what follows goes on."""
        try:
            yield
        except ConfigError as error:
            self.lines += error.lines

    def raise_any(self) -> None:
        """Raises ConfigError with all of them, if there are any."""
        if self.lines:
            raise ConfigError(*self.lines)


class DataFolderError(PeerError):
    """The data folder cannot be used; nothing was changed in it."""
