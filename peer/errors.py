"""The errors of a peer's own set-up: one root, so that the command line can turn each into one line."""

from __future__ import annotations


class PeerError(Exception):
    """The root of everything `peer` raises on purpose; its text is one line for the user."""


class ConfigError(PeerError):
    """A setting is wrong: the user must change the command line or the file."""


class DataFolderError(PeerError):
    """The data folder cannot be used; nothing was changed in it."""
