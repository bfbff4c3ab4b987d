"""The errors of the collector: one root, which the command line turns into one line."""

from __future__ import annotations

from typing import Final

import click

MAX_CHARS: Final = 400
"""Of what somebody else says is wrong: the errors of Spark may hold whole plans."""


class CollectorError(click.ClickException):
    """The root of everything `collector` raises on purpose; its text is one line for the user. Exit status 1."""


class SettingError(CollectorError):
    """A setting is wrong: the user must change the command line. Exit status 2."""

    exit_code = 2


def short(text: str) -> str:
    """The first line of what somebody else says."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason is known")
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"
