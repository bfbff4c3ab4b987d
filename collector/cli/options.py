"""Options that several commands of the collector share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from ringmq.collector.data_folder import local_path, spark_path
from ringmq.collector.errors import SettingError

MASTER: Final = "local[2]"

Command = TypeVar("Command", bound=Callable[..., Any])


def data_option(command: Command) -> Command:
    """Adds the option for the folder of records and tables."""
    help_text = "The folder that ingest fills: a path, or a URL such as hdfs://host/records."
    return click.option("--data", required=True, metavar="DIR", callback=_read_data, help=help_text)(command)


def read_local_data(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    """The callback of a `--data` that must be on this machine."""
    folder = local_path(_read_data(ctx, param, value))
    if folder is None:
        raise SettingError(f"--data must be a folder of this machine, since ingest writes there, got {value}")
    return folder


def spark_options(command: Command) -> Command:
    """Adds the options for the place and the settings of Spark."""
    for option in (
        click.option("--verbose", is_flag=True, help="Show the log of Spark."),
        click.option(
            "--conf",
            "settings",
            multiple=True,
            metavar="NAME=VALUE",
            callback=_read_settings,
            help="A setting of Spark, such as spark.driver.memory=4g; may be repeated.",
        ),
        click.option(
            "--master",
            default=MASTER,
            show_default=True,
            metavar="MASTER",
            help="The Spark master, which decides where the job runs.",
        ),
    ):
        command = option(command)
    return command


def _read_data(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return spark_path(value)
    except ValueError as error:
        raise SettingError(f"--data: {error}") from None


def _read_settings(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for pair in value:
        name, equals, setting = pair.partition("=")
        # Spark ignores settings with other names, and says so only in its log.
        if not equals or not name.startswith("spark."):
            raise SettingError(f"--conf must be NAME=VALUE, with a name that begins with spark., got {pair!r}")
        settings[name] = setting
    return settings
