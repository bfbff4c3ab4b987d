"""Options that several commands share."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from collector.options import data_option, spark_options


@click.command()
@data_option
@spark_options
def command(**told: object) -> None:
    click.echo(repr(told))


def test_defaults() -> None:
    said = CliRunner().invoke(command, ["--data", "d"]).output
    assert eval(said) == {"data": "d", "master": "local[2]", "settings": {}, "verbose": False}


def test_settings_of_spark() -> None:
    options = ["--data", "d", "--conf", "spark.a=1", "--conf", "spark.b=x=y", "--verbose", "--master", "yarn"]
    said = eval(CliRunner().invoke(command, options).output)
    assert said["settings"] == {"spark.a": "1", "spark.b": "x=y"}
    assert said["verbose"] is True
    assert said["master"] == "yarn"


@pytest.mark.parametrize("pair", ["spark.a", "a=1", "=1"])
def test_what_is_no_setting(pair: str) -> None:
    done = CliRunner().invoke(command, ["--data", "d", "--conf", pair])
    assert done.exit_code == 2
    assert f"--conf: {pair!r} is not NAME=VALUE with a name that begins with spark." in done.output


def test_data_is_needed() -> None:
    assert CliRunner().invoke(command, []).exit_code == 2
