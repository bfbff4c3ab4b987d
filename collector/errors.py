"""The errors of the collector: one root, which the command line turns into one line."""

from __future__ import annotations

import click


class CollectorError(click.ClickException):
    """The root of everything `collector` raises on purpose; its text is one line for the user. Exit status 1."""


class SettingError(CollectorError):
    """A setting is wrong: the user must change the command line. Exit status 2."""

    exit_code = 2
