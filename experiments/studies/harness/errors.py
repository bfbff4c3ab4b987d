"""The error of the experiments, which the command line prints as one line."""

from __future__ import annotations

import click


class ExperimentError(click.ClickException):
    """An experiment or a trial has no result. The text is one line for the user; the exit status is 1."""
