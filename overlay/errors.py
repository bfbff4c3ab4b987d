"""Errors of the overlay: one root, so that a caller can catch them all."""

from __future__ import annotations


class OverlayError(Exception):
    """The root of all errors that the overlay raises on purpose."""


class ProtocolError(OverlayError):
    """The other end broke the link protocol; only that link is closed, and the fault counted."""
