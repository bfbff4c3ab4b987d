"""Operations on whole folders, on the file system of this machine under two names."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.errors import CollectorError
from ringmq.collector.folders import Folders
from ringmq.collector.spark.session import plain_errors


@pytest.mark.parametrize("prefix", ["", "file:"])
def test_folders_are_created_found_and_removed(spark: SparkSession, tmp_path: Path, prefix: str) -> None:
    folders = Folders(spark)
    deep = f"{prefix}{tmp_path}/a/b"
    assert not folders.exists(deep)
    folders.make(deep)
    folders.make(deep)
    assert folders.exists(deep)
    (tmp_path / "a" / "b" / "file").write_text("x")
    folders.remove(f"{prefix}{tmp_path}/a")
    folders.remove(f"{prefix}{tmp_path}/a")
    assert list(tmp_path.iterdir()) == []


def test_replace_puts_a_folder_in_the_place_of_another(spark: SparkSession, tmp_path: Path) -> None:
    folders = Folders(spark)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    folders.replace(f"{tmp_path}/old", f"{tmp_path}/new")
    folders.make(f"{tmp_path}/new")
    folders.replace(f"{tmp_path}/never", f"{tmp_path}/new")
    assert {folder.name: [file.name for file in folder.iterdir()] for folder in tmp_path.iterdir()} == {
        "old": ["new"],
        "never": [],
    }


def test_error_of_the_file_system_raises(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(CollectorError, match="Parent path is not a directory"), plain_errors():
        Folders(spark).replace(f"{tmp_path}/file/old", f"{tmp_path}/new")


def test_refused_rename_raises() -> None:
    """Other file systems than that of this machine return False instead of raising."""
    spark = MagicMock()
    spark.sparkContext._jvm.org.apache.hadoop.fs.Path.return_value.getFileSystem.return_value.rename.return_value = (
        False
    )
    with pytest.raises(CollectorError, match="cannot rename new to old"):
        Folders(spark).replace("old", "new")
