"""The errors of the logger: one root, each a line that a user can read."""

from __future__ import annotations


class LoggerError(Exception):
    """The root of everything `logger` raises on purpose, but for ValueError at a wrong setting or record."""
