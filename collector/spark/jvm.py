"""The JVM that Spark runs in, from the start to the end. It ends with this process, however and whenever that ends.

Spark's own way to start it waits for seconds, in which an interruption would leave it behind: it dies with who started
it only when it has begun to listen. Knows nothing of what is done in it.
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
"""Between two looks whether it listens."""
STOP_S: Final = 20.0
"""How long it has to end by itself."""
BREAKING_S: Final = 1.0
"""From its last word until it is no more."""
INFO: Final = "gateway"
"""The file where it says how it is reached."""
ENDED: Final = "its JVM has ended"
FAULT: Final = re.compile(r"\b(?:\w+\.)+\w+(?:Error|Exception)\b.*")
"""The name of what Java throws, and what it says."""


@contextmanager
def jvm(conf: SparkConf, folder: Path, interruption: Interruption, *, verbose: bool) -> Iterator[Any]:
    """Py4J's gateway to it, with the process in `proc`. What it says goes to a file in `folder`, or is shown.

    Raises CollectorError if it does not start, and in the place of one that is raised because it has ended.
    """
    interruption.hold()
    log = folder / "spark.log"
    with log.open("wb") as target:
        process = _start(conf, folder / INFO, None if verbose else target)
    try:
        while not (folder / INFO).exists():
            if process.poll() is not None:
                raise CollectorError(f"Spark cannot be started: {_reason_in(log) or ENDED}")
            interruption.check()
            time.sleep(LOOK_S)
        gateway = _gateway_to(folder / INFO)
        gateway.proc = process
        interruption.release()
        try:
            yield gateway
        except CollectorError as error:
            if _has_ended(process):
                reason = _reason_in(log)
                raise CollectorError(f"Spark: {_fate_of(process)}{reason and f': {reason}'}") from error
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
    return subprocess.Popen(  # noqa: S603  # it is Spark's own script
        [*command, "pyspark-shell"],
        stdin=subprocess.PIPE,
        stdout=target,
        stderr=target,
        env=environment,
        # With the lock of the folder, which must be there when it says how it is reached: else it would never end.
        close_fds=False,
        # Ctrl-C is for us alone, and the script has children.
        process_group=0,
    )


def _gateway_to(info: Path) -> Any:
    with info.open("rb") as source:
        port, secret = read_int(source), UTF8Deserializer().loads(source)  # type: ignore[no-untyped-call]
    told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(told)
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in told:
            del os.environ[name]


def _reason_in(log: Path) -> str:
    """What Java threw first, if it says so."""
    found = FAULT.search(log.read_text("utf-8", "replace"))
    return short(found[0]) if found else ""


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Its connections break a little earlier."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(BREAKING_S)
    return process.poll() is not None


def _fate_of(process: subprocess.Popen[bytes]) -> str:
    status = process.returncode
    return f"{ENDED} ({signal.Signals(-status).name if status < 0 else f'exit status {status}'})"


def _end(process: subprocess.Popen[bytes]) -> None:
    """It does so when nobody holds its input any more."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With its children, if it has not ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
