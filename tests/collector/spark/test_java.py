"""Finding Java, which scripts replace here."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.collector.errors import CollectorError
from ringmq.collector.spark.java import find_java


def fake_java(folder: Path, output: str, status: int = 0) -> Path:
    """A script that replaces Java, with this text on standard error."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "java"
    file.write_text(f"#!/bin/sh\necho '{output}' >&2\nexit {status}\n")
    file.chmod(0o755)
    return file


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin/no")


@pytest.mark.parametrize(
    "output",
    [
        'openjdk version "17.0.15" 2025-04-15',
        'java version "21"',
        'NOTE: Picked up this\nopenjdk version "25.0.1-ea"',
    ],
)
def test_new_enough_java_is_found(tmp_path: Path, output: str) -> None:
    file = fake_java(tmp_path, output)
    assert find_java() == file


def test_java_home_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "11.0.2"')
    home = fake_java(tmp_path / "home" / "bin", 'openjdk version "17.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == home


@pytest.mark.parametrize(("output", "version"), [('openjdk version "11.0.2"', 11), ('java version "1.8.0_292"', 8)])
def test_too_old_java_raises_with_the_remedy(tmp_path: Path, output: str, version: int) -> None:
    file = fake_java(tmp_path, output)
    with pytest.raises(CollectorError) as raised:
        find_java()
    assert str(raised.value) == (
        f"Spark needs Java 17 or newer, {file} is {version}: on Debian or Ubuntu run: "
        "apt-get install openjdk-17-jre-headless; or set JAVA_HOME"
    )


def test_missing_java_raises_with_the_remedy() -> None:
    with pytest.raises(CollectorError, match=r"needs Java 17 or newer, found none on the PATH: .*apt-get install"):
        find_java()


def test_java_home_without_java_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "17.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(CollectorError, match=rf"found none in JAVA_HOME \({tmp_path}/gone\): "):
        find_java()


@pytest.mark.parametrize(("output", "status"), [("what?", 0), ('openjdk version "17.0.2"', 1)])
def test_java_without_a_readable_version_raises(tmp_path: Path, output: str, status: int) -> None:
    fake_java(tmp_path, output, status)
    with pytest.raises(CollectorError, match="cannot read the version of "):
        find_java()


def test_java_that_cannot_be_run_raises(tmp_path: Path) -> None:
    fake_java(tmp_path, "").write_bytes(b"\x7fELF")
    with pytest.raises(CollectorError, match="cannot run "):
        find_java()
