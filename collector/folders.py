"""Steps with whole folders, wherever they are: on this machine or on any file system that Hadoop knows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from ringmq.collector.errors import CollectorError


class Folders:
    """Steps on the file system that each folder is on. What goes wrong there raises as everything of Spark."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        # Python has no other way to the file systems of Hadoop.
        self._jvm = context._jvm  # noqa: SLF001
        self._settings = context._jsc.hadoopConfiguration()  # noqa: SLF001

    def make(self, folder: str) -> None:
        """With those above it; one that is there is left as it is."""
        path = self._path(folder)
        path.getFileSystem(self._settings).mkdirs(path)

    def exists(self, folder: str) -> bool:
        path = self._path(folder)
        return bool(path.getFileSystem(self._settings).exists(path))

    def remove(self, folder: str) -> None:
        """With all that is in it; nothing happens if there is none."""
        path = self._path(folder)
        path.getFileSystem(self._settings).delete(path, True)

    def replace(self, folder: str, by: str) -> None:
        """Put `by`, which is beside it, in the place of a folder. Raises CollectorError if the file system refuses."""
        self.remove(folder)
        source = self._path(by)
        if not source.getFileSystem(self._settings).rename(source, self._path(folder)):
            raise CollectorError(f"data: cannot rename {by} to {folder}")

    def _path(self, folder: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(folder)
