"""`ringmq expel`: excludes a machine from the ring of a peer on this machine, for ever and everywhere.

Asks that peer over the socket in its data folder, which only its user can open.
"""

from __future__ import annotations

from pathlib import Path

import click

from ringmq.peer.cli.local_peer import DEFAULT_DATA, obey
from ringmq.peer.errors import ConfigError
from ringmq.peer.identity.commands import MAX_NAME_CHARS, Expel


@click.command()
@click.argument("who", metavar="NAME|ID")
@click.option("--data", default=DEFAULT_DATA, show_default=True, metavar="DIR", help="Data folder of the peer here.")
def expel(who: str, data: str) -> None:
    """Exclude a peer from the ring for ever, by its name or the first digits of its id."""
    if not 0 < len(who) <= MAX_NAME_CHARS:
        raise ConfigError(f"NAME|ID must have 1 to {MAX_NAME_CHARS} characters, got {len(who)}")
    click.echo(obey(Path(data), Expel(who)))
