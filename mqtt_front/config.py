"""Every limit and period of the front, each with its unit and trade-off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ringmq.mqtt_front.codec.fields import MAX_VARINT

NEVER_EXPIRES_S: Final = 0xFFFFFFFF
"""A session expiry that never comes (5.0 §3.1.2.11.2)."""


_MANY: Final = 1 << 62
_LONG_S: Final = 1e9

RANGES: Final[dict[str, tuple[float, float]]] = {
    "max_connections": (1, _MANY),
    "connect_timeout_s": (0.01, _LONG_S),
    # A client waits for its CONNACK meanwhile; most give up after some ten seconds.
    "enrol_timeout_s": (0, 10),
    # The largest remaining length, after the byte of the type and four bytes of length (5.0 §2.1.4).
    "max_packet_bytes": (100, MAX_VARINT + 5),
    "max_queued": (0, _MANY),
    "max_queued_bytes": (0, _MANY),
    # Receive Maximum, Topic Alias Maximum and Keep Alive have two bytes on the wire (5.0 §3.1.2.10, §3.1.2.11).
    "max_inflight": (1, 65535),
    "receive_maximum": (1, 65535),
    "max_buffer_bytes": (1000, (1 << 31) - 1),
    "max_subscriptions": (1, _MANY),
    "max_filters_per_packet": (1, _MANY),
    "max_retained": (0, _MANY),
    "max_retained_bytes": (0, _MANY),
    "max_session_expiry_s": (0, NEVER_EXPIRES_S),
    "session_expiry_3_s": (0, NEVER_EXPIRES_S),
    "max_sessions": (1, _MANY),
    "max_keep_alive_s": (1, 65535),
    "topic_alias_maximum": (0, 65535),
    "sys_interval_s": (0, _LONG_S),
}
"""The range of each field: the wire cannot carry more, or nothing works with less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontConfig:
    """Bounds of one front. Reaching one is counted and has the effect that is said beside it."""

    max_connections: int = 100_000
    """Clients at one time; one more is closed at once. Each idle one costs some 10 kB and a file descriptor."""
    connect_timeout_s: float = 10.0
    """Seconds from the connection to its CONNECT; slower ones are closed, or half-open ones would gather. Longer is for
    clients on slow lines."""
    enrol_timeout_s: float = 2.0
    """Seconds that a CONNECT may wait until the ring knows of it. A client is served after that all the same, as when a
    network is cut; of two clients with one id the ring then closes the earlier one later. Shorter serves clients sooner
    when machines fail; longer leaves fewer moments in which two have one id."""
    max_packet_bytes: int = 1 << 20
    """Bytes of one packet; a larger one closes its client. The protocol allows 256 MB, which a peer at the edge cannot
    spare."""
    max_queued: int = 1000
    """Messages with QoS 1 or 2 that wait for one client; more are dropped. More bridge a longer absence, and cost
    memory and disk."""
    max_queued_bytes: int = 16 << 20
    """Bytes of their payloads; more are dropped. A single message may always wait. More cost memory and disk."""
    max_inflight: int = 100
    """Messages sent to one client and not yet acknowledged; a client of 5.0 may ask for fewer. More fill a long line,
    and cost memory for those that do not acknowledge."""
    receive_maximum: int = 1000
    """Messages of one client not yet acknowledged to it: 5.0 is told, older ones are not read from meanwhile. More let
    a publisher run further ahead, and cost memory."""
    max_buffer_bytes: int = 4 << 20
    """Bytes waiting for one client that does not read: beyond it QoS 0 is dropped; at twice that it is closed. More
    ride out longer pauses, and cost memory for each such client."""
    max_subscriptions: int = 100_000
    """Filters of one session; more are refused with "quota exceeded". Each takes memory here and at other peers."""
    max_filters_per_packet: int = 10_000
    """Filters of one SUBSCRIBE, worked off without a pause, some 10 µs each: those beyond are refused with "quota
    exceeded". An UNSUBSCRIBE with more closes its client, as its answer has no word for it."""
    max_retained: int = 1_000_000
    """Retained messages; a further topic is not retained, and counted. Each costs some kB beside its payload."""
    max_retained_bytes: int = 256 << 20
    """Bytes of their payloads, all in memory; what would be more is not retained, and counted."""
    max_session_expiry_s: int = NEVER_EXPIRES_S
    """Seconds that a session outlives its connection at most; a client of 5.0 is told when it asked for more. The
    default is for ever; with less, what clients leave behind that never come back is forgotten."""
    session_expiry_3_s: int = NEVER_EXPIRES_S
    """Seconds that a persistent session of a client of 3.1.1 outlives its connection, as it cannot say so itself. The
    default is for ever, with the same trade-off."""
    max_sessions: int = 1_000_000
    """Sessions, with or without a client; a further client is refused. Each takes memory, and what waits for it
    more."""
    max_keep_alive_s: int = 65535
    """Seconds between two signs of life of a client of 5.0: one that asks for more is told to use this; older ones are
    taken at their word. Shorter finds dead clients sooner, and costs them packets."""
    topic_alias_maximum: int = 32
    """Aliases a client may set up, and the most set up towards one; 0: none. They save the bytes of topics on the line,
    and cost memory for each client."""
    allow_zero_length_client_id: bool = True
    """Whether a client may leave the choice of its id to the server, as suits those that come once. Without it one that
    brings none is refused."""
    sys_interval_s: float = 10.0
    """Seconds between two looks at what `$SYS` tells; 0: there is no `$SYS`. Each look visits every session once."""

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} must be {least} to {most}, got {value}")
