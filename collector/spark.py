"""The Spark session: its settings, its JVM from the start to the end, and its errors as one line each.

Knows nothing of what is done in it. On this machine it opens no port but on the loopback interface, and leaves no file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from collector.errors import CollectorError
from collector.java import find_java
from collector.scratch import scratch

HEAP: Final = "1g"
"""Of the JVM, where it does all the work itself. Jobs that need more use the disk."""
STOP_S: Final = 20.0
"""How long the JVM has to end by itself."""
MAX_CHARS: Final = 400
"""Of an error. Those of Spark may hold whole plans."""
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
    # Nor are the logs of its libraries for users: what goes wrong is raised.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger().addHandler(logging.NullHandler())
    with scratch() as folder, _interruptible():
        level = "warn" if verbose else "error"
        (folder / "log4j2.properties").write_text(LOG4J.format(level=level), encoding="ascii")
        conf = SparkConf(loadDefaults=False).setAll([*(settings_for(master, folder) | dict(more)).items()])
        gateway = _launch(conf, folder / "spark.log", verbose)
        try:
            with plain_errors():
                context = SparkContext(conf=conf, gateway=gateway)
                try:
                    yield SparkSession(context)
                finally:
                    context.stop()
        finally:
            _end(gateway)


def _launch(conf: SparkConf, log: Path, verbose: bool) -> Any:
    """Start the JVM. What it says goes to a file, but if it is to be seen."""
    with log.open("wb") as target:
        streams = {} if verbose else {"stdout": target, "stderr": target}
        try:
            return launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        except PySparkException as error:
            said = [line for line in log.read_text("utf-8", "replace").splitlines() if "Exception" in line]
            raise CollectorError(f"Spark cannot be started: {_short(said[0] if said else str(error))}") from error


def _end(gateway: Any) -> None:
    """End the JVM, which does so when nobody holds its input any more."""
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(STOP_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGINT raise KeyboardInterrupt, whatever they tear: calls of Java may fail, at the end too."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    interrupted = False

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        restore()
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield
    except Exception:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        restore()


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
            return _short(str(error.java_exception.toString()))
    if isinstance(error, PySparkException):
        return _short(str(error))
    return "its JVM has ended"


def _short(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason is known")
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"
