"""Reads command lines as `ringmq` itself would, without running them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ringmq.peer.cli.main import ringmq
from ringmq.peer.settings.load import load
from ringmq.peer.settings.model import PeerConfig


def parameters(command: Sequence[str]) -> dict[str, object]:
    """Of `ringmq …`, by their names. Raises ClickException for a line that would be refused."""
    program, *arguments = command
    assert program.rpartition("/")[2] == "ringmq", program
    with click.Context(ringmq) as outer:
        name, found, rest = ringmq.resolve_command(outer, list(arguments))
        assert found is not None
        with found.make_context(name, rest, outer) as context:
            return dict(context.params)


def peer_config(command: Sequence[str], file: Path | None = None) -> PeerConfig:
    """What a `ringmq peer …` would run with; `file` stands in for the one that --config names. Raises PeerError too."""
    given = {name: value for name, value in parameters(command).items() if value not in (None, ())}
    named = given.pop("config", None)
    assert (named is None) == (file is None), f"--config is {named}"
    return load(file, given)
