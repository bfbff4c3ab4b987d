"""The JVM: interrupted at any moment of its start, nothing of it stays."""

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


def started_with(mark: str) -> list[int]:
    """All processes that live and have this in their environment: whatever was started by who had it."""
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
    """What all that a test starts has in its environment. What still lives at the end of it is killed."""
    yield str(tmp_path)
    for pid in started_with(str(tmp_path)):
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
def test_nothing_stays_of_one_that_is_interrupted_as_it_starts(
    tmp_path: Path, eventually: Eventually, mark: str, seconds: float, signals: list[signal.Signals]
) -> None:
    (tmp_path / "data").mkdir()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary), "JDK_JAVA_OPTIONS": QUICK, MARK: mark}
    with subprocess.Popen([*COMMAND, str(tmp_path / "data")], env=environment, stderr=subprocess.PIPE) as process:
        eventually(lambda: list(temporary.glob("*/spark.log")), 60, "it starts its JVM")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.01)
        for number in signals:
            process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert b"Traceback" not in said
    assert started_with(mark) == []
    assert list(temporary.iterdir()) == []


def spark_that(does: str, home: Path, patch: pytest.MonkeyPatch) -> None:
    """In the place of Spark's script."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "spark-submit").write_text(f"#!/bin/sh\n{does}\n")
    (home / "bin" / "spark-submit").chmod(0o755)
    patch.setattr(starting, "_find_spark_home", lambda: str(home))


@pytest.mark.parametrize("does", ["sleep 1000", "sleep 1000 &\nwait", "trap '' TERM INT\nsleep 1000"])
def test_one_that_never_listens_can_be_interrupted(
    tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, mark: str, does: str
) -> None:
    """With all that it has started."""
    spark_that(
        f"{does.replace('sleep', 'touch ' + str(tmp_path / 'runs') + '; sleep')}", tmp_path / "home", monkeypatch
    )
    monkeypatch.setenv(MARK, mark)
    beside = "import os, pathlib, signal, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
    beside += "os.kill(int(sys.argv[2]), signal.SIGTERM)"
    command = [sys.executable, "-c", beside, str(tmp_path / "runs"), str(os.getpid())]
    with (
        pytest.raises(KeyboardInterrupt),
        interruptible() as interruption,
        subprocess.Popen(command),
        jvm(SparkConf(loadDefaults=False), tmp_path, interruption, verbose=False),
    ):
        pytest.fail("it has started")
    eventually(lambda: started_with(mark) == [], 10, "all have ended")


def test_it_inherits_the_lock_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the folder stays until it has ended, should we be killed."""
    spark_that(f"readlink /proc/$$/fd/* > {tmp_path}/held; exit 1", tmp_path / "home", monkeypatch)
    with (
        scratch(tmp_path) as folder,
        pytest.raises(CollectorError),
        interruptible() as interruption,
        jvm(SparkConf(loadDefaults=False), folder, interruption, verbose=False),
    ):
        pytest.fail("it has started")
    assert str(folder / LOCK) in (tmp_path / "held").read_text().splitlines()


def test_an_interruption_just_as_it_is_started(
    tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """When nobody knows of it yet."""
    spark_that("sleep 1000", tmp_path / "home", monkeypatch)
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
        pytest.fail("it has started")
    eventually(lambda: started_with(mark) == [], 10, "it has ended")


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("exit 1", "Spark cannot be started: its JVM has ended"),
        ("exit 0", "Spark cannot be started: its JVM has ended"),
        ("echo; echo x.SomeException: no; echo at x; exit 1", "Spark cannot be started: x.SomeException: no"),
    ],
)
def test_one_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, says: str) -> None:
    spark_that(does, tmp_path / "home", monkeypatch)
    with (
        pytest.raises(CollectorError) as raised,
        interruptible() as interruption,
        jvm(SparkConf(loadDefaults=False), tmp_path, interruption, verbose=False),
    ):
        pytest.fail("it has started")
    assert str(raised.value) == says


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("", ""),
        ("12:00:00 WARN Utils: slow\n", ""),
        (
            "12:00:00 ERROR Executor: Exception in task 0.0\njava.lang.OutOfMemoryError: no heap\n\tat a.b.C\n",
            "java.lang.OutOfMemoryError: no heap",
        ),
    ],
)
def test_the_reason_is_what_java_threw(tmp_path: Path, said: str, told: str) -> None:
    (tmp_path / "log").write_text(said)
    assert starting._reason_in(tmp_path / "log") == told
