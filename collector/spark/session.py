"""The Spark session: its settings, and its errors as one line each.

Knows nothing about the jobs. On this machine it opens ports on the loopback interface only, and leaves no files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ringmq.collector.errors import CollectorError, short
from ringmq.collector.spark.interruption import interruptible
from ringmq.collector.spark.java import find_java
from ringmq.collector.spark.jvm import jvm
from ringmq.collector.spark.scratch import scratch

HEAP: Final = "1g"
"""Heap of a JVM that runs the whole job on this machine. Spark spills larger jobs to the disk."""
LOG4J: Final = """\
rootLogger.level = {level}
rootLogger.appenderRef.all.ref = all
appender.all.type = Console
appender.all.name = all
appender.all.target = SYSTEM_ERR
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n
"""
STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")


def cores_of(master: str) -> int | None:
    """The number of cores of this machine that a local master uses; None for any other master."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        return None
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)


def settings_for(master: str, folder: Path) -> dict[str, str]:
    """The settings of a session whose temporary files go into `folder`."""
    settings = {
        "spark.master": master,
        "spark.app.name": "ringmq collect",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Nobody looks at past queries. By default Spark keeps the plans of a thousand, which filled the heap.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        # Runs are folders of the Parquet, and a run called 2024 or 2024-01-01 must stay text.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # A record with one wrong member must be null as a whole: `checking.parsed` relies on it.
        "spark.sql.json.enablePartialResults": "false",
        "spark.sql.files.ignoreMissingFiles": "true",
        # The state of the stream, a key for each record of ten minutes, is kept on the disk instead of the heap.
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.driver.extraJavaOptions": (
            f'"-Djava.io.tmpdir={folder}" "-Dlog4j2.configurationFile=file:{folder}/log4j2.properties" -XX:-UsePerfData'
        ),
    }
    cores = cores_of(master)
    if cores is not None:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": HEAP,
            "spark.local.dir": str(folder),
            "spark.sql.shuffle.partitions": str(max(2, cores)),
        }
    return settings


@contextmanager
def session(master: str, more: Mapping[str, str], *, verbose: bool = False) -> Iterator[SparkSession]:
    """A session on this master. The settings `more` override ours. A process can have only one session in its life.

    Turns the errors of Spark into CollectorError with one line. SIGTERM ends the session as Ctrl-C does.
    """
    find_java()
    # PySpark warns about other installed packages, whether they are used or not.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    # PySpark warns when it cannot stop a job that was interrupted, or whose JVM has ended.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="pyspark")
    # Log lines of PySpark repeat errors that are raised as well, and are of no use to the user of a command.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger().addHandler(logging.NullHandler())
    with scratch() as folder, interruptible() as interruption, plain_errors():
        level = "warn" if verbose else "error"
        (folder / "log4j2.properties").write_text(LOG4J.format(level=level), encoding="ascii")
        conf = SparkConf(loadDefaults=False).setAll([*(settings_for(master, folder) | dict(more)).items()])
        with (
            jvm(conf, folder, interruption, verbose=verbose) as gateway,
            plain_errors(),
        ):  # inside `jvm`: the message of a Java exception can be read only while the JVM runs
            context = SparkContext(conf=conf, gateway=gateway)
            try:
                yield SparkSession(context)
            finally:
                context.stop()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns the errors of Spark into CollectorError with one line."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise CollectorError(f"Spark: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        with contextlib.suppress(Py4JError, ConnectionError):
            return short(str(error.java_exception.toString()))
    if isinstance(error, PySparkException):
        return short(str(error))
    return f"{type(error).__name__}: {short(str(error))}"
