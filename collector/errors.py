"""The errors of the collector: one root, which the command line turns into one line."""

from __future__ import annotations

from typing import Final

import click

MAX_CHARS: Final = 400
"""The longest text of a foreign error: errors of Spark may contain whole query plans."""


class CollectorError(click.ClickException):
    """Base class of all errors that `collector` raises on purpose. Its text is one line for the user. Exit status 1."""


class SettingError(CollectorError):
    """A wrong setting: the user must change the command line. Exit status 2."""

    exit_code = 2


def short(text: str) -> str:
    """The first line of a foreign error text, cut to MAX_CHARS."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "unknown reason")
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"
