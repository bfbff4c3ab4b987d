"""`ringmq config`: prints a file with every setting, and says what is wrong with one before a peer is started with it.

Owns what is said. Settings are read by `peer.settings.load`, and files that they name by those who read them for a
peer, so that what is refused here is what a peer refuses.
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
from ringmq.peer.errors import ConfigError, PeerError
from ringmq.peer.identity.data_folder import check_folder
from ringmq.peer.iteration import Iteration
from ringmq.peer.mqtt_service import MqttService
from ringmq.peer.settings.load import TABLES, PeerConfig, load
from ringmq.peer.settings.reference import as_toml, reference

WRONG_SETTINGS: Final = 2
WRONG_FILES: Final = 1
"""Exit statuses, as of a peer that does not start for the same reason."""
FILES: Final = (("passwords",), ("acl",), ("tls_cert", "tls_key", "tls_ca"), ("front", "amqtt_settings"))
"""What names files of which each can be wrong by itself."""


@click.group(no_args_is_help=False)
def config() -> None:
    """Print a file with every setting, or look at one before a peer is started with it."""


@config.command()
def example() -> None:
    """Print a file with every setting: its unit, its default, what it trades."""
    click.echo(reference(), nl=False)


@config.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.toml")
def check(file: Path) -> int:
    """Say what is wrong with a file of settings, a line for each fault, or else what in it is not the default.

    All is refused that `ringmq peer --config` refuses at its start, files that the settings name among it. Nothing is
    started or written.
    """
    configure("warning")
    try:
        found = load(file, {})
    except ConfigError as error:
        return _complain(error.lines, WRONG_SETTINGS)
    wrong = asyncio.run(wrong_files(found))
    if wrong:
        return _complain(wrong, WRONG_FILES)
    changed = list(not_default(found))
    count = f"{len(changed)} setting{'s are' if len(changed) > 1 else ' is'} not the default"
    click.echo(f"{file}: nothing is wrong, {count if changed else 'and every setting has its default'}")
    for line in changed:
        click.echo(line)
    return 0


async def wrong_files(found: PeerConfig) -> list[str]:
    """What is wrong with the files that settings name, a line for each fault."""
    lines = []
    if found.data is not None:
        try:
            check_folder(found.data)
        except PeerError as error:
            lines.append(str(error))
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
    """Otherwise one wrong file would keep the others from being read. The data folder has nothing to do with them."""
    default = PeerConfig()
    others = {name for names in FILES for name in names} - {*besides} | {"data"}
    return dataclasses.replace(found, **{name: getattr(default, name) for name in others})


def not_default(found: PeerConfig) -> Iterator[str]:
    """The settings with another value than the default, a line each, by the names that errors have for them."""
    yield from _changed(found, PeerConfig(), "")
    for number, rule in enumerate(found.topics, 1):
        said = {name: value for name, value in rule._asdict().items() if value is not None}
        yield f"topics {number}: " + ", ".join(f"{name} = {as_toml(value)}" for name, value in said.items())
    yield from _changed(found.limits, PeerConfig().limits, "limits: ")
    yield from _changed(found.record, PeerConfig().record, "record: ")


def _changed(one: object, default: object, where: str) -> Iterator[str]:
    for field in dataclasses.fields(one):  # type: ignore[arg-type]  # three dataclasses come here
        value = getattr(one, field.name)
        if field.name not in TABLES and value != getattr(default, field.name):
            yield f"{where}{field.name} = {as_toml(value)}"


def _complain(lines: Iterable[str], status: int) -> int:
    for line in lines:
        click.echo(f"ringmq: {' '.join(line.split())}", err=True)
    return status
