"""Errors of the overlay: one root, so that a caller can catch them all."""

from __future__ import annotations


class OverlayError(Exception):
    """The root of all errors that the overlay raises on purpose."""


class ProtocolError(OverlayError):
    """The other end broke the link protocol; only that link is closed, and the fault counted."""


class IdTakenError(OverlayError):
    """A peer that runs has the id of this one, whose data folder may be a copy. `address` is where it runs."""

    def __init__(self, text: str, address: tuple[str, int] | None) -> None:
        super().__init__(text)
        self.address = address
