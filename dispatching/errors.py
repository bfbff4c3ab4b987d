"""The errors of planning: one root, so that a caller can catch them all."""

from __future__ import annotations


class DispatchingError(Exception):
    """Base class of all errors that planning raises on purpose."""
