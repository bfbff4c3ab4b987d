"""The Spark session: its settings, and its errors as one line each.

Knows nothing of what is done in it. On this machine it opens no port but on the loopback interface, and leaves no file.
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
"""Of the JVM, where it does all the work itself. Jobs that need more use the disk."""
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
    """How many cores of this machine a master takes; None if it is another's."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        return None
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)


def settings_for(master: str, folder: Path) -> dict[str, str]:
    """Of a session that may use `folder` as it likes."""
    settings = {
        "spark.master": master,
        "spark.app.name": "ringmq collect",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Nobody looks at what was done: little of it is kept. By itself it keeps the plans of a thousand queries.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.sql.json.enablePartialResults": "false",
        "spark.sql.files.ignoreMissingFiles": "true",
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
    """A session on this master, with `more` settings that win over ours. One in the life of a process.

    Raises CollectorError, one line, for what goes wrong in it. SIGTERM ends it as Ctrl-C does.
    """
    find_java()
    # Spark looks at what else is installed, and says so, whether it is used or not.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    # It also says so when it cannot stop in order what was interrupted, or has ended.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="pyspark")
    # Nor are the logs of its libraries for users: what goes wrong is raised.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger().addHandler(logging.NullHandler())
    with scratch() as folder, interruptible() as interruption, plain_errors():
        level = "warn" if verbose else "error"
        (folder / "log4j2.properties").write_text(LOG4J.format(level=level), encoding="ascii")
        conf = SparkConf(loadDefaults=False).setAll([*(settings_for(master, folder) | dict(more)).items()])
        with (
            jvm(conf, folder, interruption, verbose=verbose) as gateway,
            plain_errors(),
        ):  # Java says what was wrong while it lives
            context = SparkContext(conf=conf, gateway=gateway)
            try:
                yield SparkSession(context)
            finally:
                context.stop()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what Spark raises into CollectorError, one line."""
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
