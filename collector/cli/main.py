"""The command `ringmq collect`: finds a subcommand and runs it.

Knows the names and modules of the commands, not their work. A module is imported when its command is invoked or listed,
so that every command works without the packages that only another command needs.
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
    """A group of commands that are imported one by one, on demand."""

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
    """Replaces a command that needs a package that is not installed. The other commands still work."""
    # A missing module of this package is a defect here, which installing the extra would not repair.
    ours = (error.name or "").partition(".")[0] == "ringmq"
    reason = str(error) if ours else f"{error}; {REMEDY}"

    def fail() -> None:
        raise CollectorError(f"collect {name} is not available: {reason}")

    # Any options, so that the user sees this reason and not a complaint about an option of the real command.
    any_options = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, any_options, callback=fail, help=f"Not available: {error}.", add_help_option=False)


@click.group(cls=LazyGroup, no_args_is_help=False)
def collect() -> None:
    """Collect the records of the peers, and reduce them to tables and plots."""
