"""Paths of a data folder, here and elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.places import below, local_path


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("data", "data/parquet/x"),
        ("data/", "data/parquet/x"),
        ("/", "/parquet/x"),
        ("hdfs://host:9000/data", "hdfs://host:9000/data/parquet/x"),
    ],
)
def test_below(folder: str, path: str) -> None:
    assert below(folder, "parquet", "x") == path


@pytest.mark.parametrize("folder", ["data", "/var/data", "a:b", "./a b"])
def test_paths_of_this_machine(folder: str) -> None:
    assert local_path(folder) == Path(folder)


@pytest.mark.parametrize("url", ["file:/var/data", "file:///var/data"])
def test_urls_of_this_machine(url: str) -> None:
    assert local_path(url) == Path("/var/data")


@pytest.mark.parametrize("url", ["hdfs://host/data", "s3a://bucket/data", "hdfs:///data"])
def test_elsewhere(url: str) -> None:
    assert local_path(url) is None
