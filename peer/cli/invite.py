"""`ringmq invite`: prints the command with which another machine joins the ring of a peer on this machine.

Asks that peer over the socket in its data folder, which only its user can open.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from ringmq.peer.cli.local_peer import DEFAULT_DATA, obey
from ringmq.peer.errors import ConfigError
from ringmq.peer.identity.commands import MAX_FOR_S, Invite

UNITS_S: Final = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d{1,9})(s|min|m|h|d)")


@click.command()
@click.option("--data", default=DEFAULT_DATA, show_default=True, metavar="DIR", help="Data folder of the peer here.")
@click.option("--name", default="", metavar="NAME", help="Name of the new peer.  [default: the name of its machine]")
@click.option("--for", "duration", default="1h", show_default=True, metavar="TIME", help="Time in which it must join.")
def invite(data: str, name: str, duration: str) -> None:
    """Print the command for the next machine: it joins the ring with a token that is good once."""
    click.echo(obey(Path(data), Invite(name, parse_duration(duration))))


def parse_duration(text: str) -> float:
    """Read `90s`, `10min`, `1h` or `7d`, in seconds. Raises ConfigError."""
    found = _DURATION.fullmatch(text)
    duration_s = int(found[1]) * UNITS_S[found[2]] if found is not None else 0.0
    if not 0 < duration_s <= MAX_FOR_S:
        raise ConfigError(
            f"--for must be a time such as 30min, 1h or 7d, at most {MAX_FOR_S / 86400:.0f}d, got {text!r}"
        )
    return duration_s
