"""`ringmq status`: the status of a running peer, as a table for people or as JSON for programs.

Knows the form of a status. Asks over the overlay port, as peers do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import check_topic_name
from ringmq.overlay.queries import MAX_ABOUT_BYTES, Place, ask_status
from ringmq.peer.administration.shell.topic_trace import trace
from ringmq.peer.cli.local_peer import caller_of, socket_of
from ringmq.peer.errors import ConfigError
from ringmq.peer.settings.addresses import parse_address

DEFAULT_PEER: Final = "127.0.0.1:4883"
SHORT: Final = 8
"""Digits of an id that distinguish the peers of a ring."""
WELL: Final = 0
NOT_WELL: Final = 3
"""Exit statuses: all is well, and there is an answer that says otherwise."""
MAX_ROWS: Final = 10
"""Maximum rows of partitions and of topics. The JSON has more of them."""
MAX_NAME_CHARS: Final = 40
"""Maximum characters of a filter or topic in a table."""

NAMES: Final = {"counterclockwise": "before  ", "clockwise": "after   "}
"""Names of the two sides in the output."""
TRUST: Final = {
    "identity": "peers prove who they are; this one is {name}",
    "insecure": "none: whoever reaches {address} reads and writes every message",
}
"""What the status says about the trust between peers, if others than this machine can reach the peer."""
UNITS: Final = ("B", "kB", "MB", "GB", "TB")


@click.command()
@click.option("--peer", metavar="HOST:PORT", help=f"Its overlay address.  [default: {DEFAULT_PEER}]")
@click.option("--data", metavar="DIR", help="Data folder of the peer here; with --peer, its certificate asks there.")
@click.option("--topic", help="Show the coordinators and subscribers of this topic in the ring of the peer.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def status(peer: str | None, data: str | None, topic: str | None, as_json: bool) -> int:
    """Show the status of a running peer, or the coordinators and subscribers of a topic in its ring.

    The exit status is 0, 3 while the peer is joining, and 1 without an answer. `ringmq peers` shows the whole ring.
    """
    folder = None if data is None else Path(data)
    place = _place(peer, folder)
    caller = None if folder is None else caller_of(folder)
    if topic is None:
        answer = asyncio.run(ask_status(place, caller=caller))
        lines = lines_of(answer)
    else:
        _check_topic(topic)
        answer = asyncio.run(trace(place, topic, caller))
        lines = lines_of_topic(answer)
    click.echo(json.dumps(answer, indent=2) if as_json else "\n".join(lines))
    return WELL if answer.get("active", True) else NOT_WELL


def _place(peer: str | None, folder: Path | None) -> Place:
    if peer is None and folder is not None:
        return socket_of(folder)
    try:
        return parse_address(peer or DEFAULT_PEER)
    except ValueError as error:
        raise ConfigError(f"--peer must be HOST:PORT, such as {DEFAULT_PEER}, got {peer!r}") from error


def _check_topic(topic: str) -> None:
    try:
        check_topic_name(topic)
    except PacketError as error:
        raise ConfigError(f"--topic: {error}") from error
    if len(topic.encode()) > MAX_ABOUT_BYTES:
        raise ConfigError(f"--topic must be at most {MAX_ABOUT_BYTES} bytes, got {len(topic.encode())}")


def lines_of(answer: Mapping[str, Any]) -> Iterator[str]:
    """Status as text: the peer, its leaf set, its clients, its pub/sub engine, its links, and counters above zero."""
    state = "active" if answer["active"] else "joining"
    yield f"peer        {answer['id'][:SHORT]} at {answer['address']} of ring {answer['ring']}"
    yield f"state       {state}, up {duration(answer['uptime_s'])}"
    if answer.get("trust") in TRUST:
        yield f"trust       {TRUST[answer['trust']].format(**answer)}"
    if answer.get("search"):
        yield f"search      {answer['search']}"
    for side in ("counterclockwise", "clockwise"):
        yield f"{NAMES[side]}    {_next(answer['neighbours'][side])}"
    leaves = answer["leaves"]
    yield f"leaf set    {len(leaves['counterclockwise'])} before, {len(leaves['clockwise'])} after"
    yield f"also known  {answer['table_size']} in the table, {answer['suspects']} suspected, {answer['dead']} dead"
    roles = answer.get("pubsub")  # a node without pub/sub has none
    if roles is not None:
        yield from _clients(answer["listeners"], answer["front"])
        yield from _roles(roles, sum(link["queued_bytes"] for link in answer["links"]))
        yield from _partitions(roles["partitions"])
        yield from _topics(roles["publishing"])
    yield from _links(answer["links"])
    yield from _counted(answer)


def _clients(listeners: Mapping[str, str], front: Mapping[str, Any] | None) -> Iterator[str]:
    if front is None:
        yield "clients     not served"
        return
    where = ", ".join(f"{name} {address}" for name, address in listeners.items()) or "no listener yet"
    yield f"clients     {front['clients']:,} on {where}"
    counted = front["counters"]
    received = f"{counted['publish_received']:,} in ({size(counted['bytes_received'])})"
    sent = f"{counted['publish_sent']:,} out ({size(counted['bytes_sent'])})"
    yield f"messages    {received}, {sent}, {counted['publish_dropped']:,} dropped"
    if counted["log_received"] or counted["log_sent"] or counted["log_dropped"]:
        received = f"{counted['log_received']:,} in ({size(counted['log_bytes_received'])})"
        sent = f"{counted['log_sent']:,} out ({size(counted['log_bytes_sent'])})"
        yield f"records     {received}, {sent}, {counted['log_dropped']:,} dropped"


def _roles(roles: Mapping[str, Any], queued_bytes: int) -> Iterator[str]:
    partitions, publishing, subscribing = roles["partitions"], roles["publishing"], roles["subscribing"]
    gathering = f", {partitions['gathering']:,} being taken over" if partitions["gathering"] else ""
    yield f"partitions  {partitions['owned']:,} owned, {partitions['shadowed']:,} shadowed{gathering}"
    lasting = f" ({partitions['lasting']:,} lasting)" if partitions["lasting"] else ""
    away = f", {partitions['away']:,} of peers that are away" if partitions["away"] else ""
    yield f"keeps       {partitions['entries']:,} entries{lasting}{away}, {partitions['retained']:,} retained messages"
    if "client_ids" in roles:  # Scribe has no registry of them
        yield from _client_ids(roles["client_ids"], partitions["client_ids"])
    out_of_step = f"{partitions['out_of_step']:,} of {partitions['shadows_total']:,} shadows out of step"
    yield f"followers   {out_of_step}, routes at {partitions['holders']:,} peers"
    if partitions["silent"]:
        names = ", ".join(peer["address"] for peer in partitions["silent"])
        yield f"silent      {names}: this peer goes on without them"
    held = f"{publishing['held']:,} partitions held of which {publishing['trusted']:,} are trusted"
    yield f"publishes   {publishing['topics_total']:,} topics by {publishing['routes']:,} routes, {held}"
    in_force = subscribing["stages"]["in_force"] + subscribing["stages"]["changing"]
    wide = f"; {subscribing['wide']:,} wide filters of this peer itself" if subscribing["wide"] else ""
    yield f"subscribes  {in_force:,} filters in force, {subscribing['total'] - in_force:,} on their way{wide}"
    queues = roles["queues"]
    unacknowledged = f"{queues['unacknowledged']:,} messages unacknowledged"
    yield f"waiting     {size(queues['waiting_bytes'])} for peers, {unacknowledged}, {size(queued_bytes)} on links"


def _client_ids(own: Mapping[str, int], kept: int) -> Iterator[str]:
    if own["total"] or kept:
        unanswered = f" ({own['unanswered']:,} without an answer)" if own["unanswered"] else ""
        moving = (
            f", {own['leaving']:,} sessions leaving, {own['coming']:,} coming"
            if own["leaving"] or own["coming"]
            else ""
        )
        yield f"client ids  {own['total']:,} here{unanswered}, {kept:,} in the registry of these partitions{moving}"


def _partitions(partitions: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        (
            str(partition["partition"]),
            str(partition["reign"]),
            f"{partition['entries']:,}",
            f"{partition['retained']:,}",
            f"{partition['holders']:,}",
            _in_step(partition),
        )
        for partition in partitions["shown"]
        if partition["role"] == "coordinator"
    ]
    heads = ("coordinates", "epoch", "entries", "retained", "holders", "in step")
    yield from _some(heads, rows, partitions["coordinated"])


def _topics(publishing: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        (
            name_of(topic["topic"]),
            topic["dispatch"] if topic["fanout"] is None else f"{topic['dispatch']} {topic['fanout']}",
            "-" if topic["peers"] is None else f"{topic['peers']:,}",
            f"{topic['waiting']:,}",
            f"{topic['trusted_s']:.1f} s",
        )
        for topic in publishing["topics"]
    ]
    yield from _some(("publishes", "dispatch", "peers", "waiting", "trusted for"), rows, publishing["topics_total"])


def _some(heads: Sequence[str], rows: Sequence[Sequence[str]], total: int) -> Iterator[str]:
    if rows:
        shown = rows[:MAX_ROWS]
        yield ""
        yield from table(heads, shown)
        if total > len(shown):
            yield f"and {total - len(shown):,} more"


def _counted(answer: Mapping[str, Any]) -> Iterator[str]:
    groups = [("", answer["ring_counters"]), ("", answer["counters"])]
    groups += [(f"{name} ", answer[name]["counters"]) for name in ("pubsub", "front") if answer.get(name)]
    rows = [
        (before + name.replace("_", " "), f"{value:,}")
        for before, counters in groups
        for name, value in counters.items()
        if value
    ]
    if rows:
        yield ""
        yield from table(("counted", ""), rows)


def _next(neighbour: Mapping[str, str] | None) -> str:
    return f"{neighbour['id'][:SHORT]} at {neighbour['address']}" if neighbour else "nobody"


def lines_of_topic(answer: Mapping[str, Any]) -> Iterator[str]:
    """Answer about a topic as text: the coordinators of its partitions, and the subscribers there."""
    yield f"topic       {name_of(answer['topic'])}"
    heads = ("filters of", "coordinator", "address", "partition", "epoch", "holders", "in step")
    yield ""
    yield from table(heads, [_coordinated(partition) for partition in answer["partitions"]])
    held = [partition["held"] for partition in answer["partitions"] if partition["held"] is not None]
    rows = [
        (name_of(subscriber["filter"]), subscriber["id"][:SHORT], subscriber["address"], subscriber["entry"])
        for copy in held
        for subscriber in copy["subscribers"]
    ]
    yield ""
    yield from table(("filter", "subscriber", "address", "entry"), rows) if rows else ("nobody subscribes",)
    more = sum(copy["subscribers_total"] for copy in held) - len(rows)
    if more:
        yield f"and {more:,} more"


def _coordinated(partition: Mapping[str, Any]) -> Sequence[str]:
    coordinator, held = partition["coordinator"], partition["held"]
    names = name_of(", ".join(partition["filters"]))
    row = (names, coordinator["id"][:SHORT], coordinator["address"], str(partition["partition"]))
    if held is None:
        return (*row, "-", "-", "-")
    # A peer that does not coordinate the partition yet shows its role.
    epoch = str(held["reign"]) if held["role"] == "coordinator" else str(held["role"])
    return (*row, epoch, f"{held['holders']:,}", _in_step(held))


def _in_step(partition: Mapping[str, Any]) -> str:
    return f"{sum(shadow['in_step'] for shadow in partition['shadows'])} of {len(partition['shadows'])}"


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
        if "id" in link  # a link has no id before the handshake
    ]
    if rows:
        yield ""
        yield from table(("link", "address", "round trip", "sent", "received"), sorted(rows))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table. The first two columns are aligned to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = [
            cell.ljust(width) if column < min(2, len(heads) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def name_of(topic: str) -> str:
    """Printable, short form of a topic."""
    # Clients choose topics: control characters in a topic could steer the terminal of the user.
    shown = topic if len(topic) <= MAX_NAME_CHARS else topic[: MAX_NAME_CHARS - 1] + "…"
    return "".join([sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in shown])


def duration(seconds: float) -> str:
    """Duration in its two largest units: `3 d 4 h`, `59 s`."""
    rest = int(seconds)
    days, rest = divmod(rest, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((index for index, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2])


def size(count: float) -> str:
    """Size in its largest unit: `999 B`, `1.2 kB`, `3.4 MB`."""
    power = 0
    while count >= 1000 and power < len(UNITS) - 1:
        count /= 1000
        power += 1
    return f"{count:.{1 if power else 0}f} {UNITS[power]}"
