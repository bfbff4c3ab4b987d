"""The command `ringmq collect`: finds a subcommand and runs it.

Knows the names of the commands and where they are, not what they do: each one's module is imported when it is invoked
or listed, so that one works without what only another needs.
"""

from __future__ import annotations

import importlib
from typing import Final

import click

from ringmq.collector.errors import CollectorError

COMMANDS: Final = {
    "all": "ringmq.collector.cli.all:all",
    "ingest": "ringmq.collector.cli.ingest:ingest",
    "reduce": "ringmq.collector.cli.reduce:reduce",
    "show": "ringmq.collector.cli.show:show",
    "stream": "ringmq.collector.cli.stream:stream",
}
REMEDY: Final = "install it with the extra: pip install 'ringmq[collector]'"


class LazyGroup(click.Group):
    """A group of commands that are imported one by one, as they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, name = target.partition(":")
        try:
            command = getattr(importlib.import_module(module), name)
        except ImportError as error:
            return _unavailable(cmd_name, error)
        assert isinstance(command, click.Command), cmd_name
        return command


def _unavailable(name: str, error: ImportError) -> click.Command:
    """Stands for a command of which something is not installed; the others still work and are listed."""
    ours = (error.name or "").partition(".")[0] == "ringmq"
    why = str(error) if ours else f"{error}; {REMEDY}"

    def fail() -> None:
        raise CollectorError(f"collect {name} is not available: {why}")

    any_options = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, any_options, callback=fail, help=f"Not available: {error}.", add_help_option=False)


@click.group(cls=LazyGroup, no_args_is_help=False)
def collect() -> None:
    """Gather what the peers record, and reduce it to tables and plots."""
