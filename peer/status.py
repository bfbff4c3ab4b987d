"""`ringmq status`: what a running peer says of itself, as a table for people or as JSON for programs.

Knows the form of a status; asks over the overlay port like any peer would.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from overlay.questions import ask_status
from peer.addresses import parse_address
from peer.errors import ConfigError

DEFAULT_PEER: Final = "127.0.0.1:4883"
SHORT: Final = 8
"""So many digits of an id tell two peers of one ring apart."""

NAMES: Final = {"counterclockwise": "before  ", "clockwise": "after   "}
"""What people call the two sides."""
UNITS: Final = ("B", "kB", "MB", "GB", "TB")


@click.command()
@click.option("--peer", default=DEFAULT_PEER, show_default=True, metavar="HOST:PORT", help="Its overlay address.")
@click.option("--json", "as_json", is_flag=True, help="All of it, for programs.")
def status(peer: str, as_json: bool) -> None:
    """Show what a running peer says of itself."""
    try:
        address = parse_address(peer)
    except ValueError as error:
        raise ConfigError(f"--peer: {peer!r} is not HOST:PORT, such as {DEFAULT_PEER}") from error
    answer = asyncio.run(ask_status(address))
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        click.echo("\n".join(lines_of(answer)))


def lines_of(answer: Mapping[str, Any]) -> Iterator[str]:
    """The status for people: who it is, its leaf set, its links, and what it counted that is not zero."""
    state = "active" if answer["active"] else "joining"
    yield f"peer        {answer['id'][:SHORT]} at {answer['address']} of ring {answer['ring']}"
    yield f"state       {state}, up {duration(answer['uptime_s'])}"
    for side in ("counterclockwise", "clockwise"):
        yield f"{NAMES[side]}    {_next(answer['neighbours'][side])}"
    leaves = answer["leaves"]
    yield f"leaf set    {len(leaves['counterclockwise'])} before, {len(leaves['clockwise'])} after"
    yield f"also known  {answer['table_size']} in the table, {answer['suspects']} suspected, {answer['dead']} dead"
    yield from _links(answer["links"])
    counted = [
        (name, value) for name, value in (*answer["ring_counters"].items(), *answer["counters"].items()) if value
    ]
    if counted:
        yield ""
        yield from table(("counted", ""), [(name.replace("_", " "), f"{value:,}") for name, value in counted])


def _next(neighbour: Mapping[str, str] | None) -> str:
    return f"{neighbour['id'][:SHORT]} at {neighbour['address']}" if neighbour else "nobody"


def _links(links: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = [
        (
            link["id"][:SHORT],
            link["address"],
            "-" if link["rtt_ms"] is None else f"{link['rtt_ms']:.2f} ms",
            size(link["bytes_out"]),
            size(link["bytes_in"]),
        )
        for link in links
        if "id" in link  # one that has not said yet who it is tells nothing
    ]
    if rows:
        yield ""
        yield from table(("link", "address", "round trip", "sent", "received"), sorted(rows))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as they must be; the first two to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = [
            cell.ljust(width) if place < min(2, len(heads) - 1) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def duration(seconds: float) -> str:
    """The two largest units: `3 d 4 h`, `59 s`."""
    rest = int(seconds)
    days, rest = divmod(rest, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((place for place, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2])


def size(count: float) -> str:
    """`999 B`, `1.2 kB`, `3.4 MB`."""
    power = 0
    while count >= 1000 and power < len(UNITS) - 1:
        count /= 1000
        power += 1
    return f"{count:.{1 if power else 0}f} {UNITS[power]}"
