"""The command `ringmq`: finds a subcommand, runs it, and turns every error into one line.

Knows only the names of the commands: the module of a command is imported when the command is invoked or listed.
Other packages add commands as entry points, because `peer` may not import them.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from ringmq.overlay.errors import OverlayError
from ringmq.peer.errors import ConfigError, PeerError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

BUILT_IN: Final = {
    "clients": "ringmq.peer.cli.ring.clients:clients",
    "config": "ringmq.peer.cli.config:config",
    "expel": "ringmq.peer.cli.expel:expel",
    "invite": "ringmq.peer.cli.invite:invite",
    "kick": "ringmq.peer.cli.ring.clients:kick",
    "passwd": "ringmq.peer.cli.passwd:passwd",
    "peer": "ringmq.peer.process:peer",
    "peers": "ringmq.peer.cli.ring.peers:peers",
    "pub": "ringmq.peer.cli.clients.pub:pub",
    "retained": "ringmq.peer.cli.ring.topics:retained",
    "sessions": "ringmq.peer.cli.ring.clients:sessions",
    "status": "ringmq.peer.cli.status:status",
    "sub": "ringmq.peer.cli.clients.sub:sub",
    "topics": "ringmq.peer.cli.ring.topics:topics",
}
ENTRY_POINTS: Final = "ringmq.commands"


class LazyGroup(click.Group):
    """A group whose commands are imported one by one, on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*BUILT_IN, *_added().names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = BUILT_IN.get(cmd_name)
        if target is not None:
            module, _, name = target.partition(":")
            command = getattr(importlib.import_module(module), name)
        else:
            found = _added().select(name=cmd_name)
            if not found:
                return None
            try:
                command = next(iter(found)).load()
            except ImportError as error:
                return _unavailable(cmd_name, error)
        assert isinstance(command, click.Command), cmd_name
        return command


def _unavailable(name: str, error: ImportError) -> click.Command:
    """Stand-in for a command whose optional dependency is not installed, so that `--help` can still list all."""

    def fail() -> None:
        raise click.ClickException(f"{name} is not available: {error}")

    any_options = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, any_options, callback=fail, help=f"Not available: {error}.", add_help_option=False)


def _added() -> EntryPoints:
    # A peer needs none of them, and would keep what this imports in memory.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points(group=ENTRY_POINTS)


@click.group(cls=LazyGroup, no_args_is_help=False)
@click.version_option(package_name="ringmq", message="ringmq %(version)s")
def ringmq() -> None:
    """A peer-to-peer MQTT broker for the edge: every machine runs a peer, and the peers form a ring."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage or configuration, 3 not all is well,
    130 interrupted."""
    sys.exit(_status(arguments))


def _status(arguments: list[str] | None) -> int:
    try:
        # Without standalone mode click raises its errors instead of printing them, so each becomes one line below.
        done: Any = ringmq.main(arguments, prog_name="ringmq", standalone_mode=False)
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
        return _say(error.format_message() + where, 2)
    except click.ClickException as error:
        return _say(error.format_message(), error.exit_code)
    except ConfigError as error:
        return _say(str(error), 2)
    except (PeerError, OverlayError) as error:
        return _say(str(error), 1)
    except (click.Abort, KeyboardInterrupt):
        return 130
    return done if isinstance(done, int) else 0


def _say(text: str, status: int) -> int:
    click.echo(f"ringmq: {' '.join(text.split())}", err=True)
    return status
