"""Paths in a data folder, on this machine and elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.collector.data_folder import below, local_path, spark_path


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("data", "data/parquet/x"),
        ("data/", "data/parquet/x"),
        ("/", "/parquet/x"),
        ("hdfs://host:9000/data", "hdfs://host:9000/data/parquet/x"),
    ],
)
def test_below_joins_names(folder: str, path: str) -> None:
    assert below(folder, "parquet", "x") == path


@pytest.mark.parametrize("folder", ["data", "/var/data", "a:b", "./a b", "./hdfs:/b", "a#b?c%20"])
def test_paths_are_local(folder: str) -> None:
    assert local_path(folder) == Path(folder)


@pytest.mark.parametrize("url", ["file:/var/data", "file:///var/data", "FILE:/var/data", "file://localhost/var/data"])
def test_file_urls_are_local(url: str) -> None:
    assert local_path(url) == Path("/var/data")
    assert local_path(f"{url}#b?c%20") == Path("/var/data#b?c%20")


@pytest.mark.parametrize(
    "url", ["hdfs://host/data", "s3a://bucket/data", "hdfs:///data", "hdfs:/data", "file://host/data"]
)
def test_other_urls_are_not_local(url: str) -> None:
    assert local_path(url) is None


@pytest.mark.parametrize("folder", ["data", "./data", "run:1", "a b%20#c"])
def test_spark_paths_are_absolute(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert spark_path(folder) == str(tmp_path / folder)
    assert spark_path(f"file:{folder}") == f"file:{tmp_path / folder}"


@pytest.mark.parametrize("url", ["hdfs://host:9000/data", "s3a://bucket/data"])
def test_remote_urls_stay_unchanged(url: str) -> None:
    assert spark_path(url) == url


@pytest.mark.parametrize("sign", list("[]{}*?\\"))
@pytest.mark.parametrize("folder", ["a{}b/data", "/data{}", "file:/data{}", "hdfs://host/data{}"])
def test_name_with_pattern_characters_raises(folder: str, sign: str) -> None:
    with pytest.raises(ValueError, match="as patterns") as raised:
        spark_path(folder.replace("{}", sign))
    assert f"contains {sign}: " in str(raised.value)
    assert "\n" not in str(raised.value)


def test_parent_name_with_pattern_characters_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a*").mkdir()
    monkeypatch.chdir(tmp_path / "a*")
    with pytest.raises(ValueError, match=r"a\*/data' contains \*:"):
        spark_path("data")
