"""The schema of records: samples of a peer, single deliveries, and latencies of deliveries.

Knows the form of each record, and its encoding as a line of JSON. (`peer`, `boot`, `number`) identifies a record for
ever.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

SCHEMA: Final = 1
"""The version of the schema. Raise it whenever a reader of the old records would misread the new ones."""
LOG_TOPICS: Final = "ringmq/log"
"""A peer publishes its records one level below this topic; the level is its id."""
MAX_LINE_BYTES: Final = 1 << 20
MAX_REASON_CHARS: Final = 200

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Seconds = Annotated[float, Meta(ge=0)]
Moment = Annotated[float, Meta(ge=0, lt=253_402_300_800)]
"""Seconds since 1970, before the year 10000."""
Name = Annotated[str, Meta(max_length=256)]
# `\Z` in these patterns, since `$` would also match before a line feed at the end.
Run = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]
"""The name of a run, which becomes the name of a folder."""
Bucket = Annotated[str, Meta(pattern=r"^(0|[1-9]\d{0,2})\Z")]
"""The number of a bucket of `logger.histogram`."""
Topic = Annotated[str, Meta(max_length=65535)]
Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
"""The id of a peer."""


# No garbage collection of these structs: they hold numbers, texts and lists or dicts of them, so none is in a cycle.
class Common(msgspec.Struct, kw_only=True, gc=False):
    """The members of all records."""

    v: Literal[1] = SCHEMA
    run: Run
    """The name that all peers of one experiment share, and that differs between experiments."""
    peer: Hex
    """The id of the peer that recorded it."""
    boot: Count
    """Which start of the peer; it grows with each start."""
    number: Count
    """The position among all records since this start of the peer, from 0 and without a gap."""
    at: Moment
    """The time of the record, in seconds since 1970 on the clock of the peer."""


class Traffic(msgspec.Struct, kw_only=True, gc=False):
    """Counters since the start of the peer."""

    bytes_in: Count = 0
    bytes_out: Count = 0
    messages_in: Count = 0
    messages_out: Count = 0
    dropped: Count = 0


class LinkTraffic(msgspec.Struct, kw_only=True, gc=False):
    """Counters of one link to another peer, since the link was established."""

    peer: Hex
    bytes_in: Count
    bytes_out: Count
    queued_bytes: Count
    rtt_s: Seconds | None = None


class Sample(Common, tag_field="kind", tag="sample"):
    """The state of a peer at one time. Counters count from its start: the difference of two samples gives a rate."""

    uptime_s: Seconds
    address: Name
    """HOST:PORT for other peers."""
    listeners: dict[Name, Name]
    """HOST:PORT for clients, by the kind of the listener."""
    pid: Count
    dispatching: Name
    fanout: Count
    """The most sends of any peer for one message. 0: no bound."""
    cpu_s: Seconds
    memory_bytes: Count
    clients: Count
    """Connected clients."""
    subscriptions: Count
    """Subscriptions of its clients."""
    topics: Count
    """Topics that its clients publish to."""
    mqtt: Traffic
    """Traffic with its clients, except on topics of records. Messages are PUBLISH packets; bytes count all packets."""
    overlay: Traffic
    """Traffic with other peers. Messages are publications."""
    log: Traffic
    """Traffic with its clients on topics of records. Bytes count payloads only."""
    links: list[LinkTraffic]
    coordinated: Count
    """Places whose list of subscribers this peer keeps."""
    copied: Count
    """Places whose list this peer copies as a shadow."""
    filters: Count
    """Filters that this peer subscribes to in the ring."""
    publishing: Count
    """Topics whose subscribers this peer knows."""
    waiting_bytes: Count
    """Bytes of messages queued for other peers."""
    unacknowledged: Count
    """Messages that other peers have not acknowledged."""
    unrecorded: Count = 0
    """Records dropped because the buffer was full or their line was too long."""


class Delivery(Common, tag_field="kind", tag="delivery"):
    """One message at one peer: at its origin, at a peer with subscribers, or at a peer that only passes it on.

    The origin chooses whether a message is recorded, so either all peers on its way record it or none.
    """

    origin: Hex
    origin_boot: Count
    sequence: Count
    """(`origin`, `origin_boot`, `sequence`) identifies the message."""
    topic: Topic
    dispatching: Name
    sender: Hex
    """The peer that sent it to this peer; at the origin, the origin itself."""
    sent_ns: Count
    """The time at which the origin received it from its client, since 1970, on the clock of the origin."""
    received_ns: Count
    """The time at which this peer received it, since 1970, on the clock of this peer."""
    hops: Count
    """Links that it crossed: 0 at its origin."""
    bytes: Count
    """Size of the payload."""
    clients: Count
    """Clients of this peer that it was delivered to."""
    sends: Count
    """Peers that this peer sent it to."""
    duplicate: bool = False
    """Whether it had arrived before; a duplicate is delivered to no client."""


class Latencies(Common, tag_field="kind", tag="latencies"):
    """Latencies of the messages that reached clients of this peer during an interval, for one topic, one number of hops
    and one dispatching. Written instead of their `Delivery` records."""

    interval_s: Seconds
    topic: Topic
    dispatching: Name
    hops: Count
    count: Count
    sum_s: float
    min_s: float
    max_s: float
    bytes: Count
    buckets: dict[Bucket, Count]
    """The number of latencies by bucket (`logger.histogram.bucket_of`)."""


Record = Sample | Delivery | Latencies

_encoder: Final = msgspec.json.Encoder()
_decoder: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """One line of JSON, without a line feed."""
    return _encoder.encode(record)


def decode(line: bytes) -> Record:
    """Raises ValueError with one short line for anything that is not a record of this schema."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a record must have at most {MAX_LINE_BYTES} bytes, got {len(line)}")
    try:
        return _decoder.decode(line)
    # Deep nesting raises RecursionError, and bytes that are no UTF-8 raise UnicodeDecodeError instead of DecodeError.
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        # The reason may quote the line, which comes from the network: it must stay short, and one line in a log.
        reason = str(error)[:MAX_REASON_CHARS]
        raise ValueError("".join([char if char.isprintable() else "?" for char in reason])) from None
