"""The JVM: an interruption at any moment of its start leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf

from ringmq.collector.errors import CollectorError
from ringmq.collector.spark import jvm as starting
from ringmq.collector.spark.interruption import interruptible
from ringmq.collector.spark.jvm import jvm
from ringmq.collector.spark.scratch import LOCK, scratch
from tests.collector.conftest import QUICK
from tests.conftest import Eventually

COMMAND = [sys.executable, "-P", "-m", "ringmq", "collect", "reduce", "--data"]
MARK = "RINGMQ_TEST_OF_JVM"


def processes_with(mark: str) -> list[int]:
    """All live processes with this mark in their environment, which children inherit."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}={mark}\0".encode() in environment:
                found.append(int(folder.name))
    return found


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    """A mark in the environment of all processes that a test starts. Those still alive at its end are killed."""
    yield str(tmp_path)
    for pid in processes_with(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("seconds", "signals"),
    [
        (0.0, [signal.SIGINT]),
        (0.1, [signal.SIGTERM]),
        (0.5, [signal.SIGINT, signal.SIGINT]),
        (1.0, [signal.SIGTERM]),
        (2.0, [signal.SIGINT]),
    ],
)
def test_interrupted_start_leaves_no_process_and_no_file(
    tmp_path: Path, eventually: Eventually, mark: str, seconds: float, signals: list[signal.Signals]
) -> None:
    (tmp_path / "data").mkdir()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary), "JDK_JAVA_OPTIONS": QUICK, MARK: mark}
    with subprocess.Popen([*COMMAND, str(tmp_path / "data")], env=environment, stderr=subprocess.PIPE) as process:
        eventually(lambda: list(temporary.glob("*/spark.log")), 60, "the JVM starts")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.01)
        for number in signals:
            process.send_signal(number)
        _, output = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert b"Traceback" not in output
    assert processes_with(mark) == []
    assert list(temporary.iterdir()) == []


def fake_spark(script: str, home: Path, patch: pytest.MonkeyPatch) -> None:
    """A script that replaces Spark's."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "spark-submit").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin" / "spark-submit").chmod(0o755)
    patch.setattr(starting, "_find_spark_home", lambda: str(home))


@pytest.mark.parametrize("script", ["sleep 1000", "sleep 1000 &\nwait", "trap '' TERM INT\nsleep 1000"])
def test_jvm_that_never_listens_can_be_interrupted(
    tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, mark: str, script: str
) -> None:
    """Its children end too."""
    fake_spark(
        f"{script.replace('sleep', 'touch ' + str(tmp_path / 'runs') + '; sleep')}", tmp_path / "home", monkeypatch
    )
    monkeypatch.setenv(MARK, mark)
    helper = "import os, pathlib, signal, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
    helper += "os.kill(int(sys.argv[2]), signal.SIGTERM)"
    command = [sys.executable, "-c", helper, str(tmp_path / "runs"), str(os.getpid())]
    with (
        pytest.raises(KeyboardInterrupt),
        interruptible() as interruption,
        subprocess.Popen(command),
        jvm(SparkConf(loadDefaults=False), tmp_path, interruption, verbose=False),
    ):
        pytest.fail("the JVM has started")
    eventually(lambda: processes_with(mark) == [], 10, "all have ended")


def test_jvm_inherits_the_lock_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this process is killed, the folder then stays until the JVM has ended."""
    fake_spark(f"readlink /proc/$$/fd/* > {tmp_path}/held; exit 1", tmp_path / "home", monkeypatch)
    with (
        scratch(tmp_path) as folder,
        pytest.raises(CollectorError),
        interruptible() as interruption,
        jvm(SparkConf(loadDefaults=False), folder, interruption, verbose=False),
    ):
        pytest.fail("the JVM has started")
    assert str(folder / LOCK) in (tmp_path / "held").read_text().splitlines()


def test_signal_during_the_start_of_the_process_ends_it(
    tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """The signal arrives before the caller has the process."""
    fake_spark("sleep 1000", tmp_path / "home", monkeypatch)
    monkeypatch.setenv(MARK, mark)
    start = starting._start

    def start_and_interrupt(*arguments: Any) -> subprocess.Popen[bytes]:
        process = start(*arguments)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(starting, "_start", start_and_interrupt)
    with (
        pytest.raises(KeyboardInterrupt),
        interruptible() as interruption,
        jvm(SparkConf(loadDefaults=False), tmp_path, interruption, verbose=False),
    ):
        pytest.fail("the JVM has started")
    eventually(lambda: processes_with(mark) == [], 10, "it has ended")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 1", "cannot start Spark: its JVM has ended"),
        ("exit 0", "cannot start Spark: its JVM has ended"),
        ("echo; echo x.SomeException: no; echo at x; exit 1", "cannot start Spark: x.SomeException: no"),
    ],
)
def test_failed_start_raises_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    fake_spark(script, tmp_path / "home", monkeypatch)
    with (
        pytest.raises(CollectorError) as raised,
        interruptible() as interruption,
        jvm(SparkConf(loadDefaults=False), tmp_path, interruption, verbose=False),
    ):
        pytest.fail("the JVM has started")
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("log_text", "reason"),
    [
        ("", ""),
        ("12:00:00 WARN Utils: slow\n", ""),
        (
            "12:00:00 ERROR Executor: Exception in task 0.0\njava.lang.OutOfMemoryError: no heap\n\tat a.b.C\n",
            "java.lang.OutOfMemoryError: no heap",
        ),
    ],
)
def test_reason_is_the_first_java_exception(tmp_path: Path, log_text: str, reason: str) -> None:
    (tmp_path / "log").write_text(log_text)
    assert starting._reason_in(tmp_path / "log") == reason
