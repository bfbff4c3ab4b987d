"""The errors of planning: one root, so that a caller can catch them all."""

from __future__ import annotations


class DispatchingError(Exception):
    """The root of everything that planning raises on purpose."""
