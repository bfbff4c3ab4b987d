"""What a front counts. Whoever does a thing counts it; who asks gets all of it at once."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ringmq.logger.recorder import is_of_the_log


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
    """For want of room: a client that does not read, or a full queue. As those above without the topics of records."""
    log_received: int = 0
    log_sent: int = 0
    log_dropped: int = 0
    """The same of the topics of records alone."""
    log_bytes_received: int = 0
    log_bytes_sent: int = 0
    """Of their payloads."""
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

    def received(self, topic: str, size: int) -> None:
        """A PUBLISH has come, whose payload has so many bytes."""
        if is_of_the_log(topic):
            self.log_received += 1
            self.log_bytes_received += size
        else:
            self.publish_received += 1

    def sent(self, topic: str, size: int) -> None:
        """One goes out."""
        if is_of_the_log(topic):
            self.log_sent += 1
            self.log_bytes_sent += size
        else:
            self.publish_sent += 1

    def dropped(self, topic: str) -> None:
        if is_of_the_log(topic):
            self.log_dropped += 1
        else:
            self.publish_dropped += 1

    @property
    def given(self) -> int:
        """PUBLISH packets that were sent or dropped, of all topics."""
        return self.publish_sent + self.publish_dropped + self.log_sent + self.log_dropped

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
