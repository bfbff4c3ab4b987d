"""What is installed: the package `ringmq` and no other name, so that a package of others may be called `logger`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.test_imports import DOORS

ROOT = Path(__file__).resolve().parent.parent
MADE = shutil.ignore_patterns("__pycache__", "*.egg-info")
FOREIGN = 'WHO = "somebody else"\n'


class Built(NamedTuple):
    sdist: Path
    wheel: Path


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source distribution of a copy, and the wheel that is made of it. No package index is asked."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    source.mkdir()
    for name in ("src", *DOORS):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=MADE)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    program = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    sdist = folder / run(sys.executable, "-P", "-c", program, folder, cwd=source).splitlines()[-1]
    pip = (sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", folder, sdist, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return Built(sdist, wheel)


def modules() -> set[str]:
    files = {file.relative_to(ROOT).as_posix() for room in DOORS for file in (ROOT / room).rglob("*.py")}
    return {*files, "__init__.py", "__main__.py"}


def test_the_wheel_holds_one_package(built: Built) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    assert {re.sub(r"-.*\.dist-info$", "-info", name.split("/")[0]) for name in names} == {"ringmq", "ringmq-info"}
    assert {name.removeprefix("ringmq/") for name in names if name.endswith(".py")} == modules()
    assert "ringmq/py.typed" in names


def test_the_source_distribution_needs_no_links(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        members = archive.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    assert {name.partition("/src/ringmq/")[2] for name in (member.name for member in members)} >= modules()


@pytest.mark.timeout(200)
def test_it_runs_beside_a_package_called_logger(built: Built, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    env = tmp_path / "env"
    run(sys.executable, "-m", "venv", "--without-pip", env, cwd=tmp_path)
    python = env / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    foreign = packages / "logger" / "__init__.py"
    foreign.parent.mkdir()
    foreign.write_text(FOREIGN)
    # Behind all that is installed here, so that only what ringmq depends on is taken from there.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps")
    run(*pip, "--ignore-installed", built.wheel, cwd=tmp_path)

    assert foreign.read_text() == FOREIGN
    assert not [room for room in {*DOORS} - {"logger"} if (packages / room).exists()]
    program = "import logger, ringmq, ringmq.logger; print(logger.WHO, ringmq.__version__, ringmq.logger.__file__)"
    who, version, file = run(python, "-P", "-c", program, cwd=tmp_path).strip().rsplit(" ", 2)
    assert (who, file) == ("somebody else", str(packages / "ringmq" / "logger" / "__init__.py"))
    assert run(env / "bin" / "ringmq", "--version", cwd=tmp_path) == f"ringmq {version}\n"

    options = ("--overlay", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--no-discovery", "--data", str(tmp_path / "data"))
    said = tmp_path / "said"
    with said.open("wb") as out:
        peer = subprocess.Popen([python, "-P", "-m", "ringmq", "peer", *options], cwd=tmp_path, stdout=out, stderr=out)
    try:
        eventually(lambda: "\nactive: " in "\n" + said.read_text(), 30, "the peer is active")
    finally:
        peer.terminate()
        assert peer.wait(10) == 0
