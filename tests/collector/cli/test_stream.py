"""`ringmq collect stream` as processes that are killed at random.

There are three kills. RINGMQ_STREAM_KILLS=10 makes ten, which take some minutes (add --timeout=0).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.jobs.schema import STORED
from tests.collector.conftest import QUICK
from tests.collector.making import delivery, land, line
from tests.conftest import Eventually, Process, Usage

Start = Callable[..., Process]
KILLS = int(os.environ.get("RINGMQ_STREAM_KILLS", "3"))
FILES_EACH = 5
LINES_EACH = 30


@pytest.fixture(autouse=True)
def _quick_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)


def java_of(process: Process) -> int | None:
    """The JVM of the process, once it has started one."""
    for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError):
            if b"org.apache.spark.deploy.SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    return None


def fill(data: Path, name: int) -> None:
    """Land records, some of them twice, and lines that are not records."""
    for part in range(FILES_EACH):
        first = (name * FILES_EACH + part) * LINES_EACH
        numbers = [*range(first, first + LINES_EACH), first, max(0, first - 1)]
        lines = [line(delivery(number=number), time.time()) for number in numbers]
        land(data, f"{name:02}-{part}", [*lines, f"garbage {name} {part}"])


@pytest.mark.timeout(400)
def test_random_kills_lose_and_repeat_nothing(
    spark: SparkSession, start: Start, tmp_path: Path, usage: type[Usage], eventually: Eventually
) -> None:
    chance = Random(4)
    data = tmp_path / "data"
    for kill in range(KILLS):
        fill(data, kill)
        process = start("collect", "stream", "--data", str(data), "--every", "0", "--batch", "0.02")
        java = eventually(lambda process=process: java_of(process), 30)  # type: ignore[misc]
        if kill % 5:  # otherwise kill it at once
            eventually(lambda process=process: "streaming" in process.err, 60, process.err)  # type: ignore[misc]
            until = time.monotonic() + chance.uniform(0, 4)
            while time.monotonic() < until:
                assert process.popen.poll() is None, process.err
                time.sleep(0.01)
        victims = {0: [java], 1: [process.pid], 2: [java, process.pid]}[kill % 3]
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        status = process.popen.wait(30)
        assert status == (1 if victims == [java] else -9), process.err
        eventually(lambda java=java: not usage(java).runs, 30, "Java ends")  # type: ignore[misc]
    last = start("collect", "stream", "--data", str(data), "--once")
    assert last.popen.wait(120) == 0, last.err
    assert last.out.startswith("streamed in all: "), last.err
    found = spark.read.schema(STORED).parquet(f"{data}/parquet")
    numbers = sorted(row.number for row in found.where("kind = 'delivery'").select("number").collect())
    assert numbers == list(range(KILLS * FILES_EACH * LINES_EACH))
    dead = sorted(row.line for row in found.where("kind = 'dead'").select("line").collect())
    assert dead == [f"garbage {kill} {part}" for kill in range(KILLS) for part in range(FILES_EACH)]


def test_stream_runs_until_a_signal(start: Start, ringmq: Start, tmp_path: Path, eventually: Eventually) -> None:
    data = tmp_path / "data"
    data.mkdir()
    process = start("collect", "stream", "--data", str(data), "--every", "0")
    eventually(lambda: "streaming" in process.err, 60)
    other = ringmq("collect", "stream", "--data", str(data), "--once")
    assert (other.popen.returncode, other.err) == (
        1,
        f"ringmq: data: {data} is in use by another stream: each needs its own\n",
    )
    for number in range(2):
        land(data, str(number), [line(delivery(number=number)), "garbage"])
        eventually(lambda number=number: process.err.count("streamed:") > number, 60)  # type: ignore[misc]
    assert process.end(signal.SIGINT, within_s=30) == 130, process.err
    assert process.err.split("\n")[1:3] == ["streamed: 1 records, 1 dead letters"] * 2
    assert process.out == "streamed in all: 2 records, 2 dead letters\n"


def test_missing_folder_fails_with_one_line(ringmq: Start, tmp_path: Path) -> None:
    process = ringmq("collect", "stream", "--data", f"{tmp_path}/none", "--once")
    assert process.popen.returncode == 1
    assert process.err == f"ringmq: data: there is no folder {tmp_path}/none: run ringmq collect ingest first\n"
    assert process.out == ""


def test_missing_java_fails_with_one_line(ringmq: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    process = ringmq("collect", "stream", "--data", str(tmp_path), "--once")
    assert process.popen.returncode == 1
    assert process.out == ""
    (message,) = process.err.splitlines()
    assert message.startswith("ringmq: Spark needs Java 17 or newer, found none in JAVA_HOME")
