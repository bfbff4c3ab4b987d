"""`ringmq clients`, `ringmq sessions` and `ringmq kick`: the clients of all peers of a ring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from ringmq.peer.administration.requests import ChangedRow, ClientRow, Request, SessionRow, Subject
from ringmq.peer.cli.ring.asking import (
    Asking,
    Command,
    RingAnswer,
    addresses_of,
    ask,
    asking_options,
    is_whole,
    limit_option,
    missing_line,
    peer_option,
    run,
    watch_option,
)
from ringmq.peer.cli.status import duration, name_of, size, table
from ringmq.peer.errors import PeerError

LISTED: Final = ("user", "topic", "peer", "limit")
"""Options of both lists that are fields of their request."""


def list_options(command: Command) -> Command:
    """The options that both lists have."""
    for option in (
        asking_options,
        watch_option,
        limit_option,
        peer_option,
        click.option("--topic", default="", help="Only with a subscription that matches this topic."),
        click.option("--user", default="", help="Only clients of this user."),
    ):
        command = option(command)
    return command


class NobodyKickedError(PeerError):
    """No client has the id, or nobody knows."""


@click.command()
@list_options
def clients(**line: Any) -> int:
    """List the connected clients of all peers of the ring."""
    return _run_list(Subject.CLIENTS, line, _clients)


def _run_list(about: Subject, line: Mapping[str, Any], answer: Callable[[Asking, Request], RingAnswer]) -> int:
    asking = Asking.by(line)
    request = Request(about=about, **{name: line[name] for name in LISTED})
    return run(asking, lambda: answer(asking, request))


def _clients(asking: Asking, request: Request) -> RingAnswer:
    reply, rows = ask(asking, request, ClientRow)
    rows.sort(key=lambda row: (row.client, row.peer))
    address_of = addresses_of(reply)
    heads = ("client", "user", "peer", "from", "MQTT", "for", "filters", "queued", "unacknowledged", "dropped")
    cells = [
        (
            *_named(row, address_of),
            name_of(row.address),
            row.version,
            duration(row.connected_s),
            f"{row.subscriptions:,}",
            f"{row.queued:,}",
            f"{row.inflight:,}",
            f"{row.dropped:,}",
        )
        for row in rows
    ]
    return RingAnswer(reply, rows, list(table(heads, cells)) if cells else ["no client is connected"])


@click.command()
@list_options
def sessions(**line: Any) -> int:
    """List the sessions of all peers of the ring, with and without a connected client."""
    return _run_list(Subject.SESSIONS, line, _sessions)


def _sessions(asking: Asking, request: Request) -> RingAnswer:
    reply, rows = ask(asking, request, SessionRow)
    rows.sort(key=lambda row: (row.client, row.peer))
    address_of = addresses_of(reply)
    heads = ("client", "user", "peer", "client is", "ends in", "filters", "queued", "unacknowledged", "dropped")
    cells = [
        (
            *_named(row, address_of),
            "connected" if row.connected else "away",
            "-" if row.ends_in_s is None else duration(row.ends_in_s),
            f"{row.subscriptions:,}",
            f"{row.queued:,} ({size(row.queued_bytes)})",
            f"{row.inflight:,}",
            f"{row.dropped:,}",
        )
        for row in rows
    ]
    return RingAnswer(reply, rows, list(table(heads, cells)) if cells else ["there are no sessions"])


def _named(row: ClientRow | SessionRow, address_of: Callable[[str], str]) -> tuple[str, str, str]:
    return name_of(row.client), "-" if row.user is None else name_of(row.user), address_of(row.peer)


@click.command()
@click.argument("client", metavar="CLIENT")
@click.option("--session", is_flag=True, help="End its session too, with all messages queued in it.")
@peer_option
@asking_options
def kick(**line: Any) -> int:
    """End the connection of the client with the id CLIENT, at whatever peer it is.

    A client of MQTT 5 is told "administrative action" (0x98). Most clients connect again: refuse their user with
    `ringmq passwd FILE USER --delete` first.
    """
    asking = Asking.by(line)
    request = Request(about=Subject.KICK, client=line["client"], session=line["session"], peer=line["peer"])
    return run(asking, lambda: _kick(asking, request))


def _kick(asking: Asking, request: Request) -> RingAnswer:
    reply, rows = ask(asking, request, ChangedRow)
    if not rows:
        what = "has a session" if request.session else "is connected"
        fault = f"no client with the id {name_of(request.client)!r} {what}"
        if not is_whole(reply):
            fault += ", as far as known; " + "; ".join(missing_line(missing) for missing in reply.missing)
        raise NobodyKickedError(fault)
    address_of = addresses_of(reply)
    return RingAnswer(reply, rows, [f"{name_of(row.name)} at {address_of(row.peer)}: {row.done}" for row in rows])
