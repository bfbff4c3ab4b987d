"""Finding Java: scripts stand in for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.collector.errors import CollectorError
from ringmq.collector.spark.java import find_java


def java(folder: Path, says: str, status: int = 0) -> Path:
    """A Java that says this, on standard error as the real one."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "java"
    file.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    file.chmod(0o755)
    return file


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin/no")


@pytest.mark.parametrize(
    "says",
    ['openjdk version "17.0.15" 2025-04-15', 'java version "21"', 'NOTE: Picked up this\nopenjdk version "25.0.1-ea"'],
)
def test_one_that_is_new_enough(tmp_path: Path, says: str) -> None:
    file = java(tmp_path, says)
    assert find_java() == file


def test_java_home_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path, 'openjdk version "11.0.2"')
    home = java(tmp_path / "home" / "bin", 'openjdk version "17.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == home


@pytest.mark.parametrize(("says", "version"), [('openjdk version "11.0.2"', 11), ('java version "1.8.0_292"', 8)])
def test_one_that_is_too_old(tmp_path: Path, says: str, version: int) -> None:
    file = java(tmp_path, says)
    with pytest.raises(CollectorError) as raised:
        find_java()
    assert str(raised.value) == (
        f"Spark needs Java 17 or newer, and {file} is {version}: on Debian or Ubuntu run: "
        "apt-get install openjdk-17-jre-headless; or set JAVA_HOME"
    )


def test_none() -> None:
    with pytest.raises(
        CollectorError, match=r"needs Java 17 or newer, and there is none on the PATH: .*apt-get install"
    ):
        find_java()


def test_a_java_home_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path, 'openjdk version "17.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(CollectorError, match=f"there is none in JAVA_HOME, which is {tmp_path}/gone: "):
        find_java()


@pytest.mark.parametrize(("says", "status"), [("what?", 0), ('openjdk version "17.0.2"', 1)])
def test_one_that_does_not_work(tmp_path: Path, says: str, status: int) -> None:
    java(tmp_path, says, status)
    with pytest.raises(CollectorError, match="does not say its version"):
        find_java()


def test_one_that_cannot_be_run(tmp_path: Path) -> None:
    java(tmp_path, "").write_bytes(b"\x7fELF")
    with pytest.raises(CollectorError, match="cannot be run: "):
        find_java()
