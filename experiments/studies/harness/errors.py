"""The errors of the experiments: one root, which the command line turns into one line."""

from __future__ import annotations

import click


class ExperimentError(click.ClickException):
    """Nothing can be found, or not here; its text is one line for the user. Exit status 1."""
