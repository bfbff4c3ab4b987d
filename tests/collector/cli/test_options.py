"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ringmq.collector.cli.options import data_option, read_local_data, spark_options


@click.command()
@data_option
@spark_options
def command(**told: object) -> None:
    click.echo(repr(told))


@click.command()
@click.option("--data", callback=read_local_data)
def local_command(data: Path) -> None:
    click.echo(data)


def test_defaults() -> None:
    said = CliRunner().invoke(command, ["--data", "/d"]).output
    assert eval(said) == {"data": "/d", "master": "local[2]", "settings": {}, "verbose": False}


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


@pytest.mark.parametrize("given", [command, local_command])
def test_a_folder_that_spark_would_take_for_a_pattern(given: click.Command) -> None:
    done = CliRunner().invoke(given, ["--data", "/data/star*"])
    assert done.exit_code == 2
    (said,) = done.output.splitlines()
    assert said.startswith("Error: --data: '/data/star*' has a *, and Spark takes names with any of [ ] { } * ? \\ for")


@pytest.mark.parametrize("folder", ["/tmp/x", "file:///tmp/x", "file:/tmp/x"])
def test_a_folder_that_must_be_here(folder: str) -> None:
    assert CliRunner().invoke(local_command, ["--data", folder]).output == "/tmp/x\n"


@pytest.mark.parametrize("folder", ["hdfs://host/x", "s3a://bucket/x"])
def test_a_folder_that_is_elsewhere(folder: str) -> None:
    done = CliRunner().invoke(local_command, ["--data", folder])
    assert done.exit_code == 2
    assert done.output == f"Error: --data: {folder} is not on this machine, where ingest writes\n"
