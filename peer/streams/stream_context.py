"""What streams need of the peer that they belong to, and what they count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol

from ringmq.mqtt_front.iteration import Clock
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.streams.stream_messages import Batch, BatchAck


class StreamContext(Protocol):
    """The parts of MessagingContext that streams use."""

    clock: Clock
    config: PubSubConfig
    owing: Callable[[], None]

    @property
    def me(self) -> Peer: ...
    @property
    def ask_s(self) -> float: ...
    def is_far_boot(self, boot: int, /) -> bool: ...
    def send(self, peer: Peer, message: Batch | BatchAck, /) -> None: ...
    def find_way(self, peer: Peer, /) -> None: ...
    def after(self, delay_s: float, then: Callable[[], None], /) -> None: ...


@dataclass(slots=True)
class StreamCounters:
    """Counters since the start; each only grows."""

    batches: int = 0
    """Batches sent for the first time."""
    resent: int = 0
    """Batches sent again because no acknowledgement came."""
    skipped: int = 0
    """Batches that came and were not processed: duplicates, batches after a gap, and batches of older streams."""
    unreadable: int = 0
    """Batches with an item that could not be decoded."""
    given_up: int = 0
    """Streams lost because the peer was silent for `give_up_s`."""
    overflowed: int = 0
    """Streams lost because a bound was reached."""

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
