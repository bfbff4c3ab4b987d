"""What several commands of the collector are told in the same way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from ringmq.collector.data_folder import local_path, whole
from ringmq.collector.errors import SettingError

MASTER: Final = "local[2]"

Command = TypeVar("Command", bound=Callable[..., Any])


def data_option(command: Command) -> Command:
    """Where the records and tables are."""
    wanted = "The folder that ingest fills: a path, or a URL such as hdfs://host/records."
    return click.option("--data", required=True, metavar="DIR", callback=_read_data, help=wanted)(command)


def read_local_data(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    """The callback of a `--data` that must be on this machine."""
    folder = local_path(_read_data(ctx, param, value))
    if folder is None:
        raise SettingError(f"--data: {value} is not on this machine, where ingest writes")
    return folder


def spark_options(command: Command) -> Command:
    """Where Spark runs, and how."""
    for option in (
        click.option("--verbose", is_flag=True, help="Show what Spark logs."),
        click.option(
            "--conf",
            "settings",
            multiple=True,
            metavar="NAME=VALUE",
            callback=_read_settings,
            help="A setting of Spark, such as spark.driver.memory=4g; several times for several.",
        ),
        click.option(
            "--master",
            default=MASTER,
            show_default=True,
            metavar="MASTER",
            help="Where Spark runs: any master of its own.",
        ),
    ):
        command = option(command)
    return command


def _read_data(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return whole(value)
    except ValueError as error:
        raise SettingError(f"--data: {error}") from None


def _read_settings(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in value:
        name, equals, setting = pair.partition("=")
        if not equals or not name.startswith("spark."):
            raise SettingError(f"--conf: {pair!r} is not NAME=VALUE with a name that begins with spark.")
        found[name] = setting
    return found
