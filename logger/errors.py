"""The errors of the logger: one root, each a line that a user can read."""

from __future__ import annotations


class LoggerError(Exception):
    """Base class of all errors that `logger` raises on purpose. Wrong settings and records raise ValueError instead."""
