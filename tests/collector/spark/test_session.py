"""The session: its settings, its errors, and its cleanup."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.errors import MAX_CHARS, CollectorError
from ringmq.collector.spark.session import cores_of, plain_errors, session, settings_for
from tests.collector.conftest import QUICK
from tests.conftest import Eventually, Usage

SCRIPT = """
import os, signal, sys
from ringmq.collector.spark.session import session
with session(sys.argv[1], dict(pair.split("=") for pair in sys.argv[2:])) as spark:
    print("rows", spark.range(10).count(), flush=True)
    print("java", spark.sparkContext._gateway.proc.pid, flush=True)
    sys.stdin.readline()
    spark.range(1 << 60).selectExpr("max(hash(id))").collect()
"""


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3, 2]", 3),
        ("local[*]", os.cpu_count()),
        ("yarn", None),
        ("spark://host:7077", None),
        ("local-cluster[2,1,1024]", None),
    ],
)
def test_cores_of_local_masters(master: str, cores: int | None) -> None:
    assert cores_of(master) == cores


def test_local_master_has_additional_settings(tmp_path: Path) -> None:
    here, there = settings_for("local[4]", tmp_path), settings_for("yarn", tmp_path)
    assert here["spark.driver.bindAddress"] == here["spark.driver.host"] == "127.0.0.1"
    assert here["spark.sql.shuffle.partitions"] == "4"
    assert set(here) - set(there) >= {"spark.driver.host", "spark.driver.memory", "spark.sql.shuffle.partitions"}
    assert there["spark.sql.session.timeZone"] == "UTC"


def test_spark_error_becomes_one_short_line(spark: SparkSession) -> None:
    with pytest.raises(CollectorError) as raised, plain_errors():
        spark.sql("select " + ", ".join(f"no_column_{number}" for number in range(200)) + " from range(1)").collect()
    assert str(raised.value).startswith("Spark: [UNRESOLVED_COLUMN")
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) <= len("Spark: ") + MAX_CHARS


def test_java_exception_becomes_one_line(spark: SparkSession) -> None:
    with (
        pytest.raises(CollectorError, match=r"^Spark: java.util.NoSuchElementException: No value present$"),
        plain_errors(),
    ):
        spark.sparkContext._jvm.java.util.Optional.empty().get()


def test_other_errors_pass_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), plain_errors():
        raise ZeroDivisionError


@pytest.fixture
def running(tmp_path: Path, eventually: Eventually) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the script, with a folder of its own for temporary files."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "tmp").mkdir()
    (tmp_path / "cwd").mkdir()

    def start(master: str, *pairs: str) -> subprocess.Popen[str]:
        environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "JDK_JAVA_OPTIONS": QUICK}
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", SCRIPT, master, *pairs],
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                text=True,
                env=environment,
                cwd=tmp_path / "cwd",
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def java_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    assert process.stdout.readline() == "rows 10\n"
    return int(process.stdout.readline().split()[1])


def listening(pid: int) -> set[str]:
    """The addresses on which a process listens, in the hexadecimal form of the kernel."""
    sockets = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and f"socket:[{cells[9]}]" in sockets:
                found.add(cells[1].partition(":")[0])
    return found


def compute(process: subprocess.Popen[str], java: Usage, eventually: Eventually) -> None:
    """Start the computation; returns when the JVM is busy with it."""
    before_s = java.cpu_s
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    eventually(lambda: java.cpu_s > before_s + 1, 30, "Java computes")


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_session_is_quiet_listens_on_loopback_and_leaves_no_files(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path, usage: type[Usage], eventually: Eventually
) -> None:
    process = running("local[2]")
    java = java_of(process)
    assert listening(java) <= LOOPBACK
    assert listening(java)
    compute(process, usage(java), eventually)
    process.send_signal(signal.SIGTERM)
    _, output = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in output
    assert [line for line in output.splitlines() if "WARN" in line or "INFO" in line or "ERROR" in line] == []
    assert not usage(java).runs
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list((tmp_path / "cwd").iterdir()) == []


def test_jvm_ends_with_a_killed_process(
    running: Callable[..., subprocess.Popen[str]], usage: type[Usage], eventually: Eventually
) -> None:
    process = running("local[2]")
    java = java_of(process)
    process.kill()
    eventually(lambda: not usage(java).runs, 20, "Java ends")


def test_killed_jvm_is_one_line(
    running: Callable[..., subprocess.Popen[str]], usage: type[Usage], eventually: Eventually
) -> None:
    process = running("local[2]")
    java = java_of(process)
    compute(process, usage(java), eventually)
    os.kill(java, signal.SIGKILL)
    _, output = process.communicate(timeout=60)
    assert output.splitlines()[-1] == "ringmq.collector.errors.CollectorError: Spark: its JVM has ended (SIGKILL)"


def test_invalid_master_is_one_line(running: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = running("nonsense")
    _, output = process.communicate(timeout=60)
    assert output.splitlines()[-1].startswith("ringmq.collector.errors.CollectorError: cannot start Spark: ")
    assert "Master must either be yarn or start with spark" in output.splitlines()[-1]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_missing_java_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(CollectorError, match="Spark needs Java 17 or newer"), session("local[1]", {}):
        pass
