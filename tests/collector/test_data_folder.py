"""Paths of a data folder, here and elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.collector.data_folder import below, local_path, whole


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


@pytest.mark.parametrize("folder", ["data", "/var/data", "a:b", "./a b", "./hdfs:/b", "a#b?c%20"])
def test_paths_of_this_machine(folder: str) -> None:
    assert local_path(folder) == Path(folder)


@pytest.mark.parametrize("url", ["file:/var/data", "file:///var/data", "FILE:/var/data", "file://localhost/var/data"])
def test_urls_of_this_machine(url: str) -> None:
    assert local_path(url) == Path("/var/data")
    assert local_path(f"{url}#b?c%20") == Path("/var/data#b?c%20")


@pytest.mark.parametrize(
    "url", ["hdfs://host/data", "s3a://bucket/data", "hdfs:///data", "hdfs:/data", "file://host/data"]
)
def test_elsewhere(url: str) -> None:
    assert local_path(url) is None


@pytest.mark.parametrize("folder", ["data", "./data", "run:1", "a b%20#c"])
def test_paths_are_whole_for_spark(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert whole(folder) == str(tmp_path / folder)
    assert whole(f"file:{folder}") == f"file:{tmp_path / folder}"


@pytest.mark.parametrize("url", ["hdfs://host:9000/data", "s3a://bucket/data"])
def test_what_is_elsewhere_stays(url: str) -> None:
    assert whole(url) == url


@pytest.mark.parametrize("sign", list("[]{}*?\\"))
@pytest.mark.parametrize("folder", ["a{}b/data", "/data{}", "file:/data{}", "hdfs://host/data{}"])
def test_no_name_is_a_pattern(folder: str, sign: str) -> None:
    with pytest.raises(ValueError, match="for patterns") as raised:
        whole(folder.replace("{}", sign))
    assert f"has a {sign}, " in str(raised.value)
    assert "\n" not in str(raised.value)


def test_nor_of_the_folders_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a*").mkdir()
    monkeypatch.chdir(tmp_path / "a*")
    with pytest.raises(ValueError, match=r"a\*/data' has a \*"):
        whole("data")
