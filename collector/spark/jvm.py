"""Starts and ends the JVM of Spark. The JVM ends with this process, however and whenever this process ends.

PySpark's own launcher waits for seconds, and an interruption in that time would leave the JVM behind: only once it
listens does it end with its parent. Knows nothing about the jobs that run in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from ringmq.collector.errors import CollectorError, short
from ringmq.collector.spark.interruption import Interruption

LOOK_S: Final = 0.05
"""The time between two looks whether the JVM listens."""
STOP_S: Final = 20.0
"""The time that the JVM has to end by itself."""
EXIT_S: Final = 1.0
"""The longest time between a broken connection and the end of a JVM that has failed."""
INFO: Final = "gateway"
"""The file in which the JVM writes its port and secret."""
ENDED: Final = "its JVM has ended"
THROWN: Final = re.compile(r"\b(?:\w+\.)+\w+(?:Error|Exception)\b.*")
"""The class and message of a Java exception in a log."""


@contextmanager
def jvm(conf: SparkConf, folder: Path, interruption: Interruption, *, verbose: bool) -> Iterator[Any]:
    """Py4J's gateway to a new JVM, with its process in `proc`. Its output goes to a file in `folder`, or to stderr.

    Raises CollectorError if the JVM does not start. If it ends early, its end replaces the CollectorError of the job.
    """
    # Until the gateway is ready, the first signal is raised only at `check`, where the process is known and killed.
    interruption.postpone()
    log = folder / "spark.log"
    with log.open("wb") as target:
        process = _start(conf, folder / INFO, None if verbose else target)
    try:
        while not (folder / INFO).exists():
            if process.poll() is not None:
                raise CollectorError(f"cannot start Spark: {_reason_in(log) or ENDED}")
            interruption.check()
            time.sleep(LOOK_S)
        gateway = _gateway_to(folder / INFO)
        gateway.proc = process
        interruption.resume()
        try:
            yield gateway
        except CollectorError as error:
            # The errors after the end of the JVM are about broken connections; its own last words say more.
            if _has_ended(process):
                reason = _reason_in(log)
                raise CollectorError(f"Spark: {_exit_of(process)}{reason and f': {reason}'}") from error
            raise
        finally:
            gateway.shutdown()
            _end(process)
    finally:
        _kill(process)


def _start(conf: SparkConf, info: Path, target: Any) -> subprocess.Popen[bytes]:
    command = [f"{_find_spark_home()}/bin/spark-submit"]
    for name, value in conf.getAll():
        command += ["--conf", f"{name}={value}"]
    environment = os.environ | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info)}
    return subprocess.Popen(  # noqa: S603  # Spark's own script
        [*command, "pyspark-shell"],
        stdin=subprocess.PIPE,
        stdout=target,
        stderr=target,
        env=environment,
        # The JVM inherits the lock of the scratch folder. Otherwise the folder could be removed before the JVM has
        # written INFO into it, and the JVM would never end.
        close_fds=False,
        # A process group of its own: Ctrl-C goes to this process alone, and `_kill` reaches the children of the script.
        process_group=0,
    )


def _gateway_to(info: Path) -> Any:
    with info.open("rb") as source:
        port, secret = read_int(source), UTF8Deserializer().loads(source)  # type: ignore[no-untyped-call]
    # These two variables make `launch_gateway` connect to a running JVM instead of starting another.
    variables = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(variables)
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in variables:
            del os.environ[name]


def _reason_in(log: Path) -> str:
    """The first Java exception in a log; empty if there is none."""
    match = THROWN.search(log.read_text("utf-8", "replace"))
    return short(match[0]) if match else ""


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    # The connections of a JVM break shortly before its process ends.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(EXIT_S)
    return process.poll() is not None


def _exit_of(process: subprocess.Popen[bytes]) -> str:
    """The end of the process in words: the signal that killed it, or its exit status."""
    status = process.returncode
    return f"{ENDED} ({signal.Signals(-status).name if status < 0 else f'exit status {status}'})"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the JVM end by itself."""
    # PySpark's JVM ends when its standard input is closed. That is also how it ends if this process is killed.
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the JVM with its children, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
