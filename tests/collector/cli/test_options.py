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
def command(**options: object) -> None:
    click.echo(repr(options))


@click.command()
@click.option("--data", callback=read_local_data)
def local_command(data: Path) -> None:
    click.echo(data)


def test_defaults_of_options() -> None:
    output = CliRunner().invoke(command, ["--data", "/d"]).output
    assert eval(output) == {"data": "/d", "master": "local[2]", "settings": {}, "verbose": False}


def test_spark_options_are_parsed() -> None:
    arguments = ["--data", "d", "--conf", "spark.a=1", "--conf", "spark.b=x=y", "--verbose", "--master", "yarn"]
    output = eval(CliRunner().invoke(command, arguments).output)
    assert output["settings"] == {"spark.a": "1", "spark.b": "x=y"}
    assert output["verbose"] is True
    assert output["master"] == "yarn"


@pytest.mark.parametrize("pair", ["spark.a", "a=1", "=1"])
def test_invalid_setting_is_refused(pair: str) -> None:
    done = CliRunner().invoke(command, ["--data", "d", "--conf", pair])
    assert done.exit_code == 2
    assert f"--conf must be NAME=VALUE, with a name that begins with spark., got {pair!r}" in done.output


def test_data_is_required() -> None:
    assert CliRunner().invoke(command, []).exit_code == 2


@pytest.mark.parametrize("given", [command, local_command])
def test_folder_name_with_pattern_characters_is_refused(given: click.Command) -> None:
    done = CliRunner().invoke(given, ["--data", "/data/star*"])
    assert done.exit_code == 2
    (output,) = done.output.splitlines()
    assert output.startswith(
        "Error: --data: '/data/star*' contains *: Spark reads names with any of [ ] { } * ? \\ as patterns"
    )


@pytest.mark.parametrize("folder", ["/tmp/x", "file:///tmp/x", "file:/tmp/x"])
def test_local_folder_is_accepted_as_path_and_url(folder: str) -> None:
    assert CliRunner().invoke(local_command, ["--data", folder]).output == "/tmp/x\n"


@pytest.mark.parametrize("folder", ["hdfs://host/x", "s3a://bucket/x"])
def test_remote_folder_is_refused_for_ingest(folder: str) -> None:
    done = CliRunner().invoke(local_command, ["--data", folder])
    assert done.exit_code == 2
    assert done.output == f"Error: --data must be a folder of this machine, since ingest writes there, got {folder}\n"
