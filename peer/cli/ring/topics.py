"""`ringmq topics` and `ringmq retained`: topics of all peers of a ring, and the retained messages of the ring."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import click

from ringmq.peer.administration.requests import ChangedRow, FilterRow, Request, RetainedRow, Subject, TopicRow
from ringmq.peer.cli.ring.asking import (
    Asking,
    RingAnswer,
    addresses_of,
    ask,
    asking_options,
    limit_option,
    run,
    watch_option,
)
from ringmq.peer.cli.status import duration, name_of, size, table
from ringmq.peer.errors import ConfigError


@click.command()
@click.argument("topic_filter", metavar="[FILTER]", default="")
@click.option("--subscribed", is_flag=True, help="List the filters that clients subscribe to instead.")
@limit_option
@watch_option
@asking_options
def topics(**line: Any) -> int:
    """List the topics that clients of all peers have published to lately, all or those that match FILTER."""
    asking = Asking.by(line)
    if not line["subscribed"]:
        request = Request(about=Subject.TOPICS, filter=line["topic_filter"], limit=line["limit"])
        return run(asking, lambda: _topics(asking, request))
    if line["topic_filter"]:
        raise ConfigError("--subscribed takes no FILTER; `ringmq status --topic` shows the subscribers of a topic")
    return run(asking, lambda: _filters(asking, Request(about=Subject.FILTERS, limit=line["limit"])))


def _topics(asking: Asking, request: Request) -> RingAnswer:
    reply, rows = ask(asking, request, TopicRow)
    rows.sort(key=lambda row: (row.topic, row.peer))
    address_of = addresses_of(reply)
    cells = [
        (
            name_of(row.topic),
            address_of(row.peer),
            row.dispatch,
            "-" if row.peers is None else f"{row.peers:,}",
            f"{row.waiting:,}",
        )
        for row in rows
    ]
    heads = ("topic", "published at", "dispatch", "sent to peers", "waiting")
    return RingAnswer(reply, rows, list(table(heads, cells)) if cells else ["nobody has published lately"])


def _filters(asking: Asking, request: Request) -> RingAnswer:
    reply, rows = ask(asking, request, FilterRow)
    cells = [(name_of(name), f"{clients:,}", f"{at:,}") for name, clients, at in _summed(rows)]
    return RingAnswer(
        reply, rows, list(table(("filter", "clients", "peers"), cells)) if cells else ["nobody subscribes"]
    )


def _summed(rows: Iterable[FilterRow]) -> list[tuple[str, int, int]]:
    """Filters with their clients and peers."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        clients, at = found.get(row.filter, (0, 0))
        found[row.filter] = clients + row.clients, at + 1
    return [(name, *counts) for name, counts in sorted(found.items())]


@click.command()
@click.argument("topic_filter", metavar="[FILTER]", default="")
@click.option("--delete", is_flag=True, help="Clear all that match FILTER; # is for all topics.")
@limit_option
@watch_option
@asking_options
def retained(**line: Any) -> int:
    """List the retained messages of the ring, all or those of topics that match FILTER.

    With --delete they are cleared: subscribers get an empty message for each, as if a client had cleared it.
    """
    asking = Asking.by(line)
    if not line["delete"]:
        request = Request(about=Subject.RETAINED, filter=line["topic_filter"], limit=line["limit"])
        return run(asking, lambda: _retained(asking, request))
    if not line["topic_filter"]:
        raise ConfigError("--delete needs a FILTER; # is for all topics")
    if line["watch"]:
        raise ConfigError("--delete and --watch exclude each other")
    return run(
        asking, lambda: _delete(asking, Request(about=Subject.CLEAR, filter=line["topic_filter"], limit=line["limit"]))
    )


def _retained(asking: Asking, request: Request) -> RingAnswer:
    reply, rows = ask(asking, request, RetainedRow)
    rows.sort(key=lambda row: row.topic)
    address_of = addresses_of(reply)
    cells = [
        (
            name_of(row.topic),
            name_of(row.payload),
            size(row.size_bytes),
            str(row.qos),
            _time(row.stored_at),
            "-" if row.expires_in_s is None else duration(row.expires_in_s),
            address_of(row.peer),
        )
        for row in rows
    ]
    heads = ("topic", "payload", "size", "QoS", "stored", "expires in", "coordinator")
    matching = f" matches {name_of(request.filter)}" if request.filter else ""
    return RingAnswer(reply, rows, list(table(heads, cells)) if cells else ["no retained message" + matching])


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # A peer may say anything.
        return "-"


def _delete(asking: Asking, request: Request) -> RingAnswer:
    reply, rows = ask(asking, request, ChangedRow)
    lines = [f"{name_of(row.name)}: {row.done}" for row in sorted(rows, key=lambda row: row.name)]
    return RingAnswer(reply, rows, lines or ["there are no such retained messages"])
