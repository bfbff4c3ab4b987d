"""Counters of a front. Each part counts its own events; readers get all counters at once."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ringmq.logger.recorder import is_of_the_log


@dataclass(slots=True)
class FrontCounters:
    """Events since the start; no counter ever shrinks."""

    messages_received: int = 0
    messages_sent: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    publish_received: int = 0
    publish_sent: int = 0
    publish_dropped: int = 0
    """Messages dropped because the client does not read or its queue is full. The three counters of publications leave
    out the topics of records."""
    log_received: int = 0
    log_sent: int = 0
    log_dropped: int = 0
    """The same three for the topics of records alone."""
    log_bytes_received: int = 0
    log_bytes_sent: int = 0
    """Payload bytes of the messages in `log_received` and `log_sent`."""
    connections: int = 0
    refused: int = 0
    """Connections that did not become sessions."""
    protocol_errors: int = 0
    keep_alive_timeouts: int = 0
    taken_over: int = 0
    """Connections closed because another client has connected with the same id, here or at another peer."""
    slowed: int = 0
    """CONNECTs that had to wait, as clients with the same id throw each other out."""
    unauthorized: int = 0
    """Publications and subscriptions that the client has no right to."""
    expired_sessions: int = 0
    expired_messages: int = 0
    """Messages that expired in a queue."""
    not_retained: int = 0
    """Retained messages over the bound."""

    def authorized(self, allowed: bool) -> bool:
        """Count a publication or subscription that the rights of its client do not allow; returns `allowed`."""
        self.unauthorized += not allowed
        return allowed

    def packet_sent(self, size_bytes: int) -> None:
        """Count a packet that was passed to its socket by itself."""
        self.messages_sent += 1
        self.bytes_sent += size_bytes

    def received(self, topic: str, size: int) -> None:
        """Count a PUBLISH that came in; `size` is that of its payload."""
        if is_of_the_log(topic):
            self.log_received += 1
            self.log_bytes_received += size
        else:
            self.publish_received += 1

    def sent(self, topic: str, size: int) -> None:
        """Count a PUBLISH that goes out."""
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
