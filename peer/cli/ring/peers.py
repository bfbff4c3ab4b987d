"""`ringmq peers`: all peers of a ring in one table, from any of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from ringmq.peer.administration.requests import MAX_ROWS, GonePeer, PeerRow, Reply, Request, Subject
from ringmq.peer.cli.ring.asking import Asking, RingAnswer, ask, asking_options, run, watch_option
from ringmq.peer.cli.status import SHORT, duration, size, table

HEADS: Final = (
    "peer", "address", "state", "version", "up", "clients", "in/s", "out/s", "memory", "late", "coordinates", "shadows",
)  # fmt: skip
BLANK: Final = ("-",) * (len(HEADS) - 3)


@click.command()
@watch_option
@asking_options
def peers(**line: Any) -> int:
    """Show all peers of the ring: state, version, clients, messages a second, memory, roles and warnings.

    The exit status is 0 if all is well, 3 if a peer is missing, dead, joining or warns, and 1 without an answer.
    """
    asking = Asking.by(line)
    return run(asking, lambda: _answer(asking))


def _answer(asking: Asking) -> RingAnswer:
    reply, rows = ask(asking, Request(about=Subject.PEERS, limit=MAX_ROWS), PeerRow)
    rows.sort(key=lambda row: row.peer)
    gone = gone_from(reply, rows)
    lines = list(lines_of(reply, rows, gone))
    return RingAnswer(reply, rows, lines, well=_is_well(rows, gone))


def _is_well(rows: Sequence[PeerRow], gone: Sequence[GonePeer]) -> bool:
    return all(row.state == "active" and not row.warnings for row in rows) and all(peer.left for peer in gone)


def gone_from(reply: Reply, rows: Sequence[PeerRow]) -> list[GonePeer]:
    """Peers that others hold for dead, or that have left, and that have not answered. One that left says so only to
    its neighbours, so their word counts."""
    present = {row.peer for row in rows} | {missing.peer for missing in reply.missing}
    found: dict[str, GonePeer] = {}
    for row in rows:
        for peer in row.gone:
            if peer.id not in present and (peer.id not in found or peer.left):
                found[peer.id] = peer
    return sorted(found.values(), key=lambda peer: peer.id)


def lines_of(reply: Reply, rows: Sequence[PeerRow], gone: Sequence[GonePeer]) -> Iterator[str]:
    """The table, a line of totals, and a line for each warning."""
    cells = [_cells(row) for row in rows]
    cells += [(missing.peer[:SHORT], missing.address, "silent", *BLANK) for missing in reply.missing]
    cells += [(peer.id[:SHORT], peer.address, "left" if peer.left else "dead", *BLANK) for peer in gone]
    yield from table(HEADS, sorted(cells))
    yield ""
    clients, rate = sum(row.clients for row in rows), sum(row.messages_in_s for row in rows)
    yield f"{_count(len(rows), 'peer')}, {_count(clients, 'client')}, {rate:,.1f} messages/s from clients"
    for row in rows:
        for warning in row.warnings:
            yield f"{row.address}: {_printable(warning)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _cells(row: PeerRow) -> tuple[str, ...]:
    return (
        row.peer[:SHORT],
        row.address,
        row.state,
        row.version,
        duration(row.uptime_s),
        f"{row.clients:,}",
        f"{row.messages_in_s:,.1f}",
        f"{row.messages_out_s:,.1f}",
        size(row.memory_bytes),
        f"{row.late_ms:.0f} ms",
        f"{row.coordinates:,}",
        f"{row.shadows:,}",
    )


def _printable(text: str) -> str:
    """Another peer chose the text: control characters could steer the terminal."""
    return "".join([sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text])
