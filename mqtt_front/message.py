"""An application message inside the front, between the packet it came in and those it goes out in."""

from __future__ import annotations

import msgspec


# `gc=False`: all fields are immutable values, so a message is in no cycle, and the garbage collector need not visit
# the thousands that may be queued.
class Message(msgspec.Struct, frozen=True, gc=False):
    """`properties` is the encoded section that goes on unaltered; everything else about it is a field of its own."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: bytes = b""
    expires_at: float | None = None
    origin: str = ""
    """The id of the client that published it, for no-local; empty for the server's own."""

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def remaining_s(self, now: float) -> int | None:
        """The message expiry interval for receivers: the received interval less the time waited (5.0 §3.3.2.3.3)."""
        return None if self.expires_at is None else max(0, round(self.expires_at - now))


class WillMessage(Message, frozen=True, gc=False):
    """A will with QoS 1 or 2. Its server publishes it again after a crash, as it cannot know who has it."""

    token: bytes = b""
    """Stays the same then, and no other will has it."""
