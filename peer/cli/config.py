"""`ringmq config`: prints a file with every setting, and checks a file before a peer is started with it.

Owns the output. The settings, and the files that they name, are read by the code that reads them for a peer, so this
command refuses exactly the files that a peer refuses.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from ringmq.logger.log_setup import configure
from ringmq.mqtt_front.cluster import Standalone
from ringmq.overlay.config import show
from ringmq.peer.errors import ConfigError, PeerError
from ringmq.peer.identity.data_folder import check_folder
from ringmq.peer.identity.entrance import check_entrance
from ringmq.peer.iteration import Iteration
from ringmq.peer.mqtt_service import MqttService
from ringmq.peer.settings.load import TABLES, load
from ringmq.peer.settings.model import PeerConfig
from ringmq.peer.settings.reference import as_toml, reference
from ringmq.peer.web.service import read_tokens

WRONG_SETTINGS: Final = 2
WRONG_FILES: Final = 1
"""Exit statuses: the same as of a peer that does not start for this reason."""
FILES: Final = (("passwords",), ("acl",), ("tls_cert", "tls_key", "tls_ca"), ("front", "amqtt_settings"))
"""Groups of settings whose files can each be wrong independently of the other groups."""


@click.group(no_args_is_help=False)
def config() -> None:
    """Print a file with every setting, or check a file before a peer is started with it."""


@config.command()
def example() -> None:
    """Print a file with every setting: its unit, default and trade-off."""
    click.echo(reference(), nl=False)


@config.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.toml")
def check(file: Path) -> int:
    """Print the faults of a file of settings, one per line, or else its settings that are not the default.

    Refuses everything that `ringmq peer --config` refuses at its start, including the files that the settings name.
    Starts and writes nothing.
    """
    configure("warning")
    try:
        found = load(file, {})
    except ConfigError as error:
        return _print_faults(error.lines, WRONG_SETTINGS)
    wrong = asyncio.run(wrong_files(found))
    if wrong:
        return _print_faults(wrong, WRONG_FILES)
    changed = list(not_default(found))
    count = f"{len(changed)} setting{'s are' if len(changed) > 1 else ' is'} not the default"
    click.echo(f"{file}: no errors, {count if changed else 'every setting has its default'}")
    for line in changed:
        click.echo(line)
    if found.insecure and found.is_open:
        click.echo(f"warning: insecure: whoever reaches {show(found.overlay)} reads and writes every message")
    return 0


async def wrong_files(found: PeerConfig) -> list[str]:
    """Faults of the files that settings name, a line for each."""
    lines = []
    if found.data is not None:
        try:
            check_entrance(found, found.data, check_folder(found.data))
        except PeerError as error:
            lines.append(str(error))
    try:
        read_tokens(found.http_tokens)
    except PeerError as error:
        lines.append(str(error))
    # Each group is prepared alone, because preparing stops at the first fault and would hide the faults of the others.
    for names in FILES if found.listeners else ():
        clients = MqttService(_without_files(found, besides=names), Standalone(), Iteration())
        try:
            clients.prepare()
        except PeerError as error:
            lines.append(str(error))
        finally:
            await clients.stop()
    return lines


def _without_files(found: PeerConfig, besides: Iterable[str]) -> PeerConfig:
    """Return the configuration with the file settings `besides` alone, and without a data folder."""
    default = PeerConfig()
    others = {name for names in FILES for name in names} - {*besides} | {"data"}
    return dataclasses.replace(found, **{name: getattr(default, name) for name in others})


def not_default(found: PeerConfig) -> Iterator[str]:
    """Settings that are not the default, one per line, under the names that errors use."""
    yield from _changed(found, PeerConfig(), "")
    for number, rule in enumerate(found.topics, 1):
        given = {name: value for name, value in rule._asdict().items() if value is not None}
        yield f"topics {number}: " + ", ".join(f"{name} = {as_toml(value)}" for name, value in given.items())
    yield from _changed(found.limits, PeerConfig().limits, "limits: ")
    yield from _changed(found.record, PeerConfig().record, "record: ")


def _changed(settings: object, default: object, where: str) -> Iterator[str]:
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]  # one of three dataclasses
        value = getattr(settings, field.name)
        if field.name not in TABLES and value != getattr(default, field.name):
            yield f"{where}{field.name} = {as_toml(value)}"


def _print_faults(lines: Iterable[str], status: int) -> int:
    for line in lines:
        click.echo(f"ringmq: {' '.join(line.split())}", err=True)
    return status
