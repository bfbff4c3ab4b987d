"""What a peer records, in one schema: samples of itself, deliveries one by one, and how long deliveries took.

Knows the form of each record and how it looks as a line of JSON. (`peer`, `boot`, `number`) names a record for ever.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

SCHEMA: Final = 1
"""To be raised whenever a record changes so that who reads the old ones would misread the new."""
LOG_TOPICS: Final = "ringmq/log"
"""A peer publishes its records to this topic and its id, one level below."""
MAX_LINE_BYTES: Final = 1 << 20
MAX_REASON_CHARS: Final = 200

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Seconds = Annotated[float, Meta(ge=0)]
Moment = Annotated[float, Meta(ge=0, lt=253_402_300_800)]
"""In seconds since 1970, before the year 10000."""
Name = Annotated[str, Meta(max_length=256)]
Run = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]
"""It becomes the name of a folder."""
Bucket = Annotated[str, Meta(pattern=r"^(0|[1-9]\d{0,2})\Z")]
"""The number of one in `logger.histogram`."""
Topic = Annotated[str, Meta(max_length=65535)]
Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
"""The id of a peer."""


class Common(msgspec.Struct, kw_only=True, gc=False):
    """What all records bear."""

    v: Literal[1] = SCHEMA
    run: Run
    """What the peers of one experiment have in common, and tells it from the others."""
    peer: Hex
    """Who recorded it."""
    boot: Count
    number: Count
    """Its place among all records of this peer since its start, from 0 and without a gap."""
    at: Moment
    """When, in seconds since 1970 on the clock of that peer."""


class Traffic(msgspec.Struct, kw_only=True, gc=False):
    """Since the start; each only grows."""

    bytes_in: Count = 0
    bytes_out: Count = 0
    messages_in: Count = 0
    messages_out: Count = 0
    dropped: Count = 0


class LinkTraffic(msgspec.Struct, kw_only=True, gc=False):
    """Of one link to another peer, since it was made."""

    peer: Hex
    bytes_in: Count
    bytes_out: Count
    queued_bytes: Count
    rtt_s: Seconds | None = None


class Sample(Common, tag_field="kind", tag="sample"):
    """What a peer says of itself, now and then. Counters are since its start: who wants rates takes differences."""

    uptime_s: Seconds
    address: Name
    """Where other peers reach it."""
    listeners: dict[Name, Name]
    """Where clients reach it: the kind of the listener, and HOST:PORT."""
    pid: Count
    dispatching: Name
    fanout: Count
    """0: none."""
    cpu_s: Seconds
    memory_bytes: Count
    clients: Count
    subscriptions: Count
    """Of its clients."""
    topics: Count
    """That its clients publish to."""
    mqtt: Traffic
    """With its clients, but for the topics of records. Messages are PUBLISH packets; bytes are all that crossed."""
    overlay: Traffic
    """With other peers. Messages are publications."""
    log: Traffic
    """With its clients about the topics of records: messages, and the bytes of their payloads."""
    links: list[LinkTraffic]
    coordinated: Count
    copied: Count
    """Places of which it holds the copy of a shadow."""
    filters: Count
    """That it subscribes to in the ring."""
    publishing: Count
    """Topics of which it knows the subscribers."""
    waiting_bytes: Count
    """Of messages for other peers."""
    unacknowledged: Count
    """Messages that other peers have not acknowledged."""
    unrecorded: Count = 0
    """Records that were given up for want of room."""


class Delivery(Common, tag_field="kind", tag="delivery"):
    """One message at one peer: at its origin, at a peer with subscribers, or at one that only passes it on.

    Of a message either all peers record this or none: its origin chooses.
    """

    origin: Hex
    origin_boot: Count
    sequence: Count
    """(`origin`, `origin_boot`, `sequence`) names the message."""
    topic: Topic
    dispatching: Name
    sender: Hex
    """Who handed it to this peer; at the origin, the origin itself."""
    sent_ns: Count
    """When its origin had it from its client, since 1970, on the clock of the origin."""
    received_ns: Count
    """When this peer had it, on the clock of this peer."""
    hops: Count
    """Links that it crossed: 0 at its origin."""
    bytes: Count
    """Of the payload."""
    clients: Count
    """That it was given to here."""
    sends: Count
    """Peers that this one sent it to."""
    duplicate: bool = False
    """It had come before, and was given to nobody."""


class Latencies(Common, tag_field="kind", tag="latencies"):
    """How long the messages took that reached clients of this peer during an interval: all of one topic, one number of
    hops and one dispatching. In the place of their `Delivery` records."""

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
    """How many by `logger.histogram.bucket_of` their latency."""


Record = Sample | Delivery | Latencies

_encoder: Final = msgspec.json.Encoder()
_decoder: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """One line of JSON, without its end."""
    return _encoder.encode(record)


def decode(line: bytes) -> Record:
    """Raises ValueError with one short line for anything that is not a record of this schema."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"{len(line)} bytes are more than a record has")
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        reason = str(error)[:MAX_REASON_CHARS]  # it may quote the line
        raise ValueError("".join([char if char.isprintable() else "?" for char in reason])) from None
