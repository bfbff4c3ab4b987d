"""Operations on whole folders, on this machine or on any file system that Hadoop supports."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from ringmq.collector.errors import CollectorError


class Folders:
    """Operations on the file system of each folder. Failures raise the errors of Spark."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        # PySpark has no public access to the file systems of Hadoop.
        self._jvm = context._jvm  # noqa: SLF001
        self._settings = context._jsc.hadoopConfiguration()  # noqa: SLF001

    def make(self, folder: str) -> None:
        """Create a folder and its missing parents."""
        path = self._path(folder)
        path.getFileSystem(self._settings).mkdirs(path)

    def exists(self, folder: str) -> bool:
        path = self._path(folder)
        return bool(path.getFileSystem(self._settings).exists(path))

    def remove(self, folder: str) -> None:
        """Delete a folder with its content, if it exists."""
        path = self._path(folder)
        path.getFileSystem(self._settings).delete(path, True)

    def replace(self, folder: str, by: str) -> None:
        """Replace a folder by `by`, a folder beside it. Raises CollectorError if the file system refuses."""
        self.remove(folder)
        source = self._path(by)
        # Hadoop's `rename` returns False for some failures instead of raising.
        if not source.getFileSystem(self._settings).rename(source, self._path(folder)):
            raise CollectorError(f"data: cannot rename {by} to {folder}")

    def _path(self, folder: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(folder)
