"""What a front counts. Whoever does a thing counts it; who asks gets all of it at once."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class FrontCounters:
    """What happened since the start; each only grows."""

    messages_received: int = 0
    messages_sent: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    publish_received: int = 0
    publish_sent: int = 0
    publish_dropped: int = 0
    """For want of room: a client that does not read, or a full queue."""
    connections: int = 0
    refused: int = 0
    """Connections that did not become sessions."""
    protocol_errors: int = 0
    keep_alive_timeouts: int = 0
    taken_over: int = 0
    unauthorized: int = 0
    """Publications and subscriptions that the client has no right to."""
    expired_sessions: int = 0
    expired_messages: int = 0
    """That waited too long for a client."""
    not_retained: int = 0
    """Retained messages over the bound."""

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
