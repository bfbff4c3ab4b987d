"""What the commands about the whole ring share: the peer that they ask, JSON, repetition, the tail of an answer.

Each of them asks one peer, which asks all others over the links of the ring.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from ringmq.overlay.config import Address, Caller
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import Place, ask_ring
from ringmq.peer.administration.requests import (
    DEFAULT_ROWS,
    MAX_ROWS,
    Missing,
    R,
    Reply,
    Request,
    RequestError,
    Row,
    decode_reply,
    encode_request,
    fault_of,
)
from ringmq.peer.cli.local_peer import caller_of, socket_of
from ringmq.peer.cli.status import DEFAULT_PEER, NOT_WELL, SHORT, WELL
from ringmq.peer.errors import ConfigError
from ringmq.peer.settings.addresses import parse_address

WATCH_S: Final = 2.0
"""Pause between two answers with --watch."""

Command = Callable[..., Any]


class Asking(NamedTuple):
    """How a command asks, and shows the answer: the values of its options."""

    via: tuple[str, ...]
    data: str | None
    as_json: bool
    watch: bool = False

    @classmethod
    def by(cls, line: Mapping[str, Any]) -> Asking:
        return cls(line["via"], line["data"], line["as_json"], line.get("watch", False))


class RingAnswer(NamedTuple):
    """What a command prints: the rows as JSON objects or as lines of text, and what the exit status tells."""

    reply: Reply
    rows: Sequence[Row]
    lines: Sequence[str]
    well: bool = True


def asking_options(command: Command) -> Command:
    """The options of all these commands, which `Asking.by` reads."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option(
            "--via",
            multiple=True,
            metavar="HOST:PORT",
            help=f"Overlay address of the peer to ask; if repeated, the first that answers.  [default: {DEFAULT_PEER}]",
        ),
        click.option("--data", metavar="DIR", help="Data folder of the peer here: ask it, or --via as a member."),
    ):
        command = option(command)
    return command


watch_option = click.option("--watch", is_flag=True, help=f"Ask again every {WATCH_S:g} s, until Ctrl-C.")
limit_option = click.option(
    "--limit",
    type=click.IntRange(0, MAX_ROWS),
    default=DEFAULT_ROWS,
    show_default=True,
    metavar="N",
    help="List no more than so many.",
)
peer_option = click.option(
    "--peer", default="", metavar="ID|HOST:PORT", help="Only of this peer: its overlay address, or its id as listed."
)


def ask(asking: Asking, request: Request, kind: type[R]) -> tuple[Reply, list[R]]:
    """The answer of the first peer that gives one, and its rows. Raises PeerError or OverlayError with one line."""
    fault = fault_of(request)
    if fault:
        raise ConfigError(fault)
    places: list[Place] = [_address(text) for text in asking.via]
    caller = None
    if asking.data is not None:
        folder = Path(asking.data)
        places, caller = places or [socket_of(folder)], caller_of(folder)
    body = encode_request(request)
    reply, rows = decode_reply(asyncio.run(_first(places or [_address(DEFAULT_PEER)], body, caller)), kind)
    if reply.error:
        raise RequestError(reply.error)
    return reply, rows


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise ConfigError(f"--via must be HOST:PORT, such as {DEFAULT_PEER}, got {text!r}") from error


async def _first(places: Sequence[Place], body: bytes, caller: Caller | None) -> bytes:
    faults: list[str] = []
    for place in places:
        try:
            return await ask_ring(place, body, caller=caller)
        except OverlayError as error:
            faults.append(str(error))
    raise OverlayError("; ".join(faults))


def run(asking: Asking, answer: Callable[[], RingAnswer]) -> int:
    """Print an answer, or one after the other; the exit status tells whether all is well."""
    while True:
        found = answer()
        text = _as_json(found) if asking.as_json else "\n".join([*found.lines, *tail(found.reply, len(found.rows))])
        if not asking.watch:
            click.echo(text)
            return WELL if found.well and is_whole(found.reply) else NOT_WELL
        if not asking.as_json:
            click.clear()
        click.echo(text)
        time.sleep(WATCH_S)


def is_whole(reply: Reply) -> bool:
    """Whether all peers of the ring have answered."""
    return not reply.missing and not reply.unasked


def _as_json(found: RingAnswer) -> str:
    about = msgspec.to_builtins(msgspec.structs.replace(found.reply, rows=[]))
    return json.dumps(about | {"rows": msgspec.to_builtins(found.rows), "well": found.well and is_whole(found.reply)})


def tail(reply: Reply, shown: int) -> Iterator[str]:
    """Lines below a table: what it lacks."""
    if reply.total > shown:
        yield f"and {reply.total - shown:,} more: see --limit"
    for missing in reply.missing:
        yield missing_line(missing)
    if reply.unasked:
        yield f"and {reply.unasked:,} peers that were not asked"


def missing_line(missing: Missing) -> str:
    return f"missing: {missing.address}, {missing.why}"


def addresses_of(reply: Reply) -> Callable[[str], str]:
    """The address of a peer by its id, as a cell of a table."""
    known = {peer.id: peer.address for peer in reply.peers}
    return lambda peer: known.get(peer, peer[:SHORT])
